package span

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// leftKey is the annotation of the deletion of a pod that exists and has left the span.
	leftKey = prefix + "left"
	// leaveAfter is how long such a pod stays at least once the policies have arrived that do not name it, for them to be handled. leaveAtLast is
	// how long it stays at most: nobody tells when it changes.
	leaveAfter  = 500 * time.Millisecond
	leaveAtLast = 5 * time.Second
)

// Leaving are the pods that have left the span. They are deleted when the policies have arrived by which they did: before, what the agent enforces
// would name pods that it does not know any more. NewLeaving returns none.
type Leaving struct {
	pods map[types.NamespacedName]leave
}

type leave struct {
	event watch.Event
	since time.Time
	by    Versions // of the policies and namespaces, at most; nil until that is known
}

// NewLeaving returns that no pod is leaving.
func NewLeaving() *Leaving { return &Leaving{pods: map[types.NamespacedName]leave{}} }

// Keep reports whether an event is that a pod has left the span, and keeps it. Any other one ends that the pod is leaving.
func (l *Leaving) Keep(e watch.Event, now time.Time) bool {
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return false
	}
	delete(l.pods, nameOf(m))
	if e.Type != watch.Deleted || !HasLeft(m) {
		return false
	}
	l.pods[nameOf(m)] = leave{event: e, since: now}
	return true
}

// Due returns the deletions of the pods that may go, as all arrived of the other kinds up to some versions. upTo is how far the relay is, with
// which all have left that have been kept.
func (l *Leaving) Due(arrived, upTo Versions, now time.Time) []watch.Event {
	var due []watch.Event
	for name, p := range l.pods {
		if p.by == nil {
			p.by = upTo
			l.pods[name] = p
		}
		stayed := now.Sub(p.since)
		if stayed >= leaveAtLast || stayed >= leaveAfter && arrived.Covers(p.by) {
			due = append(due, p.event)
			delete(l.pods, name)
		}
	}
	return due
}

// HasLeft reports whether a pod that is deleted may well be there: it has left the span.
func HasLeft(m metav1.Object) bool { return m.GetAnnotations()[leftKey] != "" }

func nameOf(m metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
}
