package npc

import "k8s.io/apimachinery/pkg/types"

// queue holds changes that wait, by kind and object: of each object no more than can still matter.
type queue struct {
	order   [podEvents + 1][]string
	changes map[string][]event
}

// event is what happened to an object.
type event struct {
	// key is the object's kind and name, uid tells which of that name; empty: whichever there is.
	key string
	uid types.UID
	// ends says that the object is gone.
	ends  bool
	apply func()
}

// maxEnds is how many ends of objects of one name wait, if none of them came after a beginning. At most one of them is not late.
const maxEnds = 4

func (q *queue) empty() bool { return len(q.changes) == 0 }

func (q *queue) put(kind eventKind, e event) {
	if q.changes == nil {
		q.changes = map[string][]event{}
	}
	waiting := q.changes[e.key]
	if len(waiting) == 0 {
		q.order[kind] = append(q.order[kind], e.key)
		q.changes[e.key] = []event{e}
		return
	}
	last := waiting[len(waiting)-1]
	switch {
	case !e.ends && last.ends: // it takes the place of whatever came before
		q.changes[e.key] = []event{e}
	case !e.ends: // what it was before may matter, such as that its predecessor's address was its own
		q.changes[e.key] = []event{last, e}
	case !last.ends && (e.uid == "" || e.uid == last.uid):
		q.changes[e.key] = append(waiting, e)
	case waiting[0].ends: // which of them is not late, the model knows
		q.changes[e.key] = append(waiting[max(0, len(waiting)+1-maxEnds):], e)
	}
}

// take returns the waiting changes of one kind, policies first.
func (q *queue) take() (eventKind, []event) {
	for kind, keys := range q.order {
		if len(keys) == 0 {
			continue
		}
		var out []event
		for _, key := range keys {
			out = append(out, q.changes[key]...)
			delete(q.changes, key)
		}
		q.order[kind] = nil
		return eventKind(kind), out
	}
	return noEvents, nil
}
