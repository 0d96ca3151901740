package syncer

import (
	"context"
	stderrors "errors"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// result is what became of a transaction.
type result struct {
	rules written
	// sets are errors of operations on sets.
	sets []error
	// asked is set if the connections of addresses that changed hands are being deleted. They are not while the kernel may still hold
	// what the addresses had for their former pods.
	asked bool
	// inUse are sets that could not be destroyed yet, which is no error.
	inUse []ipset.Set
	// rejectedSets are names of sets that the kernel does not take -> why.
	rejectedSets map[string]string
}

// apply carries out a transaction step by step. A step that fails does not keep the next from being
// tried, unless that would take away what the rules still need.
func (k *kernel) apply(ctx context.Context, tx dataplane.Transaction) result {
	r := result{rejectedSets: map[string]string{}}
	r.apply(k, "revoking", tx.DeleteStale)
	if r.asked = len(r.sets) == 0; r.asked {
		k.flows.Ask(tx.FlushConntrack)
	}
	r.apply(k, "growing", tx.AddMembers)
	tx.Rules = r.withoutRejected(tx.Rules)
	if r.rules = k.write(ctx, tx); !r.rules.all {
		r.apply(k, "shrinking", tx.DeletedWithoutRules())
		return r
	}
	r.apply(k, "admitting to", tx.AddAfterRestore)
	r.apply(k, "leaving", tx.DeleteDispatch)
	r.apply(k, "shrinking", tx.DeleteAndDestroy)
	return r
}

// apply carries out operations on sets and sorts what failed.
func (r *result) apply(k *kernel, step string, ops []ipset.Op) {
	if len(ops) == 0 {
		return
	}
	defer k.doing.Begin(k.family.String(), step+" sets")()
	err := k.sets.Apply(ops)
	var be *ipset.BatchError
	if !stderrors.As(err, &be) {
		if err != nil {
			r.sets = append(r.sets, errors.Wrapf(err, "%s sets", step))
		}
		return
	}
	for _, e := range be.Errors {
		switch {
		case e.Kind == ipset.Destroy && stderrors.Is(e.Err, ipset.ErrInUse):
			r.inUse = append(r.inUse, ops[e.Index].Set)
		case e.Kind == ipset.Create && e.Elements == nil && rejects(e.Err):
			r.rejectedSets[e.Set] = e.Error()
		case r.followsRejection(e):
		default:
			r.sets = append(r.sets, errors.Wrapf(e, "%s sets", step))
		}
	}
}

// rejects reports whether an error means that the kernel does not take the set as it is now, and not that something is in the way.
func rejects(err error) bool {
	var answer ipset.KernelError
	if !stderrors.As(err, &answer) {
		return false
	}
	return !stderrors.Is(err, ipset.ErrExists) && !stderrors.Is(err, ipset.ErrInUse) && !stderrors.Is(err, unix.ENOMEM) &&
		!stderrors.Is(err, unix.EBUSY) && !stderrors.Is(err, unix.EAGAIN)
}

// followsRejection reports whether an error follows from a set that the kernel rejected.
func (r *result) followsRejection(e *ipset.OpError) bool {
	if _, rejected := r.rejectedSets[e.Set]; rejected {
		return true
	}
	return len(e.Elements) > 0 && !slices.ContainsFunc(e.Elements, func(el ipset.Element) bool {
		_, rejected := r.rejectedSets[el.Set]
		return !rejected
	})
}

// withoutRejected returns an update without the rules that need sets which the kernel rejected.
func (r *result) withoutRejected(u iptables.Update) iptables.Update {
	if len(r.rejectedSets) == 0 {
		return u
	}
	lacking := func(rule iptables.Rule) bool {
		return slices.ContainsFunc(rule.Sets(), func(name string) bool { _, rejected := r.rejectedSets[name]; return rejected })
	}
	return u.Without(lacking)
}

// lacksSet reports whether iptables did not take a rule because a set of that name does not exist.
func lacksSet(err error) bool {
	return strings.Contains(err.Error(), ": Set "+naming.SetPrefix) && strings.Contains(err.Error(), " doesn't exist")
}
