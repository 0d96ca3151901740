package httpserver

import (
	"sync"
	"time"
)

// latest caches the result of a function that may block on locks. One call of the function runs at a time, however many
// callers wait.
type latest[T any] struct {
	compute func() T
	// A result counts as current for fresh; callers wait for a newer one at most for timeout.
	fresh, timeout time.Duration

	mu      sync.Mutex // guards the fields below
	value   T
	at      time.Time     // when value was computed; zero if there is none
	running chan struct{} // closed when the current call ends; nil if none runs
}

// get returns the last result and when it was computed. The time is zero if no call has ended yet.
func (l *latest[T]) get() (T, time.Time) {
	l.mu.Lock()
	if l.running == nil && (l.at.IsZero() || time.Since(l.at) >= l.fresh) {
		l.running = make(chan struct{})
		go l.run(l.running)
	}
	running := l.running
	l.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-time.After(l.timeout):
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.at
}

func (l *latest[T]) run(done chan struct{}) {
	value := l.compute()
	l.mu.Lock()
	l.value, l.at, l.running = value, time.Now(), nil
	l.mu.Unlock()
	close(done)
}
