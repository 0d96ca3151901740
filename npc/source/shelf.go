package source

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// shelf holds the objects of one kind that are in force. Objects on the shelf are never changed; a changed one is put
// in its place. It is used by one goroutine.
type shelf struct {
	version uint64
	objects map[string]shelved // namespace/name -> what is in force
	// updates are the differences that the sink has not been told, removals last.
	updates []update
}

// shelved is an object as it was given and as it is presented, with a resource version.
type shelved struct {
	given     runtime.Object
	presented runtime.Object
}

// update is one difference: a new or changed object, or one that is gone.
type update struct {
	key     string
	object  runtime.Object
	removed bool
}

func newShelf() *shelf { return &shelf{objects: map[string]shelved{}} }

// change counts what a replacement did.
type change struct{ added, changed, removed int }

// replace makes objects all that is on the shelf and records the real differences. An object without a creation time
// keeps the one that it had, and gets that of created if it is new.
func (s *shelf) replace(objects map[string]runtime.Object, created func(key string) metav1.Time) change {
	var c change
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		given := objects[key]
		old, existed := s.objects[key]
		if existed && old.given == given {
			continue
		}
		presented := copied(given)
		m := presented.(metav1.Object)
		if existed {
			was := old.presented.(metav1.Object)
			m.SetResourceVersion(was.GetResourceVersion())
			if m.GetCreationTimestamp().Time.IsZero() {
				m.SetCreationTimestamp(was.GetCreationTimestamp())
			}
			if equality.Semantic.DeepEqual(presented, old.presented) {
				s.objects[key] = shelved{given: given, presented: old.presented}
				continue
			}
			c.changed++
		} else {
			if m.GetCreationTimestamp().Time.IsZero() {
				m.SetCreationTimestamp(created(key))
			}
			c.added++
		}
		s.version++
		m.SetResourceVersion(strconv.FormatUint(s.version, 10))
		s.objects[key] = shelved{given: given, presented: presented}
		s.updates = append(s.updates, update{key: key, object: presented})
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if _, ok := objects[key]; !ok {
			s.updates = append(s.updates, update{key: key, object: s.objects[key].presented, removed: true})
			delete(s.objects, key)
			c.removed++
		}
	}
	return c
}

// take returns the updates since the last call.
func (s *shelf) take() []update {
	updates := s.updates
	s.updates = nil
	return updates
}

// copied returns a copy whose metadata can be set. It shares maps and slices, which nobody changes.
func copied(object runtime.Object) runtime.Object {
	switch o := object.(type) {
	case *corev1.Namespace:
		c := *o
		return &c
	case *corev1.Pod:
		c := *o
		return &c
	case *networkingv1.NetworkPolicy:
		c := *o
		return &c
	}
	return object.DeepCopyObject()
}

// sorted returns the objects in the order of their namespaces and names.
func (s *shelf) sorted() []runtime.Object {
	var objects []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		objects = append(objects, s.objects[key].presented)
	}
	return objects
}
