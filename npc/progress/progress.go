// Package progress remembers what is being done and since when, so that what takes too long can be named.
package progress

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tracker holds what is being done, at most one thing by each worker. It may be used by several goroutines.
type Tracker struct {
	mu    sync.Mutex
	steps map[string]step
}

type step struct {
	what  string
	since time.Time
}

// Begin notes what a worker does from now on, until the function that it returns is called.
func (t *Tracker) Begin(worker, what string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil {
		t.steps = map[string]step{}
	}
	t.steps[worker] = step{what, time.Now()}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.steps, worker)
	}
}

// String returns what is being done, and for how long; empty if nothing is.
func (t *Tracker) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var texts []string
	for _, worker := range slices.Sorted(maps.Keys(t.steps)) {
		s := t.steps[worker]
		texts = append(texts, worker+": "+s.what+" for "+time.Since(s.since).Round(time.Second).String())
	}
	return strings.Join(texts, ", ")
}

// List joins names, of which it gives no more than limit.
func List(names []string, limit int) string {
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}
