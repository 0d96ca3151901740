package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/source/internal/directory"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Unused are the objects of one kind in a manifest that are not used and may be intended to be.
type Unused struct {
	Path string
	// Kind is the version and the kind of the objects, whose first one is on the line.
	Kind string
	manifest.Ignored
}

// String returns the objects, and why they may be intended to be used.
func (u Unused) String() string {
	return spelling.Escape(fmt.Sprintf("%s:%d: %s", u.Path, u.Line, u.Message()))
}

// Message returns the same without the place.
func (u Unused) Message() string {
	return fmt.Sprintf("%s (%s) is not used: %s", u.Kind, spelling.Count(u.Count, "object"), u.Doubt)
}

// unusedOf returns what is not used of files, and notes about kinds that Kubernetes itself does not have. Those kinds
// may make pods.
func unusedOf(files []directory.File) (unused []Unused, notes []string) {
	foreign := map[string]bool{}
	var order, templates []string
	for _, f := range files {
		byLine := func(a, b string) int {
			return cmp.Or(cmp.Compare(f.Ignored[a].Line, f.Ignored[b].Line), strings.Compare(a, b))
		}
		for _, kind := range slices.SortedFunc(maps.Keys(f.Ignored), byLine) {
			ignored := f.Ignored[kind]
			switch {
			case ignored.Doubt != "":
				unused = append(unused, Unused{f.Path, kind, ignored})
			case kind == manifest.Template:
				templates = append(templates, f.Path)
			case isForeign(kind):
				if !foreign[kind] {
					order = append(order, fmt.Sprintf("%s (%s:%d)", kind, f.Path, ignored.Line))
				}
				foreign[kind] = true
			}
		}
	}
	if len(order) > 0 {
		notes = append(notes, spelling.Escape("not used, nor pods that it makes: "+spelling.Some(order)))
	}
	if len(templates) > 0 {
		notes = append(notes, spelling.Escape("templates of Helm are not used, but what `helm template` prints is: "+
			spelling.Some(templates)))
	}
	return unused, notes
}

// isForeign reports whether neither Kubernetes nor weave-npc itself has a kind.
func isForeign(kind string) bool {
	version, _, _ := strings.Cut(kind, " ")
	group, _, _ := strings.Cut(version, "/")
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}
