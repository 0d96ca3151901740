package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/progress"
)

const (
	// Tries at the rules of a namespace that could not be written wait between these, doubling.
	postponedFirst = 5 * time.Second
	postponedLast  = 5 * time.Minute
	// tryTimeout bounds the look at whether anything can be written at all.
	tryTimeout = 2 * time.Second
)

// postponement is why the rules of a namespace could not be written, and when they are tried again.
type postponement struct {
	why    string
	since  time.Time
	retry  backoff
	trying bool
}

// write writes the rules of a transaction, part by part, and reports whether all of them were written. What fails for one namespace alone
// concerns no other, but leaves the way to all of them as it is.
func (k *kernel) write(ctx context.Context, tx dataplane.Transaction, o *outcome) bool {
	parts := tx.Restores(maxRestore)
	o.namespaces = map[string]error{}
	for i := 0; i < len(parts); i++ {
		part := parts[i]
		if i == len(parts)-1 && len(o.namespaces) > 0 && len(part.Groups) == 0 {
			return false
		}
		what := "writing the way to the rules of namespaces"
		if len(part.Groups) > 0 {
			what = "writing the rules of namespaces " + progress.List(part.Groups, namedDrifts)
		}
		end := k.doing.Begin(k.family.String(), what)
		refused, err := k.restore(ctx, part.Update)
		end()
		o.rejected = append(o.rejected, refused...)
		if err == nil {
			o.taken.Written = append(o.taken.Written, part.Update)
			continue
		}
		alone := iptables.Update{Replace: part.Replace, Insert: part.Insert}.Cut(0, func(chain string) string { return tx.Namespaces[chain] })
		switch {
		case len(refused) > 0 || len(part.Groups) == 0 || ctx.Err() != nil || k.writable(ctx) != nil:
			o.chains = append(o.chains, err)
			return false
		case len(parts) == 1 && len(alone)+len(part.Jumps)+len(part.Delete) > 1:
			parts, i = tx.Restores(0), -1
		case len(part.Groups) == 1:
			o.namespaces[part.Groups[0]] = err
		default:
			parts = slices.Concat(parts[:i], alone, parts[i+1:])
			i--
		}
	}
	return len(o.namespaces) == 0
}

// writable returns an error if nothing at all can be written now.
func (k *kernel) writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return k.filter.Try(ctx)
}

// postponeNamespaces leaves the rules of namespaces that could not be written for later, and reports whether more can be done without them.
func (s *Syncer) postponeNamespaces(k *kernel, failed map[string]error) (more bool) {
	now := time.Now()
	for ns, err := range failed {
		h := k.postponed[ns]
		if h != nil && !h.trying { // not even a chain without rules could be written
			k.errs = append(k.errs, errors.Wrapf(err, "closing %s", ns))
			continue
		}
		more = true
		if h == nil {
			h = &postponement{since: now, retry: backoff{first: postponedFirst, last: postponedLast}}
			k.postponed[ns] = h
			s.log.Error("cannot write the rules of a namespace, trying again later", "family", k.family, "namespace", ns, "error", err.Error())
		}
		h.why, h.trying = err.Error(), false
		h.retry.failed(now)
		s.model.Postpone(k.family, ns, true)
		s.metrics.EnforcementErrors.Inc()
		k.chainsKnown = false // one that was killed may have written them
	}
	return more
}

// retryNamespaces has the rules of namespaces written again for which it is time.
func (s *Syncer) retryNamespaces(k *kernel, now time.Time) {
	for ns, h := range k.postponed {
		if !h.trying && h.retry.due(now) {
			h.trying = true
			s.model.Postpone(k.family, ns, false)
			s.metrics.Retries.WithLabelValues(k.family.String()).Inc()
		}
	}
}

// releaseNamespaces forgets the namespaces whose rules were written at last.
func (s *Syncer) releaseNamespaces(k *kernel) {
	for ns, h := range k.postponed {
		if h.trying && k.known() == dataplane.AllKnown {
			delete(k.postponed, ns)
			s.log.Info("the rules of a namespace are written again", "family", k.family, "namespace", ns, "after", time.Since(h.since))
		}
	}
}

// postponedTrouble returns in words which namespaces lack their rules; empty if none does.
func (k *kernel) postponedTrouble() string {
	if len(k.postponed) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(k.postponed))
	return fmt.Sprintf("the rules of these namespaces cannot be written: %s: %s (%s: %s)", k.family, progress.List(names, namedDrifts),
		names[0], k.postponed[names[0]].why)
}
