package syncer

import (
	"context"
	stderrors "errors"
	"slices"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// apply carries out a transaction step by step. A step that fails does not keep the next from being
// tried, unless that would take away what the rules still need.
func (k *kernel) apply(ctx context.Context, tx dataplane.Transaction) result {
	r := result{Result: dataplane.Result{RejectedSets: map[string]string{}}, incomplete: map[string]bool{},
		namespaces: map[string]error{}}
	r.apply(k, "revoking", tx.DeleteStale)
	r.apply(k, "closing", tx.Close)
	if r.Asked = len(r.setErrs) == 0; r.Asked {
		k.flows.Ask(tx.FlushConntrack)
	}
	r.apply(k, "growing", tx.AddMembers)
	tx.Rules = r.withoutRejected(tx.Rules)
	if r.AllWritten = r.write(ctx, k, tx); !r.AllWritten {
		r.apply(k, "shrinking", tx.DeletedWithoutRules())
		return r
	}
	r.apply(k, "admitting to", tx.AddAfterRestore)
	r.apply(k, "leaving", tx.DeleteDispatch)
	r.apply(k, "shrinking", tx.DeleteAndDestroy)
	r.apply(k, "opening", tx.Open)
	return r
}

// apply carries out operations on sets and sorts what failed.
func (r *result) apply(k *kernel, step string, ops []ipset.Op) {
	if len(ops) == 0 {
		return
	}
	defer k.doing.Begin(k.family.String(), step+" sets")()
	if slices.ContainsFunc(ops, func(op ipset.Op) bool { return op.Kind == ipset.Destroy }) {
		k.written++ // iptables cannot print a rule that it read before, and whose set is gone
	}
	err := k.sets.Apply(ops)
	var be *ipset.BatchError
	if !stderrors.As(err, &be) {
		if err != nil {
			r.setErrs = append(r.setErrs, errors.Wrapf(err, "%s sets", step))
		}
		return
	}
	for _, e := range be.Errors {
		switch {
		case e.Kind == ipset.Destroy && stderrors.Is(e.Err, ipset.ErrInUse):
			r.InUse = append(r.InUse, ops[e.Index].Set)
		case e.Kind == ipset.Create && e.Elements == nil && rejects(e.Err):
			r.RejectedSets[e.Set] = e.Error()
		case r.followsRejection(e):
		default:
			r.setErrs = append(r.setErrs, errors.Wrapf(e, "%s sets", step))
		}
	}
}

// rejects reports whether an error means that the kernel does not take the set as it is now, and not that something is
// in the way.
func rejects(err error) bool {
	var answer ipset.KernelError
	if !stderrors.As(err, &answer) {
		return false
	}
	return !stderrors.Is(err, ipset.ErrExists) && !stderrors.Is(err, ipset.ErrInUse) &&
		!stderrors.Is(err, unix.ENOMEM) &&
		!stderrors.Is(err, unix.EBUSY) && !stderrors.Is(err, unix.EAGAIN)
}

// followsRejection reports whether an error follows from a set that the kernel rejected.
func (r *result) followsRejection(e *ipset.OpError) bool {
	if _, rejected := r.RejectedSets[e.Set]; rejected {
		return true
	}
	for _, el := range e.Elements {
		if _, rejected := r.RejectedSets[el.Set]; !rejected {
			return false
		}
	}
	if len(e.Elements) > 0 {
		r.incomplete[e.Set] = true
	}
	return len(e.Elements) > 0
}

// withoutRejected returns an update without the rules that need sets which the kernel rejected. A rule that has a
// replacement needs all members of a list too: a peer that is not in the list would not be denied.
func (r *result) withoutRejected(u iptables.Update) iptables.Update {
	if len(r.RejectedSets) == 0 {
		return u
	}
	lacking := func(rule iptables.Rule) bool {
		return slices.ContainsFunc(rule.Sets(), func(name string) bool {
			_, rejected := r.RejectedSets[name]
			return rejected || rule.Instead != nil && r.incomplete[name]
		})
	}
	return u.Without(lacking)
}
