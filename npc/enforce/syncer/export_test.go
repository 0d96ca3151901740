package syncer

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// Watch is what Run does every watchEvery and until the look has ended, without a pause for what looking costs, and
// long before everything is read.
func (s *Syncer) Watch(ctx context.Context) bool {
	w := &s.watcher
	w.lastRead, w.setsAt, w.chainsAt, w.unsyncedAt = time.Now(), time.Time{}, time.Time{}, time.Time{}
	return s.watchToTheEnd(ctx)
}

// Look is Watch without waiting for the end of the look.
func (s *Syncer) Look(ctx context.Context) bool {
	s.watcher.lastRead, s.watcher.chainsAt = time.Now(), time.Time{}
	return s.watch(ctx)
}

// Conclude waits for the end of what the look reads, and does what Run does then. It reports whether the look has
// ended.
func (s *Syncer) Conclude(ctx context.Context) (drift, ended bool) {
	drift = s.conclude(ctx, time.Minute)
	return drift, !s.watcher.reading.running()
}

// WatchAll is what Run does every readEvery.
func (s *Syncer) WatchAll(ctx context.Context) bool {
	s.watcher.lastRead, s.watcher.setsAt, s.watcher.members = time.Time{}, time.Time{}, turns{}
	return s.watchToTheEnd(ctx)
}

func (s *Syncer) watchToTheEnd(ctx context.Context) bool {
	drift := s.watch(ctx)
	for s.watcher.reading.running() {
		drift = s.conclude(ctx, time.Minute)
	}
	return drift
}

// CollectGarbageNow makes the next Sync remove what nothing uses any more, if there is anything.
func (s *Syncer) CollectGarbageNow() { s.lastChange = time.Time{} }

// Faults can be made in what the syncer uses.
type Faults struct {
	// Apply and List, if not nil, are called instead of the sets' own, which they are given.
	Apply func(ops []ipset.Op, apply func([]ipset.Op) error) error
	List  func() error
}

type faultySets struct {
	setStore
	faults *Faults
}

func (s faultySets) Apply(ops []ipset.Op) error {
	if s.faults.Apply != nil {
		return s.faults.Apply(ops, s.setStore.Apply)
	}
	return s.setStore.Apply(ops)
}

func (s faultySets) List(prefix string) ([]ipset.Listing, error) {
	if s.faults.List != nil {
		if err := s.faults.List(); err != nil {
			return nil, err
		}
	}
	return s.setStore.List(prefix)
}

func (s faultySets) ListNamed(names []string) ([]ipset.Listing, error) {
	if s.faults.List != nil {
		if err := s.faults.List(); err != nil {
			return nil, err
		}
	}
	return s.setStore.ListNamed(names)
}

func (s faultySets) Headers(prefix string) ([]ipset.Header, error) {
	if s.faults.List != nil {
		if err := s.faults.List(); err != nil {
			return nil, err
		}
	}
	return s.setStore.Headers(prefix)
}

// MakeFaults puts faults between the syncer and the sets of a family. It must not run.
func (s *Syncer) MakeFaults(f npc.Family) *Faults {
	x := &Faults{}
	for _, k := range s.kernels {
		if k.family == f {
			k.sets = faultySets{k.sets, x}
		}
	}
	return x
}

// LockHeldFor makes the syncer believe that another process has held the lock for d longer.
func (s *Syncer) LockHeldFor(d time.Duration) {
	s.lock.since = s.lock.since.Add(-d)
}

// RetryNow makes due what waits for its next try.
func (s *Syncer) RetryNow() {
	s.watcher.retry.at = time.Time{}
	for _, k := range s.kernels {
		k.retry.at = time.Time{}
		if k.rejections.wait > 0 {
			k.rejections.at = time.Time{}
		}
		for _, h := range k.postponed {
			h.retry.at = time.Time{}
		}
	}
}

// Waits are how long the tries at what fails, and at what was refused, wait at most.
func (s *Syncer) Waits(f npc.Family) (retry, refusals time.Duration) {
	for _, k := range s.kernels {
		if k.family == f {
			retry, refusals = k.retry.wait, k.rejections.wait
		}
	}
	return retry, refusals
}

// Lose has the chains of a family read again.
func (s *Syncer) Lose(f npc.Family) {
	for _, k := range s.kernels {
		if k.family == f {
			k.chainsKnown = false
		}
	}
}

// Hurry has the next runs of programs end after a time: those of some families, or of all if none is given.
func (s *Syncer) Hurry(limit time.Duration, families ...npc.Family) {
	for _, k := range s.kernels {
		if len(families) == 0 || slices.Contains(families, k.family) {
			k.retry.wait = limit - programTimeout
		}
	}
}

// FailForgetting has connections not be deleted, for the given reason; nil has them deleted again.
func (s *Syncer) FailForgetting(f npc.Family, err error) {
	for _, k := range s.kernels {
		if k.family != f {
			continue
		}
		if err == nil {
			k.flows.(*failingFlows).repair()
			continue
		}
		broken := &failingFlows{err: err}
		broken.Worker = conntrack.NewWorker(broken.Delete, s.controller.Lookup().IsLocal, s.noteEnd)
		k.flows = broken
	}
}

// failingFlows is a worker on a table that fails.
type failingFlows struct {
	*conntrack.Worker
	mu  sync.Mutex
	err error
}

func (x *failingFlows) Delete(func(*[4]netip.Addr) bool) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return 0, x.err
}

func (x *failingFlows) repair() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = nil
}

// Trying reports whether the programs of iptables are being tried.
func (s *Syncer) Trying(f npc.Family) bool {
	return slices.ContainsFunc(s.kernels, func(k *kernel) bool { return k.family == f && k.probe.running() })
}

// Later has what was repaired so far be as much longer ago.
func (s *Syncer) Later(d time.Duration) {
	for i := range s.watcher.contention.repairs {
		s.watcher.contention.repairs[i] = s.watcher.contention.repairs[i].Add(-d)
	}
}

// RunWithoutPause is Run that repairs at once however often it must.
func (s *Syncer) RunWithoutPause(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.watcher.contention.repairs = nil
			if s.watchToTheEnd(ctx) {
				s.sync(ctx, false)
			}
		}
	}
}

// recorder calls a function with each observation.
type recorder struct {
	prometheus.Histogram
	record func(seconds float64)
}

func (r recorder) Observe(v float64) {
	r.record(v)
	r.Histogram.Observe(v)
}

// RecordLatency calls a function with each observation of weavenpc_event_latency_seconds. The syncer must not run.
func (s *Syncer) RecordLatency(record func(seconds float64)) {
	s.metrics.latency = recorder{s.metrics.latency, record}
}

// StuckAfter has changes be called stuck after a time.
func (s *Syncer) StuckAfter(d time.Duration) { s.stuckAfter = d }

// LeftOf returns what is written of an update when the kernel took neither a set nor it as a member of a list.
func LeftOf(u iptables.Update, set, list string) iptables.Update {
	r := result{Result: dataplane.Result{RejectedSets: map[string]string{set: "no room"}}, incomplete: map[string]bool{}}
	r.followsRejection(&ipset.OpError{Kind: ipset.Add, Set: list, Elements: []ipset.Element{{Entry: ipset.Member(set)}}})
	return r.withoutRejected(u)
}

// NewTurns returns what chooses the sets whose members are read.
func NewTurns(now time.Time) func([]ipset.Header, time.Time) []string { return (&turns{at: now}).due }
