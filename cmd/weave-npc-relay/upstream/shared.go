package upstream

import (
	"context"
	"sync"

	"github.com/pkg/errors"
)

// shared asks a question once for all who wait for an answer that is not older than their call.
type shared struct {
	ask func() (uint64, error)

	mu   sync.Mutex // guards the fields below
	next *answer    // to a question that has not been asked yet
	busy bool       // one is being asked
}

type answer struct {
	done    chan struct{}
	version uint64
	err     error
}

func (s *shared) get(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = &answer{done: make(chan struct{})}
	}
	mine := s.next
	if !s.busy {
		s.busy = true
		go s.run()
	}
	s.mu.Unlock()
	select {
	case <-mine.done:
		return mine.version, mine.err
	case <-ctx.Done():
		return 0, errors.Wrap(ctx.Err(), "waiting for the version of the API server")
	}
}

// run asks as long as a caller waits.
func (s *shared) run() {
	for {
		s.mu.Lock()
		a := s.next
		s.next = nil
		if a == nil {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		a.version, a.err = s.ask()
		close(a.done)
	}
}
