package docs

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// guards is what the comment after a mutex says: the fields that it guards, and after them what else there is to know.
var guards = regexp.MustCompile(`^guards (the fields below|\w+(?:, \w+)*?)(?:$|[;:] |, (?:and|except) )`)

// TestMutexesSayWhatTheyGuard in a comment on their line: the fields of the struct by their names, or those below up to
// the next empty line.
func TestMutexesSayWhatTheyGuard(t *testing.T) {
	found := 0
	for _, f := range sources(t) {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok {
				found += f.checkMutexes(t, s.Fields.List)
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("only %d mutexes were found", found)
	}
}

// checkMutexes checks those among the fields of a struct, and returns how many there are.
func (f goFile) checkMutexes(t *testing.T, fields []*ast.Field) (found int) {
	names := map[string]bool{}
	for _, field := range fields {
		for _, name := range field.Names {
			names[name.Name] = true
		}
	}
	line := func(n ast.Node) int { return f.set.Position(n.Pos()).Line }
	for i, field := range fields {
		of, ok := field.Type.(*ast.SelectorExpr)
		if !ok || of.Sel.Name != "Mutex" && of.Sel.Name != "RWMutex" {
			continue
		}
		found++
		said := guards.FindStringSubmatch(strings.TrimSpace(strings.ReplaceAll(field.Comment.Text(), "\n", " ")))
		switch {
		case said == nil:
			t.Errorf("%s: a mutex needs a comment: // guards x, y or // guards the fields below", f.at(field))
		case said[1] == "the fields below":
			if i+1 == len(fields) || line(fields[i+1])-line(field) > 1 && fields[i+1].Doc == nil {
				t.Errorf("%s: no field is below the mutex", f.at(field))
			}
		default:
			for _, name := range strings.Split(said[1], ", ") {
				if !names[name] {
					t.Errorf("%s: the struct has no field %s", f.at(field), name)
				}
			}
		}
	}
	return found
}
