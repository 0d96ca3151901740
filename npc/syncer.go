package npc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/iptables"
)

const (
	// quiet is how long nothing may change before we tidy up, untidyFor how long that is put off at most.
	quiet     = time.Second
	untidyFor = 30 * time.Second
	// Retries wait between these, doubling.
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
	// refusedFor is how long a rule is left out that the kernel refused.
	refusedFor = time.Minute
)

// Syncer keeps the kernel's sets and chains as the model wants them. It is the only one that touches them.
type Syncer struct {
	model   *Model
	kernels []*kernel
	metrics *Metrics
	log     *slog.Logger
	// report is called with each policy that could not be compiled.
	report func(InvalidPolicy)

	mu sync.Mutex
	// failing says why the kernel does not hold what is wanted; empty if it does.
	failing string
	// enforced ends when the kernel first holds all that is wanted, with all objects known.
	enforced    context.Context
	setEnforced context.CancelFunc
	// refused says whose rules the kernel refused.
	refused []string

	backoff      time.Duration
	retryAt      time.Time
	refusedUntil time.Time
	untidySince  time.Time
	lastChange   time.Time
	watcher      watcher
}

// NewSyncer opens the kernel of the network namespace that we run in, for the given families. An error says what is
// missing and the way out.
func NewSyncer(m *Model, fs []Family, b iptables.Backend, x *Metrics, log *slog.Logger,
	report func(InvalidPolicy)) (*Syncer, error) {
	s := &Syncer{model: m, metrics: x, log: log, report: report}
	s.enforced, s.setEnforced = context.WithCancel(context.Background())
	for _, f := range fs {
		k, err := openKernel(f, b)
		if err != nil {
			return nil, errors.Wrapf(err, "%s", f)
		}
		s.kernels = append(s.kernels, k)
	}
	return s, nil
}

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
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failing != "":
		return "the kernel cannot be brought up to date: " + s.failing
	case s.enforced.Err() == nil:
		return "the first transaction has not been applied yet"
	case len(s.refused) > 0:
		return "the kernel refuses rules of " + strings.Join(s.refused, ", ")
	}
	return ""
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
		case <-watch.C:
			if !s.watch(ctx) {
				continue
			}
		}
		s.reportInvalid()
		if time.Now().Before(s.retryAt) {
			continue // again is set to that time
		}
		if errs := s.sync(ctx, boot); len(errs) > 0 {
			s.fail(errs)
		}
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
	if err := s.adopt(ctx); err != nil {
		return err
	}
	for _, tx := range s.model.Plan(true) {
		if _, err := fmt.Fprint(w, tx); err != nil {
			return errors.Wrap(err, "writing the transactions")
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

// sync makes the kernel what the model wants.
func (s *Syncer) sync(ctx context.Context, boot bool) []error {
	if !s.refusedUntil.IsZero() && time.Now().After(s.refusedUntil) {
		s.refusedUntil = time.Time{}
		s.setRefused(nil)
		s.model.Retry()
	}
	if err := s.adopt(ctx); err != nil {
		return []error{err}
	}
	if !s.model.Synced() {
		return s.apply(ctx, s.model.PlanStart(boot))
	}
	for {
		start := time.Now()
		errs := s.apply(ctx, s.model.Plan(s.tidy()))
		if len(errs) > 0 {
			return errs
		}
		s.succeed(time.Since(start))
		if !s.model.Resume() {
			return nil
		}
	}
}

// tidy says whether it is time to remove what does no harm.
func (s *Syncer) tidy() bool {
	if s.untidySince.IsZero() {
		return false
	}
	now := time.Now()
	return now.Sub(s.lastChange) >= quiet || now.Sub(s.untidySince) >= untidyFor
}

// adopt reads what is not known of the kernel.
func (s *Syncer) adopt(ctx context.Context) error {
	for _, k := range s.kernels {
		if k.known {
			continue
		}
		sets, seen, err := k.read(ctx)
		if err != nil {
			return errors.Wrapf(err, "reading what %s has", k.family)
		}
		s.model.Adopt(k.family, sets, seen)
		k.known = true
	}
	return nil
}

// apply carries out a transaction in every family, side by side.
func (s *Syncer) apply(ctx context.Context, txs [len(families)]Transaction) []error {
	failures := make([]failure, len(s.kernels))
	var g errgroup.Group
	for i, k := range s.kernels {
		if tx := txs[k.family]; !tx.Empty() {
			s.announce(ctx, k, tx)
			s.metrics.Transactions.WithLabelValues(k.family.String()).Inc()
			g.Go(func() error {
				failures[i] = k.apply(ctx, tx)
				return nil
			})
		}
	}
	_ = g.Wait() // failures has what went wrong
	var errs []error
	for i, k := range s.kernels {
		f := failures[i]
		for _, set := range f.inUse {
			s.model.Keep(k.family, set)
		}
		s.model.ForgetAgain(k.family, f.unforgotten)
		if len(f.errs) > 0 {
			k.known = false
			s.isolateRule(k, f)
		}
		errs = append(errs, f.errs...)
	}
	return errs
}

// announce logs what is going to be changed: at debug level in full, otherwise summed up, and nothing of members alone.
func (s *Syncer) announce(ctx context.Context, k *kernel, tx Transaction) {
	switch {
	case s.log.Enabled(ctx, slog.LevelDebug):
		s.log.Debug("transaction", "family", k.family, "text", tx.String())
	case !tx.onlyMembers():
		s.log.Info("transaction", "family", k.family, slog.Any("", tx))
	}
}

// isolateRule leaves out a rule that the kernel refused, so that everything else goes through at once.
func (s *Syncer) isolateRule(k *kernel, f failure) {
	if f.refused == "" {
		return
	}
	owner, ok := s.model.Refuse(k.family, f.refused)
	if !ok {
		return
	}
	s.log.Error("the kernel refuses a rule: it is left out", "family", k.family, "policy", owner, "error", f.errs[0])
	s.setRefused(append(s.refused, owner))
	s.refusedUntil = time.Now().Add(refusedFor)
	s.backoff = 0
}

func (s *Syncer) setRefused(owners []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = owners
}

// fail takes note that the kernel does not hold what is wanted, and when to try again.
func (s *Syncer) fail(errs []error) {
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		s.metrics.EnforcementErrors.Inc()
		texts = append(texts, err.Error())
	}
	text := strings.Join(texts, "; ")
	s.mu.Lock()
	news := text != s.failing
	s.failing = text
	s.mu.Unlock()
	if news {
		s.log.Error("cannot bring the kernel up to date, trying again", "error", text)
	}
	s.backoff = min(max(2*s.backoff, retryFirst), retryLast)
	s.retryAt = time.Now().Add(s.backoff/2 + rand.N(s.backoff/2))
}

// succeed takes note that the kernel holds what is wanted.
func (s *Syncer) succeed(took time.Duration) {
	s.mu.Lock()
	was, first := s.failing, s.enforced.Err() == nil
	s.failing = ""
	s.mu.Unlock()
	s.setEnforced()
	switch {
	case first:
		s.log.Info("policies are enforced", "took", took)
	case was != "":
		s.log.Info("the kernel is up to date again")
	}
	s.backoff, s.retryAt = 0, time.Time{}
	s.metrics.SyncDuration.Observe(took.Seconds())
	s.metrics.LastSync.SetToCurrentTime()
	switch {
	case !s.model.Untidy():
		s.untidySince = time.Time{}
	case s.untidySince.IsZero():
		s.untidySince = time.Now()
	}
}

// nextLook is how long it takes until there is something to do, if nothing happens.
func (s *Syncer) nextLook() time.Duration {
	next := time.Now().Add(time.Hour)
	soonest := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	soonest(s.retryAt)
	soonest(s.refusedUntil)
	soonest(s.model.NextChange())
	if !s.untidySince.IsZero() {
		soonest(time.Now().Add(quiet))
	}
	return max(time.Until(next), time.Millisecond)
}
