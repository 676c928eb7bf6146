package core_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The documentation of the package links each name that is exported and each method of a Limiter, or has a row
// for it in a table.
func TestNamesAreListed(t *testing.T) {
	fset, files := token.NewFileSet(), []*ast.File(nil)
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "github.com/tailcut/tailcut/core")
	if err != nil {
		t.Fatal(err)
	}
	check := func(names ...string) {
		for _, name := range names {
			if !strings.Contains(p.Doc, "["+name+"]") && !strings.Contains(p.Doc, "\n\t"+name+" ") {
				t.Errorf("%s is not in the documentation of the package", name)
			}
		}
	}
	funcs := func(of string, funcs []*doc.Func) {
		for _, f := range funcs {
			check(of + f.Name)
		}
	}
	funcs("", p.Funcs)
	for _, v := range append(p.Consts, p.Vars...) {
		check(v.Names...)
	}
	for _, x := range p.Types {
		check(x.Name)
		funcs("", x.Funcs)
		if x.Name == "Limiter" {
			funcs("Limiter.", x.Methods)
		}
	}
}
