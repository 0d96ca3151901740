package conntrack

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// inFlight is how long a packet may take, at the most, from the rules that let it through until its connection is in the
	// table. What is to be deleted is looked for only then.
	inFlight = time.Millisecond
	// The table is listed again only after so many times what the last listing took: it may hold what a pod filled it with.
	urgentPause, laterPause = 4, 50
	// laterFor is how long requests without urgency are collected at least.
	laterFor = time.Second
	// Tries at what fails wait between these, doubling.
	retryFirst, retryLast = 100 * time.Millisecond, 30 * time.Second
	// stuckAfter is how long an urgent request may take before it is trouble.
	stuckAfter = 15 * time.Second
)

// Scope is which connections of an address are meant.
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
	// Later marks a request that nobody waits for, so that it may wait for others.
	Later bool
}

// Worker deletes connections off its users' way: one listing of the table serves all requests that came before it, and its
// share of the processor is bounded. What fails is tried again. Its methods may be called by several goroutines.
type Worker struct {
	table   Deleter
	isLocal func(netip.Addr) bool
	// changed is called after each try.
	changed func()

	mu      sync.Mutex
	pending map[netip.Addr]waiting
	running map[netip.Addr]waiting
	done    []netip.Addr
	started bool // the goroutine
	closed  bool
	kick    chan struct{}
	ended   sync.WaitGroup

	lastEnd time.Time
	took    time.Duration
	err     error
	wait    time.Duration
}

// waiting is a request and when it was first made.
type waiting struct {
	Request
	since time.Time
}

// Deleter deletes the connections that match.
type Deleter interface {
	Delete(match func(ends *[4]netip.Addr) bool) (deleted int, err error)
}

// NewWorker returns a worker on a table. It asks isLocal whether an address is a local pod's; changed is called whenever
// Done or Trouble may return something else. Neither may call the worker's methods.
func NewWorker(t Deleter, isLocal func(netip.Addr) bool, changed func()) *Worker {
	return &Worker{table: t, isLocal: isLocal, changed: changed, pending: map[netip.Addr]waiting{}, kick: make(chan struct{}, 1)}
}

// concerns reports whether a connection is one of those that are wanted.
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

// Ask makes requests. What an address was asked for before is done again.
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

// put adds a request to those that wait, together with what the address was asked for before. w.mu is held.
func (w *Worker) put(r waiting) {
	if was, ok := w.pending[r.Addr]; ok {
		r.Scope, r.Later = max(r.Scope, was.Scope), r.Later && was.Later
		if !was.Later {
			r.since = was.since
		}
	}
	w.pending[r.Addr] = r
}

// Done returns the addresses whose connections were deleted since it was last called.
func (w *Worker) Done() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.done
	w.done = nil
	return done
}

// Busy reports whether somebody waits for a request.
func (w *Worker) Busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, urgent := w.oldest()
	return urgent || len(w.running) > 0
}

// Trouble returns why connections cannot be deleted, or that it takes long; nil and false if neither.
func (w *Worker) Trouble(now time.Time) (err error, stuck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, urgent := w.oldest()
	return w.err, urgent && now.Sub(since) >= stuckAfter
}

// Explain puts into words what Trouble returned; empty if nothing is wrong.
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

// oldest returns since when the oldest urgent request waits. w.mu is held.
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

// Close ends the worker. What is asked for is done once more, unless that fails.
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

// run works until nothing is asked for any more.
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

// due returns when the next try is due. If there is nothing to do, the goroutine is taken for ended.
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

// try deletes the connections of all addresses that were asked for.
func (w *Worker) try() {
	w.mu.Lock()
	w.running, w.pending = w.pending, map[netip.Addr]waiting{}
	want := make(map[netip.Addr]Scope, len(w.running))
	for a, r := range w.running {
		want[a] = r.Scope
	}
	w.mu.Unlock()

	start := time.Now()
	_, err := w.table.Delete(func(ends *[4]netip.Addr) bool { return concerns(ends, want, w.isLocal) })

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
