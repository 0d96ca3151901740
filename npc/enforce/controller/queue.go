package controller

import (
	"cmp"
	"maps"
	"slices"
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
	// Namespace is that whose turn it takes. Pods have none: one may have the address of another that has to end first.
	Namespace string
	// Ends reports that the object is gone.
	Ends bool
	// Weight is how much work the event is for the kernel, in set entries.
	Weight int
	Apply  func()
}

// changeQueue holds pending changes, and orders them: kinds alternate, and within a kind namespaces take turns. Of each
// object it keeps only those that can still matter. The zero changeQueue is empty.
type changeQueue struct {
	lines  [kinds]line
	events map[string]*waiting
}

// line orders the objects of one kind, so that each namespace gets an equal share of the weight, and what a namespace
// has waiting delays others by one object at most (start-time fair queuing).
type line struct {
	keys []string
	// turn is that of the object last taken. next holds the next turns of the namespaces for which it is later.
	turn int
	next map[string]int
}

// waiting holds the pending events of one object.
type waiting struct {
	since  time.Time
	turn   int
	events []queuedChange
}

// Pending reports whether an event of an object is pending.
func (q *changeQueue) Pending(key string) bool { return q.events[key] != nil }

// Empty reports whether no event is pending.
func (q *changeQueue) Empty() bool { return len(q.events) == 0 }

// Oldest returns the time of the oldest pending event. It is zero if there is none.
func (q *changeQueue) Oldest() time.Time {
	var oldest time.Time
	for _, w := range q.events {
		if oldest.IsZero() || w.since.Before(oldest) {
			oldest = w.since
		}
	}
	return oldest
}

// Put adds an event that arrived at the given time. An object keeps its place in the queue, however often it changes.
func (q *changeQueue) Put(e queuedChange, now time.Time) {
	if q.events == nil {
		q.events = map[string]*waiting{}
	}
	turn := q.lines[e.Kind].charge(e)
	w := q.events[e.Key]
	if w == nil {
		q.events[e.Key] = &waiting{now, turn, []queuedChange{e}}
		q.lines[e.Kind].keys = q.insert(q.lines[e.Kind].keys, e.Key)
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

// Passed records an event that had its turn while nothing was pending.
func (q *changeQueue) Passed(e queuedChange) { q.lines[e.Kind].charge(e) }

// insert returns the keys of a line with another one, after those whose turn is not later.
func (q *changeQueue) insert(keys []string, key string) []string {
	i, _ := slices.BinarySearchFunc(keys, q.events[key].turn, func(of string, turn int) int {
		return cmp.Or(cmp.Compare(q.events[of].turn, turn), -1)
	})
	return slices.Insert(keys, i, key)
}

// charge returns the turn of an event, and moves the next one of its namespace behind as much as it weighs.
func (l *line) charge(e queuedChange) (turn int) {
	if l.next == nil {
		l.next = map[string]int{}
	}
	turn = max(l.turn, l.next[e.Namespace])
	l.next[e.Namespace] = turn + e.Weight
	return turn
}

// take removes the first objects of the line, the last of which had the given turn.
func (l *line) take(objects, turn int) {
	if l.keys, l.turn = l.keys[objects:], turn; len(l.keys) == 0 {
		*l = line{}
	}
	maps.DeleteFunc(l.next, func(_ string, next int) bool { return next <= turn })
}

// Take removes and returns the next events, which weigh MaxWeight at most, those first whose turn is first. Their kind
// differs from last, if such events are pending.
func (q *changeQueue) Take(last queuedKind) []queuedChange {
	next := policyChanges
	if last == policyChanges {
		next = podChanges
	}
	if len(q.lines[next].keys) == 0 {
		next = policyChanges + podChanges - next
	}
	var out []queuedChange
	weight, taken, turn := 0, 0, 0
	for _, key := range q.lines[next].keys {
		w := q.events[key]
		for _, e := range w.events {
			weight += e.Weight
		}
		if taken > 0 && weight > maxWeight {
			break
		}
		out = append(out, w.events...)
		delete(q.events, key)
		taken, turn = taken+1, w.turn
	}
	q.lines[next].take(taken, turn)
	return out
}
