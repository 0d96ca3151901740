package main

import (
	"sync"
	"time"
)

// latest answers with the result of a function that may take long because it waits for locks. One call of it runs at a
// time, however many ask.
type latest[T any] struct {
	compute func() T
	// fresh is how long a result counts, and patience how long a newer one is waited for.
	fresh, patience time.Duration

	mu      sync.Mutex
	value   T
	at      time.Time     // when value was known; zero if there is none
	running chan struct{} // closed when the call under way ends; nil if there is none
}

// get returns a result, and when it was known: the time is zero if no call has ever ended.
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
		case <-time.After(l.patience):
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
