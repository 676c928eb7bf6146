package examples

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources are the Go files that are not tests.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for path, src := range goFiles(t) {
		if !strings.HasSuffix(path, "_test.go") {
			b.WriteString(src)
		}
	}
	return b.String()
}

// found are the first groups of a pattern in a text.
func found(pattern, text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// A refusal's type, such as https://github.com/tailcut/tailcut#banned, is a heading of the README.
func TestLinksToTheREADMEHaveTheirHeading(t *testing.T) {
	var headings []string
	for _, heading := range found(`(?m)^#+ (.*)$`, readme(t, "../README.md")) {
		headings = append(headings, strings.ReplaceAll(strings.ToLower(heading), " ", "-"))
	}
	anchors := found(`https://`+own+`#([\w-]+)`, sources(t))
	if len(anchors) == 0 {
		t.Error("nothing links to the README; does the pattern still fit?")
	}
	for _, anchor := range anchors {
		if !slices.Contains(headings, anchor) {
			t.Errorf("the README has no heading #%s", anchor)
		}
	}
}

// A package lists the code of every log line that begins with its name, and a test names the code. Package
// nethttp lists those of its adapters too. Each call that logs has a code.
func TestEveryCodeIsListed(t *testing.T) {
	lists := func(path string) string { // the package whose doc.go lists the codes of a file
		dir := strings.TrimPrefix(filepath.Dir(path), "../")
		switch top, _, _ := strings.Cut(dir, "/"); {
		case strings.HasPrefix(dir, "core/redisstore/"):
			return "core/redisstore"
		case top == "nethttp" || top == "ginlimit" || top == "echolimit":
			return "nethttp"
		}
		return dir
	}
	logged, listed, tests := map[string][]string{}, map[string][]string{}, ""
	for path, src := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/gatetest/") {
			tests += src
		} else {
			dir := lists(path)
			if !strings.HasPrefix(dir, "examples") {
				for _, call := range found(`(slog\.Default\(\)\.(?:Debug|Info|Warn|Error)\((?:[^()]|\([^()]*\))*\))`, src) {
					if !strings.Contains(call, `"code"`) && !strings.Contains(call, "...)") {
						t.Errorf("%s logs without a code: %s", path, call)
					}
				}
			}
			logged[dir] = append(logged[dir], found(`(?:"code", |\bsay\("[^"]*", |\bcode(?:[A-Z]\w*)?(?:, \w+)? :?= |\bcode :?= [^\n]*", |\bcode :?= [&\w.]+, "[^"]*", |\.log\([\w.]+, "[^"]*", |\bwarn\(|\bwarnOnce\([&\w.]+, )"([a-z-]+)"`, src)...)
			listed[dir] = append(listed[dir], found(`(?m)^//\t([a-z]+(?:-[a-z]+)+)  `, src)...)
		}
	}
	if logged["core"] == nil || logged["nethttp"] == nil || logged["keyfuncs"] == nil {
		t.Error("a package logs no code; does the pattern still fit?")
	}
	for dir := range logged {
		slices.Sort(logged[dir])
		slices.Sort(listed[dir])
		if codes := slices.Compact(logged[dir]); !slices.Equal(codes, listed[dir]) {
			t.Errorf("package %s logs the codes %q, its documentation lists %q", dir, codes, listed[dir])
		}
		for _, code := range listed[dir] {
			if !strings.Contains(tests, code) {
				t.Errorf("no test has the log say %s", code)
			}
		}
	}
}
