package relayclient

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// logEvery is the time between two lines of the log about moves.
const logEvery = 10 * time.Second

// agent is what the followers of all kinds share.
type agent struct {
	replicas *replicas
	spread   time.Duration // over which agents spread what they do at once
	log      *slog.Logger
	stats    Stats

	mu     sync.Mutex // guards the fields below
	logged time.Time
}

// logMove logs that a kind is followed elsewhere. Usually all kinds of an agent move together, and there may be many
// agents: the move is logged once.
func (a *agent) logMove(kind, replica string, why error) {
	a.mu.Lock()
	level := slog.LevelDebug
	if time.Since(a.logged) >= logEvery {
		level, a.logged = slog.LevelInfo, time.Now()
	}
	a.mu.Unlock()
	args := []any{"kind", kind}
	if why != nil {
		args = append(args, "because", why)
	}
	if replica == "" {
		a.log.Log(context.Background(), level, "the API server is followed, not the relay", args...)
		return
	}
	a.log.Log(context.Background(), level, "the relay is followed", append(args, "replica", replica)...)
}

// random returns a random duration below d.
func random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d) //nolint:gosec // it need not be secret
}

// pause waits, unless the context ends before.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Stats counts what agents do at the relay, and at the API server instead of it.
type Stats struct {
	Relay, API Place
}

// Place counts what was done at one of the two.
type Place struct {
	// Watches is the number of watches that are open.
	Watches atomic.Int64
	// Moves counts watches that went on here after they were elsewhere, Lists whatever was listed, also as a stream.
	Moves, Lists atomic.Uint64
}

// of returns the counters of a replica, or those of the API server for none.
func (s *Stats) of(replica string) *Place {
	if replica == "" {
		return &s.API
	}
	return &s.Relay
}
