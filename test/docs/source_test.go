package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// goFile is a parsed file of Go, by its path from the top.
type goFile struct {
	path string
	set  *token.FileSet
	*ast.File
}

// isTest reports whether only tests are compiled with the file.
func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// at returns the place of a node, for messages.
func (f goFile) at(n ast.Node) string { return f.set.Position(n.Pos()).String() }

// sources returns the files of all modules, in the order of their paths.
func sources(t *testing.T) (all []goFile) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != top):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		all = append(all, goFile{filepath.ToSlash(name), set, parsed})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Fatalf("only %d files of Go were found", len(all))
	}
	return all
}
