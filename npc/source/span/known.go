package span

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// pod is what is known of a pod.
type pod struct {
	uid     types.UID
	version string
}

// Known are the pods that have been passed on. NewKnown returns none. Its methods are called one at a time.
type Known struct {
	pods map[types.NamespacedName]pod
	// met are those that a stream has named which is being compared; nil if none is.
	met map[types.NamespacedName]struct{}
}

// NewKnown returns that no pod has been passed on.
func NewKnown() *Known { return &Known{pods: map[types.NamespacedName]pod{}} }

// Has reports whether an object is a pod that has been passed on.
func (k *Known) Has(object any) bool {
	m, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	_, has := k.pods[nameOf(m)]
	return has
}

// Add records a pod of a list, which is passed on.
func (k *Known) Add(m metav1.Object) {
	k.pods[nameOf(m)] = pod{uid: m.GetUID(), version: m.GetResourceVersion()}
}

// Take records an event of a pod, and returns what of it is to be passed on, if anything: nothing that is known or older.
func (k *Known) Take(e watch.Event) (watch.Event, bool) {
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return watch.Event{}, false
	}
	name := nameOf(m)
	was, has := k.pods[name]
	if e.Type == watch.Deleted {
		delete(k.met, name)
		if !has || m.GetUID() != was.uid && older(m.GetResourceVersion(), was.version) {
			return watch.Event{}, false // it is of a pod that had the name before
		}
		delete(k.pods, name)
		return e, true
	}
	if k.met != nil {
		k.met[name] = struct{}{}
	}
	is := pod{uid: m.GetUID(), version: m.GetResourceVersion()}
	if has && (is == was || older(is.version, was.version)) {
		return watch.Event{}, false
	}
	k.pods[name] = is
	if e.Type = watch.Added; has {
		e.Type = watch.Modified
	}
	return e, true
}

// Begin begins to compare with a stream that names all pods of a span.
func (k *Known) Begin() { k.met = map[types.NamespacedName]struct{}{} }

// End ends that, and returns the deletions of the pods that the stream has not named. Whether they are gone, or have left the span, is not known.
func (k *Known) End() []watch.Event {
	var gone []watch.Event
	for name, p := range k.pods {
		if _, met := k.met[name]; met {
			continue
		}
		delete(k.pods, name)
		gone = append(gone, watch.Event{Type: watch.Deleted, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name, UID: p.uid, ResourceVersion: p.version,
			Annotations: map[string]string{leftKey: "true"}}}})
	}
	k.met = nil
	return gone
}

// Fold is what events of pods amount to. NewFold returns that of none.
type Fold struct {
	pods map[types.NamespacedName]watch.Event
}

// NewFold returns what no event amounts to.
func NewFold() *Fold { return &Fold{pods: map[types.NamespacedName]watch.Event{}} }

// Put adds an event.
func (f *Fold) Put(e watch.Event) {
	m, err := meta.Accessor(e.Object)
	switch {
	case err != nil:
	case e.Type == watch.Deleted:
		delete(f.pods, nameOf(m))
	default:
		f.pods[nameOf(m)] = e
	}
}

// Events returns an event for each pod that is there in the end, in any order.
func (f *Fold) Events() []watch.Event {
	return slices.Collect(maps.Values(f.pods))
}
