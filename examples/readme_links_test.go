package examples

import (
	"os"
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

// Package nethttp lists the code of every log line that has one.
func TestEveryCodeIsListed(t *testing.T) {
	doc, err := os.ReadFile("../nethttp/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := found(`(?m)^//\t([a-z]+(?:-[a-z]+)+)  `, string(doc))
	src := sources(t)
	logged := found(`(?:"code", |\bsay\("[^"]*", |\bcode(?:[A-Z]\w*)?(?:, \w+)? :?= |\bwarn\()"([a-z-]+)"`, src)
	slices.Sort(logged)
	slices.Sort(listed)
	if logged = slices.Compact(logged); !slices.Equal(logged, listed) {
		t.Errorf("the log has the codes %q, nethttp/doc.go lists %q", logged, listed)
	}
}

// The log says what the README quotes.
func TestQuotedLogLinesExist(t *testing.T) {
	src := sources(t)
	lines := found("`(core: [^`]+)`", readme(t, "../README.md"))
	if len(lines) == 0 {
		t.Error("the README quotes no log line")
	}
	for _, line := range lines {
		if !strings.Contains(src, `"`+line+`"`) {
			t.Errorf("nothing logs %q", line)
		}
	}
}
