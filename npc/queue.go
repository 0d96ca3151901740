package npc

// queue holds changes that wait, by kind. Of the changes to one object the last two stand for all:
// the last may be the end of the object that the one before it made.
type queue struct {
	order   [podEvents + 1][]string
	changes map[string][]func()
}

func (q *queue) empty() bool { return len(q.changes) == 0 }

func (q *queue) put(kind eventKind, key string, apply func()) {
	if q.changes == nil {
		q.changes = map[string][]func(){}
	}
	waiting := q.changes[key]
	if len(waiting) == 0 {
		q.order[kind] = append(q.order[kind], key)
	}
	q.changes[key] = append(waiting[max(0, len(waiting)-1):], apply)
}

// take returns the waiting changes of one kind, policies first.
func (q *queue) take() (eventKind, []func()) {
	for kind, keys := range q.order {
		if len(keys) == 0 {
			continue
		}
		var out []func()
		for _, key := range keys {
			out = append(out, q.changes[key]...)
			delete(q.changes, key)
		}
		q.order[kind] = nil
		return eventKind(kind), out
	}
	return noEvents, nil
}
