package examples

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

var bracketed = regexp.MustCompile(`\[\*?[A-Za-z]\w*(\.\w+)*\]`)

// Every [Name] in the documentation of a package is a link, and what it names exists.
func TestDocLinksResolve(t *testing.T) {
	fset := token.NewFileSet()
	parsed := map[string][]*ast.File{} // by directory
	for name, src := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "../examples/") {
			continue
		}
		file, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed[path.Dir(name)] = append(parsed[path.Dir(name)], file)
	}
	exported := map[string]bool{} // such as ../core.Limiter.Allow
	for dir, files := range parsed {
		for _, file := range files {
			exports(file, func(name string) { exported[dir+"."+name] = true })
		}
	}
	for dir, files := range parsed {
		p, err := doc.NewFromFiles(fset, files, own+strings.TrimPrefix(dir, ".."), doc.PreserveAST)
		if err != nil {
			t.Fatal(err)
		}
		links := p.Parser()
		check := func(text string) {
			visit(links.Parse(text).Content, func(x comment.Text) {
				switch x := x.(type) {
				case comment.Plain:
					if m := bracketed.FindString(string(x)); m != "" {
						t.Errorf("%s: %s is no link", dir, m)
					}
				case *comment.DocLink:
					within, ours := strings.CutPrefix(x.ImportPath, own)
					name := strings.TrimPrefix(x.Recv+"."+x.Name, ".")
					if ours && x.Name != "" && !exported[".."+within+"."+name] {
						t.Errorf("%s: [%s.%s] names nothing", dir, path.Base(within), name)
					}
				}
			})
		}
		for _, file := range files {
			for _, group := range file.Comments {
				if len(group.List) > 0 && documents(file, group) {
					check(group.Text())
				}
			}
		}
	}
}

// documents reports whether a comment is the documentation of the package or of a
// declaration.
func documents(file *ast.File, group *ast.CommentGroup) (is bool) {
	is = group == file.Doc
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			is = is || d.Doc == group
		case *ast.GenDecl:
			is = is || d.Doc == group
		}
	}
	return is
}

func visit(blocks []comment.Block, see func(comment.Text)) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *comment.Paragraph:
			for _, x := range b.Text {
				see(x)
			}
		case *comment.List:
			for _, item := range b.Items {
				visit(item.Content, see)
			}
		}
	}
}
