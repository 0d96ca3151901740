package labelchange

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/test/labelchange/calls"
)

// program is the package of the program that is traced.
const program = "./test/labelchange/traced"

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles, Deps   []string
}

// source is the code of this repository that the program is made of.
type source struct {
	// packages are by their paths in this repository.
	packages map[string]listed
	// synopses are the first sentences of the functions' doc comments, by the functions' names as the runtime has them,
	// without type parameters.
	synopses map[string]string
	// overlay are the files that replace others -> the latter.
	overlay map[string]string
}

// instrument writes copies of the program's files into a folder, in which each function calls calls.Enter first. What
// belongs to tests stays as it is.
func instrument(top, folder string) (source, error) {
	s := source{packages: map[string]listed{}, synopses: map[string]string{}, overlay: map[string]string{}}
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Deps", program)
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("listing the packages of %s: %w", program, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return s, fmt.Errorf("reading what go list printed: %w", err)
		}
		path, own := strings.CutPrefix(p.ImportPath, calls.Module)
		if !own || strings.HasPrefix(path, "test/") {
			continue
		}
		s.packages[path] = p
		for _, name := range p.GoFiles {
			if err := s.copyFile(path, filepath.Join(p.Dir, name), folder); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// copyFile writes the copy of a file of a package.
func (s *source) copyFile(pkg, path, folder string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	enter := map[int]string{} // offset -> what is inserted there
	body := func(b *ast.BlockStmt) { enter[files.Position(b.Lbrace).Offset+1] = " tracedcalls.Enter(); " }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			s.synopses[pkg+"."+nameOf(n)] = new(doc.Package).Synopsis(n.Doc.Text())
			if n.Body != nil {
				body(n.Body)
			}
		case *ast.FuncLit:
			body(n.Body)
		}
		return true
	})
	if len(enter) == 0 {
		return nil
	}
	enter[files.Position(file.Name.End()).Offset] = "; import tracedcalls \"" + calls.Module + "test/labelchange/calls\""
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(enter))) {
		text = slices.Insert(text, at, []byte(enter[at])...)
	}
	to := filepath.Join(folder, strings.ReplaceAll(pkg, "/", "_")+"_"+filepath.Base(path))
	s.overlay[path] = to
	return os.WriteFile(to, text, 0o600)
}

// nameOf returns the name of a function as the runtime has it after the package, without type parameters.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[")
	if strings.HasPrefix(of, "*") {
		of = "(" + of + ")"
	}
	return of + "." + f.Name.Name
}

// build builds the program from the copies, and returns its path.
func (s *source) build(top, folder string) (string, error) {
	text, err := json.Marshal(map[string]any{"Replace": s.overlay})
	if err != nil {
		return "", err
	}
	overlay, binary := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "traced")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", binary, program)
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return binary, nil
}
