// Package queue holds changes of objects that wait for their turn, and says which are next: kinds alternate, and of each kind the oldest
// come first.
package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind divides changes into those that may be carried out together.
type Kind uint8

// The kinds. None is that of no change.
const (
	None Kind = iota
	Policies
	Pods
	kinds
)

// MaxWeight is the weight of the changes that are taken at once, unless one alone weighs more.
const MaxWeight = 1 << 16

// maxEnds is how many ends of objects of one name wait, if none of them came after a beginning. At most one of them is not late.
const maxEnds = 4

// Event is a change of an object.
type Event struct {
	Kind Kind
	// Key is the object's kind and name, UID tells which of that name; empty: whichever there is.
	Key string
	UID types.UID
	// Ends reports that the object is gone.
	Ends bool
	// Weight is how much work the event is for the kernel, in set entries.
	Weight int
	Apply  func()
}

// Queue holds waiting events: of each object no more than can still matter. The zero Queue is empty.
type Queue struct {
	order  [kinds][]string
	events map[string]*waiting
}

// waiting are the events of one object.
type waiting struct {
	since  time.Time
	events []Event
}

// Empty reports whether no event waits.
func (q *Queue) Empty() bool { return len(q.events) == 0 }

// Len returns how many objects have waiting events.
func (q *Queue) Len() int { return len(q.events) }

// Oldest returns when the first of the waiting events came; zero if there is none.
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

// Put adds an event that came at the given time. An object keeps its place in the queue, however often it changes.
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
	case !e.Ends && last.Ends: // it takes the place of whatever came before
		w.events = []Event{e}
	case !e.Ends: // what it was before may matter, such as that its predecessor's address was its own
		w.events = []Event{last, e}
	case !last.Ends && (e.UID == "" || e.UID == last.UID):
		w.events = append(w.events, e)
	case w.events[0].Ends: // which of them is not late is known only when they are applied
		w.events = append(w.events[max(0, len(w.events)+1-maxEnds):], e)
	}
}

// Take removes the next events and returns them: those of another kind than the last ones were, if any wait; the oldest first, and no more
// than MaxWeight at once.
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
