package docs

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestPackagesHaveOneComment in the file where a reader looks for it.
func TestPackagesHaveOneComment(t *testing.T) {
	packages := map[string][]goFile{}
	for _, f := range sources(t) {
		packages[path.Dir(f.path)] = append(packages[path.Dir(f.path)], f)
	}
	for dir, files := range packages {
		code := slices.DeleteFunc(slices.Clone(files), goFile.isTest)
		var documented []string
		for _, f := range files {
			if len(f.Comments) > 0 && f.Comments[0].Pos() < f.Package && f.Doc != f.Comments[0] && !isDirective(f.Comments[0]) {
				t.Errorf("%s: a comment before the package clause is neither the package's nor anything else's", f.path)
			}
			if f.Doc == nil || isDirective(f.Doc) {
				continue
			}
			documented = append(documented, path.Base(f.path))
			first := "Package " + f.Name.Name + " "
			if f.Name.Name == "main" {
				first = "Command " + path.Base(dir) + " "
			}
			if !strings.HasPrefix(f.Doc.Text(), first) {
				t.Errorf("%s: the package comment does not begin with %q", f.path, first)
			}
		}
		if len(documented) != 1 {
			t.Errorf("%s has %d package comments instead of one: %v", dir, len(documented), documented)
			continue
		}
		places := []string{"doc.go", "main.go", path.Base(dir) + ".go", files[0].Name.Name + ".go"}
		if len(code) > 1 && !slices.Contains(places, documented[0]) {
			t.Errorf("%s: the package comment is in %s instead of one of %v", dir, documented[0], places)
		}
	}
}

// isDirective reports whether a comment is for the compiler.
func isDirective(c *ast.CommentGroup) bool { return strings.HasPrefix(c.List[0].Text, "//go:") }

// TestCommentsBeginWithNames of what they describe, as godoc shows them.
func TestCommentsBeginWithNames(t *testing.T) {
	for _, f := range sources(t) {
		if f.isTest() {
			continue
		}
		check := func(name *ast.Ident, doc *ast.CommentGroup) {
			if text := strings.Fields(doc.Text()); len(text) > 0 && text[0] != name.Name {
				t.Errorf("%s: the comment of %s begins with %s", f.at(name), name.Name, text[0])
			}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Name, d.Doc)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						check(s.Name, s.Doc)
						if d.Lparen == token.NoPos {
							check(s.Name, d.Doc)
						}
					}
				}
			}
		}
	}
}
