// Package migrate has the code of six limiters and of Tailcut side by side. The tests send
// both the same requests.
package migrate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ok is the handler behind every limit.
var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// burst sends n requests and returns their status codes.
func burst(h http.Handler, n int) []int {
	codes := make([]int, n)
	for i := range codes {
		r := httptest.NewRequest("POST", "/posts/1/replies", nil)
		r.RemoteAddr = "203.0.113.9:4711"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		codes[i] = w.Code
	}
	return codes
}

// same fails unless both let so many through, and refuse the others with 429.
func same(t *testing.T, before, after []int, passed int) {
	t.Helper()
	for name, codes := range map[string][]int{"before": before, "after": after} {
		for i, code := range codes {
			want := http.StatusOK
			if i >= passed {
				want = http.StatusTooManyRequests
			}
			if code != want {
				t.Errorf("%s: request %d of %d has %d, want %d", name, i+1, len(codes), code, want)
			}
		}
	}
}

// TestREADMEShowsTheFunctions: every function of the other files, and no other code.
func TestREADMEShowsTheFunctions(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(readme), -1) {
		shown = append(shown, strings.TrimSpace(m[1]))
	}
	functions := functions(t)
	for name, code := range functions {
		if !slices.ContainsFunc(shown, func(fence string) bool { return strings.Contains(fence, code) }) {
			t.Errorf("the README does not show %s:\n%s", name, code)
		}
	}
	for _, fence := range shown {
		for _, part := range strings.Split(fence, "\n}\n") {
			part = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(part), "\n}"))
			found := false
			for _, code := range functions {
				found = found || strings.HasPrefix(code, part)
			}
			if !found {
				t.Errorf("no file has what the README shows:\n%s", part)
			}
		}
	}
}

// functions are the texts of the functions to show, by name: all but the tests that
// compare, and what asks the others alone.
func functions(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range files {
		if path == "readme_test.go" || path == "peers_test.go" {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, isFunc := decl.(*ast.FuncDecl)
			if !isFunc || strings.HasSuffix(f.Name.Name, "Alike") {
				continue
			}
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			all[f.Name.Name] = string(src[fset.Position(from).Offset:fset.Position(f.End()).Offset])
		}
	}
	if len(all) == 0 {
		t.Fatal("no function to show")
	}
	return all
}
