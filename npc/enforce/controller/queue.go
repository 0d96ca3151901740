package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// queuedKind is the kind of a change. Only changes of one kind are carried out together.
type queuedKind uint8

// The kinds. No change has the kind noKind.
const (
	noKind queuedKind = iota
	policyChanges
	podChanges
	kinds
)

// maxWeight is the maximum weight of the changes that Take returns, unless one change alone weighs more.
const maxWeight = 1 << 16

// maxEnds bounds the pending ends of objects of one name that do not follow a beginning. At most one of them is not
// late.
const maxEnds = 4

// queuedChange is a change of an object.
type queuedChange struct {
	Kind queuedKind
	// Key is the object's kind and name. UID identifies one object of that name; empty means any.
	Key string
	UID types.UID
	// Ends reports that the object is gone.
	Ends bool
	// Weight is how much work the event is for the kernel, in set entries.
	Weight int
	Apply  func()
}

// changeQueue holds pending changes, and orders them: kinds alternate, and within a kind the oldest come first. Of each
// object it keeps only those that can still matter. The zero changeQueue is empty.
type changeQueue struct {
	order  [kinds][]string
	events map[string]*waiting
}

// waiting holds the pending events of one object.
type waiting struct {
	since  time.Time
	events []queuedChange
}

// Pending reports whether an event of an object is pending.
func (q *changeQueue) Pending(key string) bool { return q.events[key] != nil }

// Empty reports whether no event is pending.
func (q *changeQueue) Empty() bool { return len(q.events) == 0 }

// Oldest returns the time of the oldest pending event. It is zero if there is none.
func (q *changeQueue) Oldest() time.Time {
	var oldest time.Time
	for _, keys := range q.order {
		if len(keys) == 0 {
			continue
		}
		if at := q.events[keys[0]].since; oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// Put adds an event that arrived at the given time. An object keeps its place in the queue, however often it changes.
func (q *changeQueue) Put(e queuedChange, now time.Time) {
	if q.events == nil {
		q.events = map[string]*waiting{}
	}
	w := q.events[e.Key]
	if w == nil {
		q.order[e.Kind] = append(q.order[e.Kind], e.Key)
		q.events[e.Key] = &waiting{now, []queuedChange{e}}
		return
	}
	last := w.events[len(w.events)-1]
	switch {
	case !e.Ends && last.Ends: // it replaces everything before
		w.events = []queuedChange{e}
	case !e.Ends: // its previous state may matter, for example its predecessor's address
		w.events = []queuedChange{last, e}
	case !last.Ends && (e.UID == "" || e.UID == last.UID):
		w.events = append(w.events, e)
	case w.events[0].Ends: // only applying them shows which one is not late
		w.events = append(w.events[max(0, len(w.events)+1-maxEnds):], e)
	}
}

// Take removes and returns the next events, at most MaxWeight of them, the oldest first. Their kind differs from last,
// if such events are pending.
func (q *changeQueue) Take(last queuedKind) []queuedChange {
	next := policyChanges
	if last == policyChanges {
		next = podChanges
	}
	if len(q.order[next]) == 0 {
		next = policyChanges + podChanges - next
	}
	var out []queuedChange
	weight, taken := 0, 0
	for _, key := range q.order[next] {
		of := 0
		for _, e := range q.events[key].events {
			of += e.Weight
		}
		if weight += of; taken > 0 && weight > maxWeight {
			break
		}
		out = append(out, q.events[key].events...)
		delete(q.events, key)
		taken++
	}
	if q.order[next] = q.order[next][taken:]; len(q.order[next]) == 0 {
		q.order[next] = nil
	}
	return out
}
