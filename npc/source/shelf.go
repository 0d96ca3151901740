package source

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// shelf holds the objects of one kind and lets one client list and watch them as an API server would. Objects on the
// shelf are never changed; a changed one is put in its place.
type shelf struct {
	mu      sync.Mutex
	version uint64
	objects map[string]shelved        // namespace/name -> what is in force
	told    map[string]runtime.Object // namespace/name -> what the client has last heard
	changed chan struct{}             // closed by the next change
}

// shelved is an object as it was given and as it is presented, with a resource version.
type shelved struct {
	given     runtime.Object
	presented runtime.Object
	version   uint64
}

func newShelf() *shelf {
	return &shelf{objects: map[string]shelved{}, told: map[string]runtime.Object{}, changed: make(chan struct{})}
}

// change counts what a replacement did.
type change struct{ added, changed, removed int }

// replace makes objects all that is on the shelf. Only real differences become events. An object without a creation
// time keeps the one that it had, and gets that of created if it is new.
func (s *shelf) replace(objects map[string]runtime.Object, created func(key string) metav1.Time) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c change
	for key := range s.objects {
		if _, ok := objects[key]; !ok {
			delete(s.objects, key)
			s.version++
			c.removed++
		}
	}
	for key, given := range objects {
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
				s.objects[key] = shelved{given: given, presented: old.presented, version: old.version}
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
		s.objects[key] = shelved{given: given, presented: presented, version: s.version}
	}
	if c != (change{}) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return c
}

// listWatcher presents the shelf.
func (s *shelf) listWatcher() listWatcher {
	return listWatcher{list: s.list, watch: s.watch}
}

func (s *shelf) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(s.version, 10)}}
	clear(s.told)
	for key, o := range s.objects {
		list.Items = append(list.Items, runtime.RawExtension{Object: o.presented})
		s.told[key] = o.presented
	}
	return list, nil
}

// watch returns a watch that tells what the client has not heard, whatever version it asks for.
func (s *shelf) watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		for {
			news, changed := s.news()
			for _, n := range news {
				select {
				case events <- n.event:
					s.heard(n)
				case <-w.StopChan():
					return
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-changed:
			case <-w.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// news is one event that the client has not heard.
type news struct {
	key     string
	version uint64
	event   watch.Event
}

// news returns what the client has not heard, oldest first, and a channel that the next change closes.
func (s *shelf) news() ([]news, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unheard []news
	for key, object := range s.told {
		if _, ok := s.objects[key]; !ok {
			gone := copied(object)
			gone.(metav1.Object).SetResourceVersion(strconv.FormatUint(s.version, 10))
			unheard = append(unheard, news{key, s.version, watch.Event{Type: watch.Deleted, Object: gone}})
		}
	}
	for key, o := range s.objects {
		if heard, ok := s.told[key]; !ok {
			unheard = append(unheard, news{key, o.version, watch.Event{Type: watch.Added, Object: o.presented}})
		} else if heard != o.presented {
			unheard = append(unheard, news{key, o.version, watch.Event{Type: watch.Modified, Object: o.presented}})
		}
	}
	slices.SortFunc(unheard, func(a, b news) int { return cmp.Compare(a.version, b.version) })
	return unheard, s.changed
}

func (s *shelf) heard(n news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.event.Type == watch.Deleted {
		delete(s.told, n.key)
	} else {
		s.told[n.key] = n.event.Object
	}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		objects = append(objects, s.objects[key].presented)
	}
	return objects
}

// noStreamingLists tells client-go that a shelf lists, and does not stream its lists.
type noStreamingLists struct{}

func (noStreamingLists) IsWatchListSemanticsUnSupported() bool { return true }
