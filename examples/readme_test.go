package examples

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readme(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// goFiles are all Go files of the repository, by their paths from here.
func goFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		b, err := os.ReadFile(path)
		files[filepath.ToSlash(path)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// flat drops indentation and blank lines at the ends, so that code is the same
// wherever it stands.
func flat(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// fences are the blocks of code of a language.
func fences(text, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// snippets are what the README must show, by name.
func snippets(t *testing.T) map[string]string {
	t.Helper()
	shown := map[string]string{}
	src := readme(t, "snippets_test.go")
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "snippets_test.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := func(from, to token.Pos) string {
		return src[fset.Position(from).Offset:fset.Position(to).Offset]
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		switch {
		case !ok:
		case strings.HasPrefix(f.Name.Name, "Example"):
			shown[f.Name.Name], _, _ = strings.Cut(text(f.Body.Lbrace+1, f.Body.Rbrace), "\n\n\tfmt.Println(")
		case f.Name.Name == "TestFiveRepliesAMinute", f.Name.Name == "limitPosts":
			shown[f.Name.Name] = text(f.Pos(), f.End())
		}
	}
	shown["gin/main.go"] = regexp.MustCompile(`(?s)replies := .*, reply\)`).FindString(readme(t, "gin/main.go"))
	shown["echo5/main.go"] = regexp.MustCompile(`(?s)limit := .*, limit\)`).FindString(readme(t, "echo5/main.go"))
	return shown
}

func TestREADMEShowsTheSnippetsAndNothingElse(t *testing.T) {
	var shown []string
	for _, path := range []string{"../README.md", "ugc/README.md"} {
		for _, fence := range fences(readme(t, path), "go") {
			shown = append(shown, flat(fence))
		}
	}
	for name, code := range snippets(t) {
		if code == "" || !slices.ContainsFunc(shown, func(fence string) bool { return strings.Contains(fence, flat(code)) }) {
			t.Errorf("the README does not show %s:\n%s", name, code)
		}
	}
	files := goFiles(t)
	for path, src := range files {
		files[path] = flat(src)
	}
fence:
	for _, fence := range shown {
		for _, src := range files {
			if strings.Contains("\n"+src+"\n", "\n"+fence+"\n") {
				continue fence
			}
		}
		t.Errorf("no file has what the README shows:\n%s", fence)
	}
}

// The files that a README links to exist.
func TestLinksOfREADMEsResolve(t *testing.T) {
	for _, path := range []string{"../README.md", "ugc/README.md"} {
		for _, link := range found(`\]\(([^)#:]+)\)`, readme(t, path)) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), link)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// exports visits a file's exported names, methods and fields as Type.Name.
func exports(file *ast.File, visit func(name string)) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				recv := d.Recv.List[0].Type
				if star, ok := recv.(*ast.StarExpr); ok {
					recv = star.X
				}
				if id, ok := recv.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			visit(name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						visit(id.Name)
					}
				case *ast.TypeSpec:
					visit(s.Name.Name)
					if st, ok := s.Type.(*ast.StructType); ok {
						for _, field := range st.Fields.List {
							for _, id := range field.Names {
								visit(s.Name.Name + "." + id.Name)
							}
						}
					}
				}
			}
		}
	}
}
