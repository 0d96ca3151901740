package recorder

import (
	"sync"
	"time"
)

const (
	// share is the part of a processor that recording may take before it is in haste, and burst how much more at a time.
	// Tenants decide how many rules and groups of staged policies there are.
	share = 0.15
	burst = 300 * time.Millisecond
)

// allowance bounds the time that is spent on something in the long run.
type allowance struct {
	mu    sync.Mutex    // guards the fields below
	spent time.Duration // more than the share, at a time
	at    time.Time
}

// exceeded reports whether too much was spent.
func (a *allowance) exceeded(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spent > 0 {
		a.spent = max(0, a.spent-time.Duration(float64(now.Sub(a.at))*share))
	}
	a.at = now
	return a.spent > burst
}

func (a *allowance) spend(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent += took
}
