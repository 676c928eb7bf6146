package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// workingCopy is a repository of its own with these files.
func workingCopy(t *testing.T) (run func(name string, args ...string) (string, error)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds a program with all its modules, and the tests are short")
	}
	for _, tool := range []string{"bash", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("..")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	run = func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(),
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=alice", "GIT_AUTHOR_EMAIL=alice@example.com",
			"GIT_COMMITTER_NAME=alice", "GIT_COMMITTER_EMAIL=alice@example.com")
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "all"}} {
		if out, err := run("git", args...); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	return run
}

// The script tags modules that a program can get, and its commit holds nothing but the
// versions and the date.
func TestRelease(t *testing.T) {
	run := workingCopy(t)
	out, err := run(".ci/release", "v0.999.0")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tags := "v0.999.0 core/metrics/tailcutotel/v0.999.0 core/metrics/tailcutprom/v0.999.0 examples/replay/v0.999.0"
	if push := "git push --atomic origin HEAD:main " + tags; !strings.HasSuffix(out, push) {
		t.Errorf("it does not end with %q:\n%s", push, out)
	}
	for _, tt := range []struct{ command, want string }{
		{"git status --porcelain", ""},
		{"git tag --points-at HEAD", strings.ReplaceAll("core/metrics/tailcutotel/v0.999.0 core/metrics/tailcutprom/v0.999.0 v0.999.0", " ", "\n")},
		{"git diff --name-only HEAD~ -- :!*.mod :!*.sum", ".github/CHANGELOG.md"},
	} {
		words := strings.Fields(tt.command)
		if out, _ := run(words[0], words[1:]...); out != tt.want {
			t.Errorf("%s: %s, want %s", tt.command, out, tt.want)
		}
	}
	// go run and go install refuse a program with replace lines.
	program, err := run("git", "show", "examples/replay/v0.999.0:examples/replay/go.mod")
	if err != nil || strings.Contains(program, "replace") || !strings.Contains(program, "tailcut/tailcut v0.999.0") {
		t.Errorf("the tag of replay has %v\n%s", err, program)
	}
	if out, err := run("git", "grep", "-hF", "github.com/tailcut/tailcut v", "--", "core/**/go.mod"); err != nil || strings.Count(out, "tailcut v0.999.0") != 2 {
		t.Errorf("the nested modules require %s, %v", out, err)
	}
}

// What the script refuses, or fails at, leaves the repository as it was.
func TestReleaseRefuses(t *testing.T) {
	run := workingCopy(t)
	for _, tt := range []struct{ name, prepare, version, want string }{
		{"no version", "true", "0.1", "name one version"},
		{"a version that exists", "git tag core/metrics/tailcutprom/v0.999.0", "v0.999.0", "the tag core/metrics/tailcutprom/v0.999.0 exists"},
		{"a file that is not committed", "echo >notes", "v0.999.0", "commit first"},
		{"nothing described", "git rm -q --cached notes 2>/dev/null; rm notes; sed -i s/Unreleased/Soon/ .github/CHANGELOG.md && git commit -qam soon", "v0.999.0", "has no section Unreleased"},
		{"a module that cannot be built", "sed -i s/Soon/Unreleased/ .github/CHANGELOG.md && sed -i 's/^package .*/package broken; import _ \"example.com\\/none\"/' core/metrics/tailcutprom/tailcutprom.go && git commit -qam broken", "v0.998.0", "example.com/none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, err := run("bash", "-c", tt.prepare); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			before, _ := run("git", "show-ref")
			out, err := run(".ci/release", tt.version)
			if err == nil || !strings.Contains(out, tt.want) {
				t.Errorf("%v\n%s\nwant %q", err, out, tt.want)
			}
			if after, _ := run("git", "show-ref"); after != before {
				t.Errorf("it leaves\n%s\nbefore\n%s", after, before)
			}
		})
	}
}
