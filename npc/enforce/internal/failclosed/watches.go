package failclosed

import (
	"maps"
	"slices"
	"time"
)

// brokenAfter is how long a watch may be broken before new pods count as unknown.
const brokenAfter = 5 * time.Second

// Watches records which watches are broken. The zero Watches has none.
type Watches struct {
	since map[string]time.Time // kind of objects -> when its watch broke
}

// Set records whether the watch of a kind of objects works, and reports whether that is new.
func (w *Watches) Set(kind string, ok bool, now time.Time) (changed bool) {
	if _, was := w.since[kind]; was == !ok {
		return false
	}
	if w.since == nil {
		w.since = map[string]time.Time{}
	}
	if ok {
		delete(w.since, kind)
	} else {
		w.since[kind] = now
	}
	return true
}

// broken returns which watch has been broken for so long that the fail-closed filter closes, in words; empty if none
// has.
func (w *Watches) broken(now time.Time) string {
	if len(w.since) == 0 {
		return ""
	}
	for _, kind := range slices.Sorted(maps.Keys(w.since)) {
		if !bringsNoPod(kind) && now.Sub(w.since[kind]) >= brokenAfter {
			return "the watch of " + kind + " is broken"
		}
	}
	return ""
}

// bringsNoPod reports whether objects of a kind alone bring no pod that has to be closed.
func bringsNoPod(kind string) bool { return kind == "namespaces" || kind == "nodes" }

func (w *Watches) deadlines() (out []time.Time) {
	for _, since := range w.since {
		out = append(out, since.Add(brokenAfter))
	}
	return out
}
