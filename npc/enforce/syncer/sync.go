package syncer

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

const (
	// garbageQuiet is how long nothing may change before garbage is collected, and garbageLast how long that is put off
	// at most.
	garbageQuiet = time.Second
	garbageLast  = 30 * time.Second
	// garbagePause is how long it is put off at most when there is much.
	garbagePause = 20 * time.Millisecond
	// turn is how long changes that keep coming are followed before something else, such as the look for drift, gets
	// its turn.
	turn = watchEvery
)

// sync makes the kernel what the controller wants, limited to what is possible now: it does not retry what failed
// before it is due. It returns what failed.
func (s *Syncer) sync(ctx context.Context, boot bool) []error {
	start := time.Now()
	s.begin(start)
	synced := s.controller.Synced()
	if synced {
		s.follow(ctx, start)
	} else {
		s.load(ctx)
		s.apply(ctx, s.lock.plan(ctx, s.kernels, s.noteEnd, func(known knowledge) transactions {
			return s.planner.PlanStart(boot, known)
		}))
	}
	s.finish(ctx, start, synced)
	return s.kernels.errors()
}

// begin reports to the controller what is tried again now, and which connections are deleted.
func (s *Syncer) begin(now time.Time) {
	for _, k := range s.kernels {
		k.errs = nil
		retries := s.metrics.retries.WithLabelValues(k.family.String())
		for _, ns := range k.postponed.due(now) {
			s.planner.Postpone(k.family, ns, false)
			retries.Inc()
		}
		if k.failing != "" && !k.probe.running() && k.retry.due(now) {
			retries.Inc()
		}
		if k.rejections.wait > 0 && k.rejections.due(now) {
			s.planner.Retry(k.family)
			k.rejections.failed(now) // until it proves otherwise
		}
		s.planner.Forgotten(k.family, k.flows.Done())
		s.reporter.flows(k, now)
	}
}

// follow carries out the controller's changes, and those that come meanwhile, for as long as a turn lasts.
func (s *Syncer) follow(ctx context.Context, start time.Time) {
	for s.more = true; s.more; {
		for again := true; again; {
			s.load(ctx)
			again = s.apply(ctx, s.lock.plan(ctx, s.kernels, s.noteEnd, func(known knowledge) transactions {
				return s.planner.Plan(s.collectsGarbage(), known)
			}))
		}
		if s.more = s.planner.Resume(); time.Since(start) >= turn {
			break
		}
	}
}

// collectsGarbage reports whether it is time to remove what nothing uses any more.
func (s *Syncer) collectsGarbage() bool {
	if s.garbageSince.IsZero() {
		return false
	}
	now := time.Now()
	return now.Sub(s.lastChange) >= garbageQuiet || now.Sub(s.garbageSince) >= garbageLast || s.planner.HasMuchGarbage()
}

// load reads what is not known of the kernel, if it is time to. Chains that could not be read or written before are
// left alone until it is known that they can be.
func (s *Syncer) load(ctx context.Context) {
	now := time.Now()
	var due []*kernel
	for _, k := range s.kernels {
		if !k.retry.due(now) {
			continue
		}
		if err := k.loadSets(s.planner); err != nil {
			k.errs = append(k.errs, err)
			continue
		}
		if k.chainsKnown {
			continue
		}
		known, err := k.works(ctx, s.noteEnd)
		switch {
		case err != nil:
			k.errs = append(k.errs, err)
		case known:
			due = append(due, k)
		}
	}
	s.loadChains(ctx, due)
}

// loadChains reads the chains of kernels side by side.
func (s *Syncer) loadChains(ctx context.Context, kernels []*kernel) {
	seen := make([]iptables.Seen, len(kernels))
	reads := make([]func(), len(kernels))
	for i, k := range kernels {
		reads[i] = func() {
			var err error
			if seen[i], err = k.readChains(ctx); err != nil {
				k.errs = append(k.errs, errors.Wrap(err, "reading the chains"))
				return
			}
			k.chainsKnown = true
		}
	}
	sideBySide(reads)
	for i, k := range kernels {
		if !k.chainsKnown {
			continue
		}
		k.noteNFTOnly(seen[i].Native, s.log)
		s.planner.LoadChains(k.family, seen[i])
		if found := s.planner.ForeignLayout(k.family); found != "" {
			s.log.Warn("sets and chains were written by another version: writing them again", "family", k.family,
				"found_layout", found, "our_layout", naming.Layout)
		}
	}
}

// apply carries out a transaction in every family, side by side. It reports whether the kernel rejected something that
// is now left out, so that there may be more to do at once.
func (s *Syncer) apply(ctx context.Context, txs transactions) (again bool) {
	var results [len(txs)]*result
	var steps []func()
	for _, k := range s.kernels {
		tx, r := txs[k.family], &result{Result: txs[k.family].Taken()}
		if results[k.family] = r; tx.Empty() {
			continue
		}
		s.announce(ctx, k, tx)
		s.metrics.transactions.WithLabelValues(k.family.String()).Inc()
		steps = append(steps, func() { *r = k.apply(ctx, tx) })
	}
	sideBySide(steps)
	for _, k := range s.kernels {
		again = s.committer.commit(k, txs[k.family], results[k.family]) || again
	}
	for f, r := range results {
		if r == nil { // a family that the node does not have: nothing is ever to be done
			s.planner.Commit(txs[f], txs[f].Taken())
		}
	}
	if s.planner.TakeEdits() {
		s.Hooks.Edited()
	}
	if late := s.planner.TakeLate(); len(late) > 0 {
		s.Hooks.Late(late)
	}
	return again
}

// sideBySide runs tasks at once, and one alone without waking another thread, which would take longer than most
// transactions.
func sideBySide(tasks []func()) {
	if len(tasks) == 0 {
		return
	}
	var others sync.WaitGroup
	defer others.Wait()
	for _, task := range tasks[1:] {
		others.Go(task)
	}
	tasks[0]()
}

// announce logs what is going to be changed: at debug level in full, otherwise summed up, and nothing of members alone.
func (s *Syncer) announce(ctx context.Context, k *kernel, tx dataplane.Transaction) {
	if len(tx.Mismatched) > 0 {
		s.metrics.drift.WithLabelValues(k.family.String(), "set").Inc()
		s.log.Warn("sets by our names are not ours: making them again",
			"family", k.family, "found", summary(tx.Mismatched))
	}
	switch {
	case s.log.Enabled(ctx, slog.LevelDebug):
		s.log.Debug("transaction", "family", k.family, "text", tx.String())
	case !tx.OnlyMembers():
		s.log.Info("transaction", "family", k.family, slog.Any("", tx))
	}
}

// finish records how a sync ended. All that is wanted can be there only if all objects were known when it was planned.
func (s *Syncer) finish(ctx context.Context, start time.Time, synced bool) {
	if ctx.Err() != nil {
		return // what failed was interrupted
	}
	now := time.Now()
	good := synced
	for _, k := range s.kernels {
		if err := k.lock.err(now); err != nil && k.chainsKnown {
			k.errs = append(k.errs, err)
		}
		switch {
		case len(k.errs) > 0:
			s.reporter.failed(k, now)
		case k.known() == dataplane.AllKnown:
			s.reporter.upToDate(k, now)
		}
		if synced && k.steady() { // before, unknown addresses may be closed by what an earlier process left alone
			s.Hooks.Steady(k.family, s.controller.Lookup().Alive(k.family))
		}
		good = good && k.steady()
	}
	if !s.reporter.rejections() {
		for _, k := range s.kernels {
			k.rejections.reset()
		}
	}
	s.setProblem(now)
	if good {
		s.succeeded(start, now)
	}
}

// succeeded records that the kernel holds all that is wanted.
func (s *Syncer) succeeded(start, now time.Time) {
	if s.enforced.Err() == nil {
		s.log.Info("policies are enforced", "took", now.Sub(start))
	}
	s.setEnforced()
	s.metrics.syncDuration.Observe(now.Sub(start).Seconds())
	s.metrics.lastSync.SetToCurrentTime()
	if first := s.planner.CarriedOut(); !first.IsZero() {
		s.metrics.latency.Observe(time.Since(first).Seconds())
	}
	switch {
	case !s.planner.HasGarbage():
		s.garbageSince = time.Time{}
	case s.garbageSince.IsZero():
		s.garbageSince = now
	}
}

// setProblem sets what Ready returns.
func (s *Syncer) setProblem(now time.Time) {
	texts := slices.Concat(s.reporter.problems(s.kernels, now), s.watcher.problems())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = strings.Join(texts, "; ")
}

// nextDeadline returns when there is something to do, if nothing happens before.
func (s *Syncer) nextDeadline(now time.Time) time.Time {
	if s.more {
		return now
	}
	next := now.Add(time.Hour)
	soonest := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, k := range s.kernels {
		if !k.probe.running() { // whose end wakes Run
			soonest(k.retry.at)
		}
		soonest(k.rejections.at)
		soonest(k.lock.reportAt(now))
		k.postponed.deadlines(soonest)
	}
	soonest(s.planner.NextChange())
	if !s.garbageSince.IsZero() {
		pause := garbageQuiet
		if s.planner.HasMuchGarbage() {
			pause = garbagePause
		}
		soonest(now.Add(pause))
	}
	if earliest := now.Add(time.Millisecond); next.Before(earliest) {
		return earliest
	}
	return next
}
