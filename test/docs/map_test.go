package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/golden"
)

// contributing is the page with the map of the code.
const contributing = top + "/docs/contributing.md"

// rooms finds the generated part of the map.
var rooms = regexp.MustCompile(`(?s)(<!-- rooms: [^\n]*-->\n).*(<!-- end of rooms -->\n)`)

// isRoom reports whether a package of the product is in the map: none is that is a part of the package above it, whose
// comment names it. What is below these three is not a part of them.
func isRoom(dir string, packages map[string]bool) bool {
	for above := path.Dir(dir); above != "."; above = path.Dir(above) {
		if packages[above] && above != "npc" && above != "npc/enforce" && above != "cmd/weave-npc" {
			return false
		}
	}
	return !strings.HasPrefix(dir, "test/") && !strings.HasPrefix(dir, "prod/")
}

// TestMapHasTheRooms, each with the first sentence of its package comment. With -update it writes them first.
func TestMapHasTheRooms(t *testing.T) {
	files, packages := sources(t), map[string]bool{}
	for _, f := range files {
		packages[path.Dir(f.path)] = true
	}
	slices.SortStableFunc(files, func(a, b goFile) int { return strings.Compare(path.Dir(a.path), path.Dir(b.path)) })
	var table strings.Builder
	table.WriteString("\n| package | what it does |\n|---|---|\n")
	for _, f := range files {
		dir := path.Dir(f.path)
		if f.isTest() || f.Doc == nil || isDirective(f.Doc) || !isRoom(dir, packages) {
			continue
		}
		sentence := new(doc.Package).Synopsis(f.Doc.Text())
		_, does, _ := strings.Cut(strings.SplitN(sentence, " ", 2)[1], " ")
		fmt.Fprintf(&table, "| `%s` | %s |\n", dir, strings.TrimSuffix(does, "."))
	}
	table.WriteString("\n")
	page, err := os.ReadFile(contributing)
	if err != nil {
		t.Fatal(err)
	}
	if !rooms.Match(page) {
		t.Fatalf("%s has no marks around the rooms", contributing)
	}
	golden.Compare(t, contributing, rooms.ReplaceAllString(string(page), "${1}"+table.String()+"${2}"))
}

// TestPictureNamesFolders that there are.
func TestPictureNamesFolders(t *testing.T) {
	picture, err := os.ReadFile(filepath.Join(top, "docs", "architecture.svg"))
	if err != nil {
		t.Fatal(err)
	}
	labels := regexp.MustCompile(`<text class="folder"[^>]*>([^<]+)<`).FindAllStringSubmatch(string(picture), -1)
	for _, label := range labels {
		checkThere(t, label[1])
	}
	if len(labels) < 9 {
		t.Errorf("only %d labels were found", len(labels))
	}
}

// declared returns the names that a file declares: functions, types, and methods as Type.Method.
func (f goFile) declared() map[string]bool {
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of, _, _ := strings.Cut(types.ExprString(d.Recv.List[0].Type), "[")
				name = strings.TrimPrefix(of, "*") + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names[s.Name.Name] = true
				}
			}
		}
	}
	return names
}

// inCode finds the texts between backticks.
var inCode = regexp.MustCompile("`([^`]+)`")

// TestWhatToChangeExists looks for what the table of changes names in code: paths, names of files, and identifiers.
func TestWhatToChangeExists(t *testing.T) {
	page, err := os.ReadFile(contributing)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| to change | look in |\n")
	if !ok {
		t.Fatal("the page has no such table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	bases, names := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		bases[path.Base(f.path)] = true
		for name := range f.declared() {
			names[name] = true
		}
	}
	checked := 0
	for _, m := range inCode.FindAllStringSubmatch(table, -1) {
		named := m[1]
		for _, word := range strings.Fields(named) {
			if rest, isPackage := strings.CutPrefix(word, "./"); isPackage {
				named = rest // go test ./package
			}
		}
		checked++
		_, err := os.Stat(filepath.Join(top, named))
		switch {
		case err == nil || bases[named] || names[named]:
		case strings.HasPrefix(named, "make "), named == "##", named == "explain": // TestTargetsOfMakeAreThere
		default:
			t.Errorf("there is no %s", named)
		}
	}
	if checked < 30 {
		t.Errorf("only %d names were found", checked)
	}
}

// TestWalkthroughNamesWhatExists: the text of each link to a file has functions or types of that file.
func TestWalkthroughNamesWhatExists(t *testing.T) {
	page := filepath.Join(top, "docs", "walkthrough.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]goFile{}
	for _, f := range sources(t) {
		files[f.path] = f
	}
	checked := 0
	link := regexp.MustCompile(`\[([^\]]+)\]\(\.\./([^)]+\.go)\)`)
	for _, link := range link.FindAllStringSubmatch(string(text), -1) {
		f, ok := files[link[2]]
		if !ok {
			t.Errorf("there is no %s", link[2])
			continue
		}
		named := inCode.FindAllStringSubmatch(link[1], -1)
		if len(named) == 0 {
			t.Errorf("the link to %s names nothing of it", link[2])
		}
		for _, n := range named {
			if checked++; !f.declared()[n[1]] {
				t.Errorf("%s has no %s", link[2], n[1])
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d names were found", checked)
	}
}
