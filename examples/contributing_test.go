package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The list of files that a decision goes through in CONTRIBUTING names each file as `serve.go`, and before
// the dash the functions to read there as `Serve`. Files without a folder are in the folder that the list
// says first.
func TestContributingFollowsADecision(t *testing.T) {
	src, err := os.ReadFile("../.github/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lists, _ := strings.Cut(string(src), "\n## Follow one decision\n")
	lists, _, _ = strings.Cut(lists, "\n## ")
	named := 0
	for list := range strings.SplitSeq(lists, "\n### ") {
		folder := ""
		if m := regexp.MustCompile("Files without a folder are in `([^`]+)`").FindStringSubmatch(list); m != nil {
			folder = m[1]
		}
		for _, item := range regexp.MustCompile(`(?m)^\d+\. `).Split(list, -1)[1:] {
			item, _, _ = strings.Cut(item, "\n\n")
			before, after, _ := strings.Cut(item, "—")
			file := ""
			for _, word := range found("`([^`]+)`", before) {
				if isFile(word) {
					file = source(t, folder, word)
				} else if !declares(file, word) {
					t.Errorf("no function %s in the file named before it, in %q", word, strings.TrimSpace(before))
				}
				named++
			}
			for _, word := range found("`([^`]+)`", after) {
				if isFile(word) {
					source(t, folder, word)
				}
			}
		}
	}
	if named < 40 {
		t.Errorf("the lists name %d files and functions; does the pattern still fit?", named)
	}
}

func isFile(word string) bool {
	return strings.HasSuffix(word, ".go") || strings.HasSuffix(word, ".lua")
}

// source is the text of a file, which is below the folder or the root.
func source(t *testing.T, folder, name string) string {
	t.Helper()
	for _, path := range []string{
		filepath.Join("..", name), filepath.Join("..", folder, name), filepath.Join("..", folder, "internal", name),
	} {
		if src, err := os.ReadFile(path); err == nil {
			return string(src)
		}
	}
	t.Errorf("no file %s, neither in the root nor in %q", name, folder)
	return ""
}

func declares(src, name string) bool {
	return regexp.MustCompile(`(?m)^(local )?func(tion)? (\([^)]*\) )?` + regexp.QuoteMeta(name) + `\b`).MatchString(src)
}
