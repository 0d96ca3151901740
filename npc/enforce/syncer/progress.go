package syncer

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// progressTracker records the current step of each worker, so that messages can name what takes too long. It may be
// used by several goroutines.
type progressTracker struct {
	mu    sync.Mutex // guards the fields below
	steps map[string]step
}

type step struct {
	what  string
	since time.Time
}

// Begin records what a worker does until the returned function is called.
func (t *progressTracker) Begin(worker, what string) (end func()) {
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

// String returns the current steps and their durations. It is empty if there are none.
func (t *progressTracker) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var texts []string
	for _, worker := range slices.Sorted(maps.Keys(t.steps)) {
		s := t.steps[worker]
		texts = append(texts, worker+": "+s.what+" for "+time.Since(s.since).Round(time.Second).String())
	}
	return strings.Join(texts, ", ")
}

// listOf joins names, at most limit of them.
func listOf(names []string, limit int) string {
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}
