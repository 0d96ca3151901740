package directory

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// objectStore holds the objects of one kind. Objects in it are never changed; a changed one is put in the place of the
// old.
type objectStore struct {
	version uint64
	objects map[string]stored // by key
	updates []Update          // that have not been taken, removals last
}

// stored is an object as a file has it, and as it is presented, with a resource version.
type stored struct {
	given     runtime.Object
	presented runtime.Object
}

// Update is one difference: a new or changed object, or one that was removed.
type Update struct {
	Key     string
	Object  runtime.Object
	Removed bool
}

// UpdateCounts counts differences.
type UpdateCounts struct{ Added, Changed, Removed int }

// entry is an object and the file that it is from.
type entry struct {
	object   runtime.Object
	path     string
	line     int
	modified metav1.Time // when the file was written
}

// replace replaces all objects and records the real differences. An object without a creation time keeps the one that
// it had; a new one was created when its file was written.
func (s *objectStore) replace(objects map[string]entry) UpdateCounts {
	var c UpdateCounts
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		switch s.set(key, objects[key]) {
		case added:
			c.Added++
		case changed:
			c.Changed++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if _, ok := objects[key]; !ok {
			s.updates = append(s.updates, Update{Key: key, Object: s.objects[key].presented, Removed: true})
			delete(s.objects, key)
			c.Removed++
		}
	}
	return c
}

// outcome is what setting an object did.
type outcome int

const (
	unchanged outcome = iota
	added
	changed
)

func (s *objectStore) set(key string, e entry) outcome {
	old, existed := s.objects[key]
	if existed && old.given == e.object {
		return unchanged
	}
	result := added
	presented := copied(e.object)
	m := presented.(metav1.Object)
	created := e.modified
	if existed {
		result = changed
		was := old.presented.(metav1.Object)
		created = was.GetCreationTimestamp()
		m.SetResourceVersion(was.GetResourceVersion())
	}
	if given := m.GetCreationTimestamp(); given.IsZero() {
		m.SetCreationTimestamp(created)
	}
	if existed && equality.Semantic.DeepEqual(presented, old.presented) {
		s.objects[key] = stored{given: e.object, presented: old.presented}
		return unchanged
	}
	s.version++
	m.SetResourceVersion(strconv.FormatUint(s.version, 10))
	s.objects[key] = stored{given: e.object, presented: presented}
	s.updates = append(s.updates, Update{Key: key, Object: presented})
	return result
}

// take returns the updates since the last call.
func (s *objectStore) take() []Update {
	updates := s.updates
	s.updates = nil
	return updates
}

// copied returns a copy of an object whose metadata can be set. Both share maps and slices, which are never changed.
func copied(object runtime.Object) runtime.Object {
	switch o := object.(type) {
	case *corev1.Namespace:
		c := *o
		return &c
	case *corev1.Pod:
		c := *o
		return &c
	case *corev1.Node:
		c := *o
		return &c
	case *networkingv1.NetworkPolicy:
		c := *o
		return &c
	case *v1alpha2.ClusterNetworkPolicy:
		c := *o
		return &c
	case *manifest.Workload:
		c := *o
		return &c
	}
	return object.DeepCopyObject()
}

// sorted returns the objects in the order of their namespaces and names.
func (s *objectStore) sorted() []runtime.Object {
	var objects []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		objects = append(objects, s.objects[key].presented)
	}
	return objects
}
