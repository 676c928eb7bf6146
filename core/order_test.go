package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A file of core, or of gate, uses only files above it in CONTRIBUTING's list of all of them, but for the exceptions
// there.
func TestFilesReferOneWay(t *testing.T) {
	filesReferOneWay(t, ".", "### Files of core\n", map[[2]string]bool{
		{"decision.go", "record.go"}: true, {"charge.go", "record.go"}: true, {"record.go", "store.go"}: true,
		{"limit.go", "meter.go"}: true, {"limit.go", "leased.go"}: true,
	})
	filesReferOneWay(t, "../nethttp/gate", "### Files of gate\n", nil)
}

func filesReferOneWay(t *testing.T, dir, heading string, exceptions map[[2]string]bool) {
	guide, err := os.ReadFile("../.github/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(guide), heading)
	_, list, _ = strings.Cut(list, "|---|---|\n")
	list, _, _ = strings.Cut(list, "\n\n")
	place := map[string]int{"doc.go": 0}
	for _, m := range regexp.MustCompile("`(\\w+\\.go)`").FindAllStringSubmatch(list, -1) {
		place[m[1]] = len(place)
	}
	fset, files := token.NewFileSet(), []*ast.File(nil)
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if _, listed := place[name]; !listed {
			t.Errorf("%s is not in the list", name)
		}
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(fset, name, code, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) != len(place) {
		t.Errorf("the list has %d files, and there are %d", len(place), len(files))
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}} // of the imports, which are not read
	pkg, _ := conf.Check(dir, fset, files, info)
	for use, o := range info.Uses {
		from, to := fset.Position(use.Pos()), fset.Position(o.Pos())
		if o.Pkg() == pkg && o.Pos().IsValid() && place[from.Filename] < place[to.Filename] && !exceptions[[2]string{from.Filename, to.Filename}] {
			t.Errorf("%s uses %s of %s", from, o.Name(), to.Filename)
		}
	}
}
