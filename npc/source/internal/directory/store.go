package directory

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Store holds the objects in force. It is used by one goroutine.
type Store struct {
	kinds map[string]*objectStore // by kind
}

// kinds returns the kinds of objects, in the order of the counts of their changes.
func kinds() []string {
	return append(manifest.WorkloadKinds(), manifest.KindNamespace, manifest.KindPod, manifest.KindNode,
		manifest.KindNetworkPolicy, manifest.KindClusterNetworkPolicy)
}

// New returns a store without objects.
func New() *Store {
	s := &Store{kinds: map[string]*objectStore{}}
	for _, kind := range kinds() {
		s.kinds[kind] = &objectStore{objects: map[string]stored{}}
	}
	return s
}

// Merged is the outcome of merging files.
type Merged struct {
	// Problems are objects that several files have.
	Problems []manifest.Problem
	// Nodes are the names of Nodes.
	Nodes map[string]bool
	// Ignored counts objects of kinds that are not used.
	Ignored map[string]int
	// Changes counts the differences from the objects before.
	Changes UpdateCounts
}

// Replace replaces all objects by those of files, which are in the order of their paths. Of objects with the same kind
// and name, the first counts. A namespace that only other objects name is added.
func (s *Store) Replace(files []File) Merged {
	m := merger{
		Merged:  Merged{Nodes: map[string]bool{}, Ignored: map[string]int{}},
		objects: map[string]map[string]entry{},
		implied: map[string]metav1.Time{},
	}
	for _, kind := range kinds() {
		m.objects[kind] = map[string]entry{}
	}
	for _, f := range files {
		m.add(f)
	}
	m.addImpliedNamespaces()
	for _, kind := range kinds() {
		c := s.kinds[kind].replace(m.objects[kind])
		m.Changes.Added += c.Added
		m.Changes.Changed += c.Changed
		m.Changes.Removed += c.Removed
	}
	return m.Merged
}

// Take returns the updates of each kind since the last call.
func (s *Store) Take() map[string][]Update {
	updates := map[string][]Update{}
	for kind, o := range s.kinds {
		updates[kind] = o.take()
	}
	return updates
}

// Objects returns the objects of a kind in the order of their namespaces and names.
func (s *Store) Objects(kind string) []runtime.Object { return s.kinds[kind].sorted() }

// merger merges files, one after another.
type merger struct {
	Merged
	objects map[string]map[string]entry // kind -> key -> object
	implied map[string]metav1.Time      // namespace of an object -> when the file was written
}

func (m *merger) add(f File) {
	for kind, ignored := range f.Ignored {
		m.Ignored[kind] += ignored.Count
	}
	for _, o := range f.Objects {
		key := npc.ObjectKey(o.Namespace, o.Name)
		if first, ok := m.objects[o.Kind][key]; ok {
			m.Problems = append(m.Problems, manifest.Problem{Path: f.Path, Line: o.Line, Text: fmt.Sprintf(
				"%s: is already in %s:%d, which counts", o, first.path, first.line)})
			continue
		}
		if o.Kind == manifest.KindNode {
			m.Nodes[o.Name] = true
		}
		m.objects[o.Kind][key] = entry{object: o.Value, path: f.Path, line: o.Line, modified: f.Modified}
		if _, ok := m.implied[o.Namespace]; o.Namespace != "" && !ok {
			m.implied[o.Namespace] = f.Modified
		}
	}
}

func (m *merger) addImpliedNamespaces() {
	namespaces := m.objects[manifest.KindNamespace]
	for name, modified := range m.implied {
		key := npc.ObjectKey("", name)
		if _, ok := namespaces[key]; !ok {
			namespaces[key] = entry{object: manifest.ImpliedNamespace(name), modified: modified}
		}
	}
}
