package conntrack

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// inFlight is the maximum time of a packet from the rules that allow it until its connection is in the table. A
	// request is carried out only after that.
	inFlight = time.Millisecond
	// The pause between two listings of the table, as a multiple of the duration of the last one: a pod can fill the
	// table.
	urgentPause, laterPause = 4, 50
	// laterFor is the minimum time that requests which are not urgent are collected.
	laterFor = time.Second
	// The first and the longest pause after a failure. Pauses double.
	retryFirst, retryLast = 100 * time.Millisecond, 30 * time.Second
	// stuckAfter is the maximum duration of an urgent request before it is reported.
	stuckAfter = 15 * time.Second
)

// Scope is the set of an address's connections to delete.
type Scope uint8

// The scopes. The later one includes the earlier.
const (
	// WithLocalPods are the connections between the address and one of a local pod.
	WithLocalPods Scope = iota
	// All are all connections of the address.
	All
)

// Request asks for the connections of an address to be deleted.
type Request struct {
	Addr  netip.Addr
	Scope Scope
	// Later marks a request that is not urgent. It may wait for others.
	Later bool
}

// Worker deletes connections in the background. One listing of the table serves all requests before it, and the
// worker's share of the processor is bounded. It tries again after failures. Its methods may be called by several
// goroutines.
type Worker struct {
	deleteAll Deleter
	isLocal   func(netip.Addr) bool
	changed   func() // called after each try
	kick      chan struct{}
	ended     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	pending map[netip.Addr]waiting
	running map[netip.Addr]waiting
	done    []netip.Addr
	started bool // the goroutine
	closed  bool
	lastEnd time.Time
	took    time.Duration
	err     error
	wait    time.Duration
}

// waiting is a request and the time at which it was first made.
type waiting struct {
	Request
	since time.Time
}

// Deleter deletes the connections that match reports, as Table.Delete does.
type Deleter func(match func(ends *[4]netip.Addr) bool) (deleted int, err error)

// NewWorker returns a worker. isLocal reports whether an address belongs to a local pod. The worker calls changed
// whenever the results of Done or Trouble may have changed. Neither function may call the worker's methods.
func NewWorker(d Deleter, isLocal func(netip.Addr) bool, changed func()) *Worker {
	return &Worker{deleteAll: d, isLocal: isLocal, changed: changed, pending: map[netip.Addr]waiting{},
		kick: make(chan struct{}, 1)}
}

// concerns reports whether a connection is to be deleted.
func concerns(ends *[4]netip.Addr, want map[netip.Addr]Scope, isLocal func(netip.Addr) bool) bool {
	for i, a := range ends {
		scope, ok := want[a]
		if !ok {
			continue
		}
		if scope == All {
			return true
		}
		for j, b := range ends {
			if i != j && b != a && isLocal(b) {
				return true
			}
		}
	}
	return false
}

// Ask adds requests. An earlier request for the same address is carried out again.
func (w *Worker) Ask(requests []Request) {
	if len(requests) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	asked := make(map[netip.Addr]bool, len(requests))
	now := time.Now()
	for _, r := range requests {
		w.put(waiting{r, now})
		asked[r.Addr] = true
	}
	kept := w.done[:0]
	for _, a := range w.done {
		if !asked[a] {
			kept = append(kept, a)
		}
	}
	w.done = kept
	if !w.started {
		w.started = true
		w.ended.Go(w.run)
	}
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// put adds a request to the pending ones and merges it with an earlier one for the same address. w.mu is held.
func (w *Worker) put(r waiting) {
	if was, ok := w.pending[r.Addr]; ok {
		r.Scope, r.Later = max(r.Scope, was.Scope), r.Later && was.Later
		if !was.Later {
			r.since = was.since
		}
	}
	w.pending[r.Addr] = r
}

// Done returns the addresses whose connections were deleted since the last call.
func (w *Worker) Done() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.done
	w.done = nil
	return done
}

// Trouble returns the error that prevents deleting connections, and whether deleting them takes too long.
func (w *Worker) Trouble(now time.Time) (err error, stuck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, urgent := w.oldest()
	return w.err, urgent && now.Sub(since) >= stuckAfter
}

// Explain returns the results of Trouble as a sentence. It is empty if there is no problem.
func Explain(err error, stuck bool) string {
	const consequence = " the connections of addresses that other pods have now, so that these are not opened"
	switch {
	case err != nil:
		return "cannot delete" + consequence + ": " + err.Error()
	case stuck:
		return "it takes long to delete" + consequence
	}
	return ""
}

// oldest returns the time of the oldest urgent request, and whether there is one. w.mu is held.
func (w *Worker) oldest() (since time.Time, urgent bool) {
	for _, requests := range []map[netip.Addr]waiting{w.pending, w.running} {
		for _, r := range requests {
			if !r.Later && (!urgent || r.since.Before(since)) {
				since, urgent = r.since, true
			}
		}
	}
	return since, urgent
}

// Close ends the worker after one last try to carry out the pending requests.
func (w *Worker) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
	w.ended.Wait()
}

// run carries out requests until none is pending.
func (w *Worker) run() {
	for {
		due, more := w.due()
		if !more {
			return
		}
		if pause := time.Until(due); pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-w.kick:
				timer.Stop()
			}
			continue
		}
		w.try()
		w.changed()
	}
}

// due returns the time of the next try. It returns false if there is nothing to do; the goroutine counts as ended then.
func (w *Worker) due() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 || w.closed && w.err != nil {
		w.started = false
		return time.Time{}, false
	}
	if w.closed {
		return time.Time{}, true
	}
	since, urgent := w.oldest()
	if urgent {
		since = since.Add(inFlight)
	} else {
		for _, r := range w.pending {
			if since.IsZero() || r.since.Before(since) {
				since = r.since
			}
		}
		since = since.Add(laterFor)
	}
	pause := w.took * laterPause
	if urgent {
		pause = w.took * urgentPause
	}
	if next := w.lastEnd.Add(max(pause, w.wait)); next.After(since) {
		since = next
	}
	return since, true
}

// try carries out all pending requests.
func (w *Worker) try() {
	w.mu.Lock()
	w.running, w.pending = w.pending, map[netip.Addr]waiting{}
	want := make(map[netip.Addr]Scope, len(w.running))
	for a, r := range w.running {
		want[a] = r.Scope
	}
	w.mu.Unlock()

	start := time.Now()
	_, err := w.deleteAll(func(ends *[4]netip.Addr) bool { return concerns(ends, want, w.isLocal) })

	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastEnd = time.Now()
	w.took = w.lastEnd.Sub(start)
	w.err = err
	if err != nil {
		w.wait = min(max(2*w.wait, retryFirst), retryLast)
		for _, r := range w.running {
			w.put(r)
		}
	} else {
		w.wait = 0
		for a := range w.running {
			if _, again := w.pending[a]; !again {
				w.done = append(w.done, a)
			}
		}
	}
	w.running = nil
}
