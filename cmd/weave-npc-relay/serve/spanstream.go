package serve

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// spanStream is what an agent is told of its span. It is filled by the goroutine that computes spans, and written by another.
type spanStream struct {
	node string
	// first are the pods of the span at the beginning.
	first []any
	// beaten is when the agent was last told that nothing is missing; only the filling goroutine uses it.
	beaten time.Time
	ready  chan struct{} // has room for one: there is something to take

	mu      sync.Mutex
	waiting []*message
	closed  bool
}

func newSpanStream(node string, first []any) *spanStream {
	return &spanStream{node: node, first: first, ready: make(chan struct{}, 1)}
}

// put adds an event; it returns false if too much waits already. What is put after the end is lost, as is what waited then: an agent must not
// be told the one without the other.
func (s *spanStream) put(m *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.waiting) - 1
	switch {
	case s.closed:
		return true
	case last >= 0 && m.typ == watch.Bookmark && s.waiting[last].typ == watch.Bookmark && last > 0:
		s.waiting[last] = m // an agent that reads slowly needs the last alone
		return true
	case last+1 >= backlog:
		return false
	}
	s.waiting = append(s.waiting, m)
	s.wake()
	return true
}

// close ends the stream. What waits is lost.
func (s *spanStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.waiting = true, nil
	s.wake()
}

func (s *spanStream) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take waits for events and returns those that are close together; none at the end.
func (s *spanStream) take(ctx context.Context) []*message {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ready:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(coalescing):
		}
		s.mu.Lock()
		waiting, closed := s.waiting, s.closed
		s.waiting = nil
		s.mu.Unlock()
		if closed || len(waiting) > 0 {
			return waiting
		}
	}
}

// write writes events until the stream ends, or the agent is gone.
func (s *spanStream) write(ctx context.Context, w *writer, f *frames) {
	buffer := make([]byte, 0, largest)
	for _, o := range s.first {
		frame, err := o.(*entry).as(watch.Added, f)
		if err != nil {
			return
		}
		if len(buffer)+len(frame) > largest {
			if _, err := w.Write(buffer); err != nil {
				return
			}
			buffer = buffer[:0]
		}
		buffer = append(buffer, frame...)
	}
	w.observer.Delivered(len(s.first))
	s.first = nil
	for events := s.take(ctx); events != nil; events = s.take(ctx) {
		n := 0
		for _, m := range events {
			frame, err := m.bytes(f)
			if err != nil {
				return
			}
			buffer = append(buffer, frame...)
			if m.typ == watch.Bookmark {
				w.observer.Heartbeat()
			} else {
				n++
			}
		}
		if _, err := w.Write(buffer); err != nil {
			return
		}
		w.Flush()
		w.observer.Delivered(n)
		if buffer = buffer[:0]; cap(buffer) > largest {
			buffer = nil
		}
	}
}
