package syncer

import (
	"math/rand/v2"
	"time"
)

// backoff spaces out retries: each waits twice as long as the one before, less up to a half by chance.
type backoff struct {
	first, last time.Duration
	// wait is how long the present wait is at most; zero if nothing failed.
	wait time.Duration
	// at is when the next try is due.
	at time.Time
}

func (b *backoff) failed(now time.Time) {
	b.wait = min(max(2*b.wait, b.first), b.last)
	b.at = now.Add(b.wait/2 + rand.N(b.wait/2))
}

func (b *backoff) reset() { b.wait, b.at = 0, time.Time{} }

func (b *backoff) due(now time.Time) bool { return !now.Before(b.at) }
