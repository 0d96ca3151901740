package serve

import "time"

// coalescing is the time between two bursts: a write takes far more time than an event, so that those that are close
// together share one.
const coalescing = 5 * time.Millisecond

// pace decides when gathered events are handed on: the first after a pause at once, those that follow together.
type pace struct {
	timer *time.Timer
	next  time.Time // not before
}

func newPace() *pace {
	p := &pace{timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}

// now reports whether what has been gathered is to be handed on at once. If not, it will be when the timer fires.
func (p *pace) now() bool {
	left := time.Until(p.next)
	if left <= 0 {
		return true
	}
	p.timer.Reset(left)
	return false
}

// handed notes that everything gathered has been handed on.
func (p *pace) handed() {
	p.timer.Stop()
	p.next = time.Now().Add(coalescing)
}
