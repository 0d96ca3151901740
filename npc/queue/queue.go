// Package queue orders pending changes of objects: kinds alternate, and within a kind the oldest come first. It does not know
// what the changes are.
//
//	q.Put(queue.Event{Kind: queue.Pods, Key: "pod/default/web", Apply: func() { ... }}, now)
//	for _, e := range q.Take(queue.Policies) { // pods, if there are any
//		e.Apply()
//	}
package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of a change. Only changes of one kind are carried out together.
type Kind uint8

// The kinds. No change has the kind None.
const (
	None Kind = iota
	Policies
	Pods
	kinds
)

// MaxWeight is the maximum weight of the changes that Take returns, unless one change alone weighs more.
const MaxWeight = 1 << 16

// maxEnds bounds the pending ends of objects of one name that do not follow a beginning. At most one of them is not late.
const maxEnds = 4

// Event is a change of an object.
type Event struct {
	Kind Kind
	// Key is the object's kind and name. UID identifies one object of that name; empty means any.
	Key string
	UID types.UID
	// Ends reports that the object is gone.
	Ends bool
	// Weight is how much work the event is for the kernel, in set entries.
	Weight int
	Apply  func()
}

// Queue holds pending events. Of each object it keeps only those that can still matter. The zero Queue is empty.
type Queue struct {
	order  [kinds][]string
	events map[string]*waiting
}

// waiting holds the pending events of one object.
type waiting struct {
	since  time.Time
	events []Event
}

// Pending reports whether an event of an object is pending.
func (q *Queue) Pending(key string) bool { return q.events[key] != nil }

// Empty reports whether no event is pending.
func (q *Queue) Empty() bool { return len(q.events) == 0 }

// Oldest returns the time of the oldest pending event. It is zero if there is none.
func (q *Queue) Oldest() time.Time {
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
func (q *Queue) Put(e Event, now time.Time) {
	if q.events == nil {
		q.events = map[string]*waiting{}
	}
	w := q.events[e.Key]
	if w == nil {
		q.order[e.Kind] = append(q.order[e.Kind], e.Key)
		q.events[e.Key] = &waiting{now, []Event{e}}
		return
	}
	last := w.events[len(w.events)-1]
	switch {
	case !e.Ends && last.Ends: // it replaces everything before
		w.events = []Event{e}
	case !e.Ends: // its previous state may matter, for example its predecessor's address
		w.events = []Event{last, e}
	case !last.Ends && (e.UID == "" || e.UID == last.UID):
		w.events = append(w.events, e)
	case w.events[0].Ends: // only applying them shows which one is not late
		w.events = append(w.events[max(0, len(w.events)+1-maxEnds):], e)
	}
}

// Take removes and returns the next events, at most MaxWeight of them, the oldest first. Their kind differs from last, if
// such events are pending.
func (q *Queue) Take(last Kind) []Event {
	next := Policies
	if last == Policies {
		next = Pods
	}
	if len(q.order[next]) == 0 {
		next = Policies + Pods - next
	}
	var out []Event
	weight, taken := 0, 0
	for _, key := range q.order[next] {
		of := 0
		for _, e := range q.events[key].events {
			of += e.Weight
		}
		if weight += of; taken > 0 && weight > MaxWeight {
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
