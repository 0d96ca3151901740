package serve

import "sync"

// backlog is how many events may wait for an agent that reads slowly.
const backlog = 50_000

// sendQueue is what waits for the connection of an agent. Its methods may be called by several goroutines, take by one.
type sendQueue struct {
	ready chan struct{} // has room for one: there is something to take

	mu     sync.Mutex // guards the fields below
	bursts [][]byte   // encoded events, which must not be changed: other agents get the same bytes
	events int        // of the bursts
	idle   bool       // take waits
	taken  bool       // take was called since keepsUp was
	closed bool
}

func newSendQueue() *sendQueue { return &sendQueue{ready: make(chan struct{}, 1), taken: true} }

// put adds a burst of events; it returns false if too much waits already. What is put after the end is lost.
func (o *sendQueue) put(burst []byte, events int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if o.events > 0 && o.events+events > backlog {
		return false
	}
	o.bursts = append(o.bursts, burst)
	o.events += events
	o.wake()
	return true
}

// take waits for bursts and returns all of them; none at the end. It keeps what it has returned before.
func (o *sendQueue) take(before [][]byte) [][]byte {
	clear(before)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = true
	for len(o.bursts) == 0 && !o.closed {
		o.idle = true
		o.mu.Unlock()
		<-o.ready
		o.mu.Lock()
	}
	bursts := o.bursts
	o.bursts, o.events, o.idle = before[:0], 0, false
	return bursts
}

// keepsUp reports whether the connection takes what it gets: take waits, or was called since keepsUp was.
func (o *sendQueue) keepsUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	up := o.idle || o.taken
	o.taken = false
	return up
}

// close ends the queue once all waiting bytes have been taken.
func (o *sendQueue) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wake()
}

// discard ends the queue at once.
func (o *sendQueue) discard() {
	o.mu.Lock()
	o.bursts, o.events = nil, 0
	o.mu.Unlock()
	o.close()
}

func (o *sendQueue) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}
