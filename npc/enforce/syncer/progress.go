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
	moved time.Time // when a step began or ended last
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
	t.moved = time.Now()
	t.steps[worker] = step{what, t.moved}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.steps, worker)
		t.moved = time.Now()
	}
}

// Move records that something was done.
func (t *progressTracker) Move() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved = time.Now()
}

// Idle returns how long ago a step began or ended, or something else was done.
func (t *progressTracker) Idle() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moved.IsZero() {
		return 0
	}
	return time.Since(t.moved)
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

// after returns a text with the current steps, if there are any.
func (t *progressTracker) after(text string) string {
	if doing := t.String(); doing != "" {
		return text + "; " + doing
	}
	return text
}

// listOf joins names, at most limit of them.
func listOf(names []string, limit int) string {
	if len(names) > limit {
		return strings.Join(names[:limit], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}
