package npc

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// Sync is what Run does when something changed, until nothing is left for the next turn.
func (s *Syncer) Sync(ctx context.Context, boot bool) []error {
	errs := s.sync(ctx, boot)
	for s.more {
		errs = append(errs, s.sync(ctx, boot)...)
	}
	return errs
}

// Watch is what Run does every watchEvery, without a pause for what looking costs, and long before everything is read.
func (s *Syncer) Watch(ctx context.Context) bool {
	w := &s.watcher
	w.lastRead, w.setsAt, w.chainsAt, w.unreadAt = time.Now(), time.Time{}, time.Time{}, time.Time{}
	return s.watch(ctx)
}

// WatchAll is what Run does every readEvery.
func (s *Syncer) WatchAll(ctx context.Context) bool {
	s.watcher.lastRead = time.Time{}
	return s.watch(ctx)
}

// TidyNow has the next Sync tidy up, if there is anything to tidy up.
func (s *Syncer) TidyNow() { s.lastChange = time.Time{} }

// Untidy says whether the model has something to tidy up.
func (s *Syncer) Untidy() bool { return !s.untidySince.IsZero() }

// Faults can be made in what the syncer uses.
type Faults struct {
	// Apply and List, if not nil, are called instead of the sets' own, which they are given.
	Apply func(ops []ipset.Op, apply func([]ipset.Op) error) error
	List  func() error
}

type faultySets struct {
	setKeeper
	faults *Faults
}

func (s faultySets) Apply(ops []ipset.Op) error {
	if s.faults.Apply != nil {
		return s.faults.Apply(ops, s.setKeeper.Apply)
	}
	return s.setKeeper.Apply(ops)
}

func (s faultySets) List(prefix string) ([]ipset.Listing, error) {
	if s.faults.List != nil {
		if err := s.faults.List(); err != nil {
			return nil, err
		}
	}
	return s.setKeeper.List(prefix)
}

func (s faultySets) Headers(prefix string) ([]ipset.Header, error) {
	if s.faults.List != nil {
		if err := s.faults.List(); err != nil {
			return nil, err
		}
	}
	return s.setKeeper.Headers(prefix)
}

// MakeFaults puts faults between the syncer and the sets of a family. It must not run.
func (s *Syncer) MakeFaults(f Family) *Faults {
	x := &Faults{}
	for _, k := range s.kernels {
		if k.family == f {
			k.sets = faultySets{k.sets, x}
		}
	}
	return x
}

// RetryNow makes due what waits for its next try.
func (s *Syncer) RetryNow() {
	s.watcher.retry.at = time.Time{}
	for _, k := range s.kernels {
		k.retry.at = time.Time{}
		if k.refusals.wait > 0 {
			k.refusals.at = time.Time{}
		}
		for _, h := range k.postponed {
			h.retry.at = time.Time{}
		}
	}
}

// Waits are how long the tries at what fails, and at what was refused, wait at most.
func (s *Syncer) Waits(f Family) (retry, refusals time.Duration) {
	for _, k := range s.kernels {
		if k.family == f {
			retry, refusals = k.retry.wait, k.refusals.wait
		}
	}
	return retry, refusals
}

// spoiled is a match that no kernel takes.
const spoiled = ` -m bpf --bytecode "1,255 255 255 255"`

// SpoilReports has the kernel refuse the rules that report, or no more.
func (m *Model) SpoilReports(spoil bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		for _, c := range t.chains {
			for _, r := range c.rules {
				if !r.reports {
					continue
				}
				r.match = strings.TrimSuffix(r.match, spoiled)
				if spoil {
					r.match += spoiled
				}
				c.touch()
			}
		}
	}
}

// Spoil has the kernel refuse the rules of a policy, or no more.
func (m *Model) Spoil(policy string, spoil bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		for _, c := range t.chains {
			for _, r := range c.rules {
				for p := range r.owners {
					if p.key() != policy {
						continue
					}
					r.match = strings.TrimSuffix(r.match, spoiled)
					if spoil {
						r.match += spoiled
					}
					c.touch()
				}
			}
		}
	}
}

// Leftovers are what the model holds of something that nobody owns: sets and chains that are neither wanted nor in the kernel, and
// selectors and blocks without users.
func (m *Model) Leftovers() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		for name, s := range t.sets {
			if !s.wanted && !s.exists || name != s.Name {
				out = append(out, "set "+name)
			}
		}
		for name, c := range t.chains {
			if !c.wanted && !c.exists {
				out = append(out, "chain "+name)
			}
		}
	}
	for _, s := range m.selectors {
		if len(s.users) == 0 {
			out = append(out, "selector "+s.String())
		}
	}
	return out
}

// Held is what a sync that went well ends with.
func (m *Model) Held() { m.heldSince() }

// Lose has the chains of a family read again.
func (s *Syncer) Lose(f Family) {
	for _, k := range s.kernels {
		if k.family == f {
			k.chainsKnown = false
		}
	}
}

// Hurry has the next runs of programs end after a time.
func (s *Syncer) Hurry(limit time.Duration) {
	for _, k := range s.kernels {
		k.retry.wait = limit - programTimeout
	}
}

// Forgetting reports whether addresses wait for connections to be deleted, or for the sync after that.
func (s *Syncer) Forgetting() bool {
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	return slices.ContainsFunc(s.kernels, func(k *kernel) bool { return s.model.tables[k.family].flows.Urgent() > 0 })
}

// FailForgetting has connections not be deleted, for the given reason; nil has them deleted again.
func (s *Syncer) FailForgetting(f Family, err error) {
	for _, k := range s.kernels {
		if k.family != f {
			continue
		}
		if err == nil {
			k.flows.(*failingFlows).mend()
			continue
		}
		broken := &failingFlows{err: err}
		broken.Worker = conntrack.NewWorker(broken.Delete, s.model.isLocal, s.noteTrial)
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

func (x *failingFlows) mend() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = nil
}

// Trying says whether the programs of iptables are being tried.
func (s *Syncer) Trying(f Family) bool {
	return slices.ContainsFunc(s.kernels, func(k *kernel) bool { return k.family == f && k.trial != nil })
}

// Later has what was repaired so far be as much longer ago.
func (s *Syncer) Later(d time.Duration) {
	for i := range s.watcher.repairs {
		s.watcher.repairs[i] = s.watcher.repairs[i].Add(-d)
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
			s.watcher.repairs = nil
			if s.watch(ctx) {
				s.sync(ctx, false)
			}
		}
	}
}

// PartSet is the name of the set of the isolated pods of a namespace that is not divided.
func PartSet(f Family, d Direction, namespace string) string {
	return naming.PartSet(f, d, namespace, "")
}

// PartChain is the name of the chain of such a namespace.
func PartChain(d Direction, namespace string) string { return naming.PartChain(d, namespace, "") }

// StuckAfter has changes be called stuck after a time.
func (s *Syncer) StuckAfter(d time.Duration) { s.stuckAfter = d }

// Crowd has chains lead to at most so many parts one by one, and divides the rules of so many targets and more.
func (m *Model) Crowd(n, targets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partTargets = targets
	for _, w := range m.ways {
		w.crowd = n
		m.pave(w)
	}
}

// Adopt takes what was read from the kernel for a family for what there is.
func (m *Model) Adopt(f Family, sets []ipset.Listing, seen iptables.Seen) {
	m.AdoptChains(f, seen)
	m.AdoptSets(f, sets)
}

// PlanStart is what is to be done before all objects are known, if everything is known of the kernel.
func (m *Model) PlanStart(boot bool) [len(families)]Transaction {
	return m.planStart(boot, [len(families)]Extent{})
}

// Plan is what is to be done after all changes up to now, if everything is known of the kernel.
func (m *Model) Plan(tidy bool) [len(families)]Transaction {
	return m.plan(tidy, [len(families)]Extent{})
}

// Forgotten has connections of former pods be deleted.
func (m *Model) Forgotten(f Family, addrs []netip.Addr) { m.forgotten(f, addrs) }

// Rangeless reports whether nothing is known of where local pods are.
func (m *Model) Rangeless() bool { return m.rangeless() }

// FoundLayout is the layout of what was last adopted, if it is not ours; else empty.
func (m *Model) FoundLayout(f Family) string { return m.strangeLayout(f) }

// Postpone is what the syncer does with a namespace whose rules cannot be written, or can be again.
func (m *Model) Postpone(f Family, namespace string, postpone bool) {
	m.postpone(f, namespace, postpone)
}

// ForgetAgain is what the syncer does with requests that could not be made.
func (m *Model) ForgetAgain(f Family, requests []conntrack.Request) { m.forgetAgain(f, requests) }
