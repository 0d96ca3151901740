// Package syncer makes the kernel hold what the controller wants, and keeps it so.
//
// It is the only package that touches the sets and chains while weave-npc runs, and it does so in one goroutine (Run).
//
//	controller.Wake, retry, drift ─▶ sync:  load ─▶ Plan ─▶ apply ─▶ commit ─▶ finish
//	                                   what is not     each family      what the kernel    readiness, metrics,
//	                                   known of it     side by side     did not take       the next deadline
//
//	kernel, apply, restore    one family: its sets and chains, and how a transaction is applied to them
//	watch                     looks for drift
//	retry, postpone           when what failed is tried again; namespaces whose rules are left as they are
//	report, metrics           what is not enforced as specified
//	progress                  what is being done and since when, so that messages can name what takes too long
//	concurrent                probes and reads that take long, while syncs go on
//
// It knows neither Kubernetes nor what a policy means: a transaction comes from the controller, and what the kernel did
// not take of it goes back there. It never gives up: what fails is tried again, less and less often, while everything
// else goes on.
package syncer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// stuckAfter is how long changes may wait for the kernel before the node counts as not ready.
const stuckAfter = 12 * time.Second

// Syncer keeps the kernel's sets and chains as the controller wants them.
type Syncer struct {
	controller *controller.Controller
	planner    controller.Planner
	kernels    kernels
	metrics    *Metrics
	log        *slog.Logger
	reporter   reporter
	committer  committer
	watcher    watcher
	// doing is what is being done to the kernel.
	doing progressTracker
	// lock is that of iptables-legacy.
	lock lock
	// ended receives when a probe has ended, or connections were deleted, concurrently with the syncs.
	ended chan struct{}
	// Hooks are called by Run. They must not be changed after it has begun.
	Hooks Hooks
	// more reports that the last sync left changes for the next one.
	more bool
	// lastChange is when the controller last announced changes, and garbageSince since when it has garbage; zero if it
	// has none.
	lastChange, garbageSince time.Time
	// stuckAfter is the constant; tests shorten it.
	stuckAfter time.Duration
	// enforced ends when the kernel first holds all that is wanted, with all objects known.
	enforced    context.Context
	setEnforced context.CancelFunc

	mu sync.Mutex // guards problem
	// problem is why the kernel does not hold what is wanted, or why that cannot be known; empty if it does.
	problem string
}

// Hooks are functions that are called with what has come to the kernel. None of them may block.
type Hooks struct {
	// Edited is called when the kernel holds changes by which open connections may not be allowed any more, or may be
	// again.
	Edited func()
	// Late is called with addresses of local pods that the kernel holds as such only now, and whose connections policies
	// may deny that began before.
	Late func([]netip.Addr)
	// Steady is called, again and again, while the kernel holds what is wanted of a family, with the operation by which
	// a set shows that weave-npc runs.
	Steady func(npc.Family, ipset.Op)
}

// New opens the kernel of the current network namespace, for the given families. The function report is called with
// each policy that is not enforced as specified. An error describes what is missing and the way out.
func New(c *controller.Controller, fs []npc.Family, b iptables.Backend, x *Metrics, log *slog.Logger,
	report func(enforce.InvalidPolicy)) (*Syncer, error) {
	s := &Syncer{controller: c, planner: c.Planner(), metrics: x, log: log, ended: make(chan struct{}, 1),
		stuckAfter: stuckAfter,
		Hooks:      Hooks{Edited: func() {}, Late: func([]netip.Addr) {}, Steady: func(npc.Family, ipset.Op) {}}}
	s.reporter = reporter{lookup: c.Lookup(), metrics: x, log: log, policy: report}
	s.committer = committer{planner: c.Planner(), metrics: x, log: log}
	s.enforced, s.setEnforced = context.WithCancel(context.Background())
	for _, f := range fs {
		k, err := openKernel(f, b, &s.doing, &s.lock, c.Lookup().IsLocal, s.noteEnd)
		if err != nil {
			s.Close()
			return nil, errors.Wrapf(err, "%s", f)
		}
		s.kernels = append(s.kernels, k)
	}
	s.watcher = newWatcher(c, s.kernels, x, log)
	return s, nil
}

// OnConflict sets the function that is called with each lasting conflict about a local pod's address. It must be called
// before Run.
func (s *Syncer) OnConflict(report func(ipowner.Conflict)) { s.watcher.conflicts.Report = report }

// Idle returns how long ago the syncer began or ended something. While it runs, that is less than a second unless
// something takes long.
func (s *Syncer) Idle() time.Duration { return s.doing.Idle() }

// Close closes the sockets to the kernel. What is in the kernel stays.
func (s *Syncer) Close() {
	for _, k := range s.kernels {
		k.close()
	}
}

// Enforced returns a context that ends when policies are enforced for the first time.
func (s *Syncer) Enforced() context.Context { return s.enforced }

// Ready returns why the node is not enforced as the objects want it; it is empty if it is.
func (s *Syncer) Ready() string {
	if !s.controller.Synced() {
		return "not all namespaces, pods and network policies have been received yet"
	}
	waiting := s.planner.Waiting()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.problem != "":
		return s.problem
	case s.enforced.Err() == nil:
		return s.doing.after("the first transaction has not been applied yet")
	case waiting >= s.stuckAfter:
		return s.doing.after("changes have been waiting for " + waiting.Round(time.Second).String())
	}
	return ""
}

// Fails reports whether the kernel refused what was last tried. A syncer that only takes long does not fail.
func (s *Syncer) Fails() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem != ""
}

// Run keeps the kernel up to date until the context ends. With boot, on a node without pods, unknown local
// addresses are closed before the objects are known.
func (s *Syncer) Run(ctx context.Context, boot bool) error {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	deadline := time.NewTimer(0) // of a retry, of garbage, or of what time alone changes
	defer deadline.Stop()
	for {
		s.doing.Move()
		select {
		case <-ctx.Done():
			return nil
		case <-s.controller.Wake():
			s.lastChange = time.Now()
		case <-deadline.C:
		case <-s.ended:
		case <-s.watcher.reading.done:
			if !s.conclude(ctx, 0) {
				continue
			}
		case <-watch.C:
			if !s.watch(ctx) {
				s.reporter.invalid() // what was put off may be due
				continue
			}
		}
		s.reporter.invalid()
		s.sync(ctx, boot)
		deadline.Reset(time.Until(s.nextDeadline(time.Now())))
	}
}

// Sync brings the kernel up to date until nothing is left to do for now, and returns what failed. With boot, on a node
// without pods, it closes unknown local addresses before the objects are known. It must not be called while Run runs.
func (s *Syncer) Sync(ctx context.Context, boot bool) []error {
	errs := s.sync(ctx, boot)
	for s.more && ctx.Err() == nil {
		errs = append(errs, s.sync(ctx, boot)...)
	}
	return errs
}

// DryRun writes the transactions that would be applied, once all objects are known.
func (s *Syncer) DryRun(ctx context.Context, w io.Writer) error {
	for !s.controller.Synced() {
		select {
		case <-ctx.Done():
			return errors.Wrap(ctx.Err(), "waiting for all namespaces, pods and network policies")
		case <-s.controller.Wake():
		}
	}
	s.reporter.invalid()
	s.load(ctx)
	if errs := s.kernels.errors(); len(errs) > 0 {
		return errs[0]
	}
	for more := true; more; {
		more = false
		for _, tx := range s.planner.Plan(true, [len(npc.Families)]dataplane.Known{}) {
			if _, err := fmt.Fprint(w, tx); err != nil {
				return errors.Wrap(err, "writing the transactions")
			}
			s.planner.Commit(tx, tx.Taken())
			for _, r := range tx.FlushConntrack {
				s.planner.Forgotten(tx.Family, []netip.Addr{r.Addr})
				more = true
			}
		}
	}
	return nil
}

// watch reports what changes with time alone, and whether there is drift to repair.
func (s *Syncer) watch(ctx context.Context) (drift bool) {
	now := time.Now()
	s.watcher.watchFailClosed(now)
	s.watcher.watchConflicts(now)
	if s.enforced.Err() == nil {
		return false
	}
	return s.look(now, func() bool { return s.watcher.look(ctx, now) })
}

// conclude ends the current look for drift if the chains have been read; it waits up to timeout for them. It reports
// whether there is drift to repair.
func (s *Syncer) conclude(ctx context.Context, timeout time.Duration) (drift bool) {
	return s.look(time.Now(), func() bool { return s.watcher.conclude(ctx, timeout) })
}

// look sets what Ready returns when the watcher's problems change.
func (s *Syncer) look(now time.Time, look func() bool) (drift bool) {
	before := s.watcher.problems()
	drift = look()
	if !slices.Equal(before, s.watcher.problems()) {
		s.setProblem(now)
	}
	return drift
}

// noteEnd wakes Run because a concurrent task ended.
func (s *Syncer) noteEnd() { wake(s.ended) }
