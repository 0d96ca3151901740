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

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/claims"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/gate"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/progress"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

const (
	// quiet is how long nothing may change before we tidy up, untidyFor how long that is put off at most.
	quiet     = time.Second
	untidyFor = 30 * time.Second
	// stuckAfter is how long changes may wait for the kernel before that is said.
	stuckAfter = 12 * time.Second
	// turn is how long changes that keep coming are followed before something else, such as looking for drift, gets its turn.
	turn = watchEvery
	// sameTrouble is how often the log says again why something still fails, if it fails for other reasons than before.
	sameTrouble = time.Minute
)

// Syncer keeps the kernel's sets and chains as the model wants them. It is the only one that touches them.
type Syncer struct {
	model   *controller.Controller
	kernels []*kernel
	metrics *Metrics
	log     *slog.Logger
	// report is called with each policy that is not enforced as it is meant.
	report func(npc.InvalidPolicy)

	mu sync.Mutex
	// trouble says why the kernel does not hold what is wanted, or why that cannot be known; empty if it does.
	trouble string
	// enforced ends when the kernel first holds all that is wanted, with all objects known.
	enforced    context.Context
	setEnforced context.CancelFunc

	// refused are the policies that the log said to lack what the kernel refused, by namespace/name.
	refused map[string]npc.InvalidPolicy
	// unreporting is why blocked packets are not reported, as the log said it; empty if they are.
	unreporting string
	untidySince time.Time
	lastChange  time.Time
	// doing is what is being done to the kernel.
	doing progress.Tracker
	// stuckAfter is the constant, but in tests.
	stuckAfter time.Duration
	// more reports that the last sync left changes for the next one.
	more      bool
	watcher   watcher
	conflicts claims.Watcher
	// trialEnded receives when a kernel's trial has ended, or connections were deleted.
	trialEnded chan struct{}
}

// New opens the kernel of the network namespace that we run in, for the given families. An error says what is
// missing and the way out.
func New(m *controller.Controller, fs []npc.Family, b iptables.Backend, x *Metrics, log *slog.Logger,
	report func(npc.InvalidPolicy)) (*Syncer, error) {
	s := &Syncer{model: m, metrics: x, log: log, report: report, refused: map[string]npc.InvalidPolicy{},
		trialEnded: make(chan struct{}, 1), conflicts: claims.Watcher{Log: log}, watcher: watcher{gate: gate.Reporter{Log: log}},
		stuckAfter: stuckAfter}
	s.enforced, s.setEnforced = context.WithCancel(context.Background())
	for _, f := range fs {
		k, err := openKernel(f, b, &s.doing, m.IsLocal, s.noteTrial)
		if err != nil {
			s.Close()
			return nil, errors.Wrapf(err, "%s", f)
		}
		s.kernels = append(s.kernels, k)
	}
	return s, nil
}

// OnConflict sets what is called with each lasting conflict about a local pod's address. It is to be called before Run.
func (s *Syncer) OnConflict(report func(claims.Conflict)) { s.conflicts.Report = report }

// Close closes the sockets to the kernel. What is in the kernel stays.
func (s *Syncer) Close() {
	for _, k := range s.kernels {
		k.close()
	}
}

// Enforced ends when policies are enforced for the first time.
func (s *Syncer) Enforced() context.Context { return s.enforced }

// Ready says why the node is not enforced as the objects want it; empty if it is.
func (s *Syncer) Ready() string {
	if !s.model.Synced() {
		return "not all namespaces, pods and network policies have been received yet"
	}
	waiting := s.model.Waiting()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.trouble != "":
		return s.trouble
	case s.enforced.Err() == nil:
		return "the first transaction has not been applied yet" + s.doingNow()
	case waiting >= s.stuckAfter:
		return "changes have been waiting for " + waiting.Round(time.Second).String() + s.doingNow()
	}
	return ""
}

// doingNow returns what is being done to the kernel, to be put behind something else.
func (s *Syncer) doingNow() string {
	if doing := s.doing.String(); doing != "" {
		return "; " + doing
	}
	return ""
}

// Sync brings the kernel up to date until nothing is left to do now, and returns what failed. With boot, on a node without pods, it closes
// unknown local addresses before the objects are known. It must not be called while Run runs.
func (s *Syncer) Sync(ctx context.Context, boot bool) []error {
	errs := s.sync(ctx, boot)
	for s.more && ctx.Err() == nil {
		errs = append(errs, s.sync(ctx, boot)...)
	}
	return errs
}

// Run keeps the kernel up to date until the context ends. With boot, on a node without pods, unknown local
// addresses are closed before the objects are known.
func (s *Syncer) Run(ctx context.Context, boot bool) error {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	again := time.NewTimer(0) // a retry, tidying up, or what time alone changes
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.model.Wake():
			s.lastChange = time.Now()
		case <-again.C:
		case <-s.trialEnded:
		case <-watch.C:
			if !s.watch(ctx) {
				continue
			}
		}
		s.reportInvalid()
		s.sync(ctx, boot)
		again.Reset(s.nextLook())
	}
}

// DryRun writes the transactions that would be applied, once all objects are known.
func (s *Syncer) DryRun(ctx context.Context, w io.Writer) error {
	for !s.model.Synced() {
		select {
		case <-ctx.Done():
			return errors.Wrap(ctx.Err(), "waiting for all namespaces, pods and network policies")
		case <-s.model.Wake():
		}
	}
	s.reportInvalid()
	s.adopt(ctx)
	if errs := s.errors(); len(errs) > 0 {
		return errs[0]
	}
	for more := true; more; {
		more = false
		for _, tx := range s.model.Plan(true, [len(traffic.Families)]dataplane.Known{}) {
			if _, err := fmt.Fprint(w, tx); err != nil {
				return errors.Wrap(err, "writing the transactions")
			}
			s.model.Commit(tx, tx.Taken())
			for _, r := range tx.FlushConntrack {
				s.model.Forgotten(tx.Family, []netip.Addr{r.Addr})
				more = true
			}
		}
	}
	return nil
}

func (s *Syncer) reportInvalid() {
	for _, p := range s.model.Unreported() {
		s.log.Error("policy is invalid: it isolates its pods and allows nothing until it is mended",
			"policy", p.Namespace+"/"+p.Name, "reason", p.Reason)
		s.report(p)
	}
}

// sync makes the kernel what the model wants, as far as that is possible now: what failed before is not tried before its time.
// It returns what failed.
func (s *Syncer) sync(ctx context.Context, boot bool) []error {
	start := time.Now()
	for _, k := range s.kernels {
		k.errs = nil
		s.retryNamespaces(k, start)
		if k.failing != "" && k.retry.due(start) {
			s.metrics.Retries.WithLabelValues(k.family.String()).Inc()
		}
		if k.refusals.wait > 0 && k.refusals.due(start) {
			s.model.Retry(k.family)
			k.refusals.failed(start) // until it proves otherwise
		}
	}
	s.takeForgotten()
	synced := s.model.Synced()
	if !synced {
		s.adopt(ctx)
		s.apply(ctx, s.model.PlanStart(boot, s.known()))
		s.conclude(ctx, start, synced)
		return s.errors()
	}
	for s.more = true; s.more; {
		for again := true; again; {
			s.adopt(ctx)
			again = s.apply(ctx, s.model.Plan(s.tidy(), s.known()))
		}
		if s.more = s.model.Resume(); time.Since(start) >= turn {
			break
		}
	}
	s.conclude(ctx, start, synced)
	return s.errors()
}

func (s *Syncer) known() (e [len(traffic.Families)]dataplane.Known) {
	for _, k := range s.kernels {
		e[k.family] = k.known()
	}
	return e
}

func (s *Syncer) errors() (errs []error) {
	for _, k := range s.kernels {
		errs = append(errs, k.errs...)
	}
	return errs
}

// tidy says whether it is time to remove what does no harm.
func (s *Syncer) tidy() bool {
	if s.untidySince.IsZero() {
		return false
	}
	now := time.Now()
	return now.Sub(s.lastChange) >= quiet || now.Sub(s.untidySince) >= untidyFor
}

// adopt reads what is not known of the kernel, if it is time to. Chains that could not be read or written before are left alone until
// it is known that they can be.
func (s *Syncer) adopt(ctx context.Context) {
	now := time.Now()
	var due []*kernel
	for _, k := range s.kernels {
		if !k.retry.due(now) {
			continue
		}
		if !k.setsKnown {
			listings, err := k.sets.List(naming.SetPrefix)
			if err != nil {
				k.errs = append(k.errs, errors.Wrap(err, "reading the sets"))
				continue
			}
			s.model.LoadSets(k.family, listings)
			k.setsKnown = true
		}
		if k.chainsKnown {
			continue
		}
		known, err := k.tried(ctx, s.noteTrial)
		switch {
		case err != nil:
			k.errs = append(k.errs, err)
		case known:
			due = append(due, k)
		}
	}
	s.adoptChains(ctx, due)
}

// noteTrial takes note that something ended that goes on beside the syncs.
func (s *Syncer) noteTrial() {
	select {
	case s.trialEnded <- struct{}{}:
	default:
	}
}

func (s *Syncer) adoptChains(ctx context.Context, due []*kernel) {
	seen := make([]iptables.Seen, len(due))
	reads := make([]func(), len(due))
	for i, k := range due {
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
	for i, k := range due {
		if k.chainsKnown {
			s.noteNative(k, seen[i].Native)
			s.model.LoadChains(k.family, seen[i])
			if found := s.model.ForeignLayout(k.family); found != "" {
				s.log.Warn("sets and chains were written by another version: writing them anew", "family", k.family,
					"found_layout", found, "our_layout", naming.Layout)
			}
		}
	}
}

// apply carries out a transaction in every family, side by side. It says whether the kernel refused something that is now left out, so that
// there may be more to do at once.
func (s *Syncer) apply(ctx context.Context, txs [len(traffic.Families)]dataplane.Transaction) (again bool) {
	outcomes := make([]outcome, len(txs))
	var steps []func()
	for _, k := range s.kernels {
		tx := txs[k.family]
		if tx.Empty() {
			outcomes[k.family].taken = tx.Taken()
			continue
		}
		s.announce(ctx, k, tx)
		s.metrics.Transactions.WithLabelValues(k.family.String()).Inc()
		steps = append(steps, func() { outcomes[k.family] = k.apply(ctx, tx) })
	}
	sideBySide(steps)
	for _, tx := range txs {
		i := slices.IndexFunc(s.kernels, func(k *kernel) bool { return k.family == tx.Family })
		if i < 0 { // a family that this node does not have: nothing is ever to be done
			s.model.Commit(tx, tx.Taken())
			continue
		}
		again = s.settle(s.kernels[i], tx, &outcomes[tx.Family]) || again
	}
	return again
}

// sideBySide does all tasks at once, and one alone without waking another thread, which would take longer than most transactions.
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

// settle takes note of what went wrong with a transaction, and says whether something is now left out.
func (s *Syncer) settle(k *kernel, tx dataplane.Transaction, o *outcome) (leftOut bool) {
	rejected := map[string]string{}
	for _, r := range o.rejected {
		if lacksSet(r.Err) {
			// Somebody destroyed it after we made it: that is nothing against the rule.
			o.chains = append(o.chains, r.Err)
			k.setsKnown = false
			continue
		}
		rejected[r.ID] = r.Err.Error()
	}
	o.taken.RejectedRules = rejected
	sets, rules := s.model.Commit(tx, o.taken)
	for _, name := range sets {
		o.sets = append(o.sets, errors.New(o.taken.RejectedSets[name]))
	}
	for _, id := range rules {
		o.chains = append(o.chains, errors.New(rejected[id]))
	}
	leftOut = len(sets) < len(o.taken.RejectedSets) || len(rules) < len(rejected)
	leftOut = s.postponeNamespaces(k, o.namespaces) || leftOut
	k.setsKnown = k.setsKnown && len(o.sets) == 0
	k.chainsKnown = k.chainsKnown && len(o.chains) == 0
	if leftOut && len(o.namespaces) == 0 && k.refusals.wait == 0 {
		k.refusals.failed(time.Now())
	}
	k.errs = slices.Concat(k.errs, o.sets, o.chains)
	return leftOut
}

// announce logs what is going to be changed: at debug level in full, otherwise summed up, and nothing of members alone.
func (s *Syncer) announce(ctx context.Context, k *kernel, tx dataplane.Transaction) {
	if len(tx.Mismatched) > 0 {
		s.metrics.Drift.WithLabelValues(k.family.String(), "set").Inc()
		s.log.Warn("sets by our names are not ours: making them anew", "family", k.family, "found", summary(tx.Mismatched))
	}
	switch {
	case s.log.Enabled(ctx, slog.LevelDebug):
		s.log.Debug("transaction", "family", k.family, "text", tx.String())
	case !tx.OnlyMembers():
		s.log.Info("transaction", "family", k.family, slog.Any("", tx))
	}
}

// conclude takes note of how a sync ended. All that is wanted can be there only if all objects were known when it was planned.
func (s *Syncer) conclude(ctx context.Context, start time.Time, synced bool) {
	if ctx.Err() != nil {
		return // what failed was interrupted
	}
	now := time.Now()
	good := synced
	for _, k := range s.kernels {
		switch {
		case len(k.errs) > 0:
			s.fail(k, now)
		case k.known() == dataplane.AllKnown:
			s.recovered(k, now)
			s.releaseNamespaces(k)
		}
		good = good && k.steady()
	}
	s.reportRefused()
	s.setTrouble()
	if !good {
		return
	}
	if s.enforced.Err() == nil {
		s.log.Info("policies are enforced", "took", now.Sub(start))
	}
	s.setEnforced()
	s.metrics.SyncDuration.Observe(now.Sub(start).Seconds())
	s.metrics.LastSync.SetToCurrentTime()
	if at := s.model.CarriedOut(); !at.IsZero() {
		s.metrics.Latency.Observe(time.Since(at).Seconds())
	}
	switch {
	case !s.model.HasGarbage():
		s.untidySince = time.Time{}
	case s.untidySince.IsZero():
		s.untidySince = now
	}
}

// fail takes note that the kernel does not hold what is wanted, and when to try again.
func (s *Syncer) fail(k *kernel, now time.Time) {
	texts := make([]string, 0, len(k.errs))
	for _, err := range k.errs {
		s.metrics.EnforcementErrors.Inc()
		texts = append(texts, err.Error())
	}
	was := k.failing
	k.failing = summary(texts)
	if was == "" || was != k.failing && now.Sub(k.failingSaid) >= sameTrouble {
		s.log.Error("cannot bring the kernel up to date, trying again", "family", k.family, "error", k.failing)
		k.failingSaid = now
	}
	if was == "" {
		k.failingSince = now
	}
	s.metrics.Failing.WithLabelValues(k.family.String()).Set(1)
	k.retry.failed(now)
}

// recovered takes note that the kernel holds what is wanted.
func (s *Syncer) recovered(k *kernel, now time.Time) {
	if k.failing != "" {
		s.log.Info("the kernel is up to date again", "family", k.family, "after", now.Sub(k.failingSince))
	}
	k.failing = ""
	k.retry.reset()
	s.metrics.Failing.WithLabelValues(k.family.String()).Set(0)
}

// nextLook is how long it takes until there is something to do, if nothing happens.
func (s *Syncer) nextLook() time.Duration {
	if s.more {
		return 0
	}
	next := time.Now().Add(time.Hour)
	soonest := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, k := range s.kernels {
		if k.trial == nil { // whose end is told
			soonest(k.retry.at)
		}
		soonest(k.refusals.at)
		for _, h := range k.postponed {
			if !h.trying {
				soonest(h.retry.at)
			}
		}
	}
	soonest(s.model.NextChange())
	if !s.untidySince.IsZero() {
		soonest(time.Now().Add(quiet))
	}
	return max(time.Until(next), time.Millisecond)
}
