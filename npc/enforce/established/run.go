package established

import (
	"context"
	"time"
)

// run is one run of a Worker.
type run struct {
	*Worker
	// again is when connections are looked at again, batch when those are of addresses that became known, and turn when
	// one that waits has its turn.
	again, batch, turn *time.Timer
	// pause ends a pause after a look, while resting is set.
	pause   *time.Timer
	resting bool
	// looks and turns take half the time each, at most.
	looks, turns share
	retry        time.Duration
}

// Run evaluates connections after each Ask until the context ends. It returns no error: it retries what fails.
func (w *Worker) Run(ctx context.Context) error {
	r := run{Worker: w, looks: share{at: time.Now()}, turns: share{at: time.Now()}}
	for _, t := range []**time.Timer{&r.again, &r.batch, &r.turn, &r.pause} {
		*t = time.NewTimer(time.Hour)
		(*t).Stop()
		defer (*t).Stop()
	}
	for r.next(ctx) {
		r.arm()
	}
	return nil
}

// next does what comes first. It returns false once the context has ended.
func (r *run) next(ctx context.Context) bool {
	asked, batch, again := r.asked, r.batch.C, r.again.C
	if r.resting {
		asked, batch, again = nil, nil, nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.late.noted:
		if !r.late.waiting {
			r.batch.Reset(r.late.pause())
		}
		r.late.waiting = true
	case <-r.pause.C:
		r.resting = false
	case <-batch:
		r.late.waiting = false
		r.lookNow(true)
	case <-asked:
		r.late.confirm()
		r.lookNow(true)
	case <-again:
		r.lookNow(false)
	case <-r.turn.C:
		r.turnNow()
	}
	return true
}

// lookNow looks at all connections, if that may find something to do. The first look after a change is followed by
// another one.
func (r *run) lookNow(first bool) {
	if !r.due() && r.retry == 0 {
		return
	}
	if !r.known() {
		r.again.Reset(lookAgain)
		return
	}
	start := time.Now()
	switch _, err := r.look(); {
	case err != nil:
		r.fail(err)
	case r.retry > 0:
		r.Log.Info("connections that are not allowed any more can be ended again")
		r.retry = 0
		r.again.Reset(lookAgain)
	case first:
		// Long looks are less often in the way of the next change so.
		r.again.Reset(max(lookAgain, 2*time.Since(start)))
	}
	if pause := r.looks.after(time.Now(), time.Since(start)); pause > 0 {
		r.resting = true
		r.pause.Reset(pause)
	}
}

// turnNow evaluates one connection that waits, unless all are to be looked at.
func (r *run) turnNow() {
	if len(r.asked) > 0 && !r.resting || !r.known() {
		return
	}
	start := time.Now()
	if err := r.takeTurn(); err != nil {
		r.fail(err)
	}
	r.turns.after(time.Now(), time.Since(start))
}

// fail has all connections be looked at again after an error, soon.
func (r *run) fail(err error) {
	if r.retry == 0 {
		r.Log.Error("cannot end connections that are not allowed any more, trying again", "err", err)
	}
	r.Metrics.failures.Inc()
	r.retry = min(max(2*r.retry, retryFirst), retryLast)
	r.again.Reset(r.retry)
}

// arm has one of the connections that wait take its turn once there is time for it, unless that waits itself: for the
// rules, or for a look after an error.
func (r *run) arm() {
	if len(r.aside.turns) == 0 || r.retry > 0 || r.late.rules == requested {
		r.turn.Stop()
		return
	}
	pause := r.turns.after(time.Now(), 0)
	if !r.known() {
		pause = max(pause, lookAgain)
	}
	r.turn.Reset(pause)
}

// known reports whether connections can be evaluated.
func (w *Worker) known() bool { return w.AreKnown == nil || w.AreKnown() }

// burst is by how much looks may be ahead of their share without a pause.
const burst = 100 * time.Millisecond

// share has looks take half the time at most, in the long run, so that who edits policies all the time gets half a
// processor.
type share struct {
	ahead time.Duration // by how much they were ahead at a time
	at    time.Time
}

// after returns the pause after a look that took some time.
func (s *share) after(now time.Time, took time.Duration) time.Duration {
	idle := now.Sub(s.at) - took
	s.ahead, s.at = max(0, s.ahead-idle/2)+took/2, now
	return max(0, 2*(s.ahead-burst))
}
