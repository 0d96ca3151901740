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

const (
	// After repairsAtOnce repairs within repairsWithin, the next one waits for repairPause: another process undoes
	// them.
	repairsAtOnce = 5
	repairsWithin = time.Minute
	repairPause   = 10 * time.Second
)

// contention slows repairs down while another process undoes them again and again.
type contention struct {
	repairs []time.Time
	// drift is what was last found while repairs are undone; empty if they are not.
	drift string
}

// repaired records that drift is repaired now, and reports whether contention begins with it.
func (c *contention) repaired(drift string, now time.Time) (begins bool) {
	c.repairs = append(c.repairs, now)
	if len(c.repairs) < repairsAtOnce {
		return false
	}
	begins = c.drift == ""
	c.drift = drift
	return begins
}

// over reports whether contention has ended since the last call.
func (c *contention) over(now time.Time) bool {
	for len(c.repairs) > 0 && now.Sub(c.repairs[0]) > repairsWithin {
		c.repairs = c.repairs[1:]
	}
	if c.drift == "" || len(c.repairs) >= repairsAtOnce { // a repair every repairPause keeps it up
		return false
	}
	c.drift = ""
	return true
}

// pauses reports whether the next repair has to wait.
func (c *contention) pauses(now time.Time) bool {
	n := len(c.repairs)
	return n >= repairsAtOnce && now.Sub(c.repairs[n-1]) < repairPause
}
