package syncer

import (
	"context"
	stderrors "errors"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// cleanupTries is how often a set is tried to be destroyed that rules just removed may still refer to.
const cleanupTries = 20

// Cleanup removes every chain and set of weave-npc from the current network namespace, and from the given tables,
// together with what the original weave-npc left behind and the rules that jump to either. It changes nothing else. It
// describes what it removed.
func Cleanup(ctx context.Context, tables []*iptables.Table) (removed []string, err error) {
	for _, t := range tables {
		seen, err := t.Read(ctx, naming.ChainPrefix)
		if err != nil {
			return removed, err
		}
		u := iptables.Update{Jumps: iptables.Referrers(seen, naming.ChainPrefix)}
		for _, j := range u.Jumps {
			for _, rule := range j.Stale {
				removed = append(removed, t.String()+" rule "+rule)
			}
		}
		for name := range seen.Chains {
			u.Delete = append(u.Delete, name)
			removed = append(removed, t.String()+" chain "+name)
		}
		if err := t.Apply(ctx, u); err != nil {
			return removed, errors.Wrapf(err, "removing the chains of weave-npc from %s", t)
		}
	}
	sets, err := cleanupSets(ctx)
	removed = append(removed, sets...)
	if err != nil {
		return removed, err
	}
	ours, err := ports.Tables{}.Remove()
	for _, t := range ours {
		removed = append(removed, "nftables "+t)
	}
	return removed, err
}

// cleanupSets destroys the sets of weave-npc, sets of sets first.
func cleanupSets(ctx context.Context) (removed []string, err error) {
	conn, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	headers, err := conn.Headers(naming.SetPrefix)
	if err != nil {
		return nil, errors.Wrap(err, "listing the sets")
	}
	var lists, others []ipset.Op
	for _, h := range headers {
		if !naming.IsOurSet(h.Name) && !naming.IsAncestorSet(h.Name) {
			continue
		}
		removed = append(removed, "set "+h.Name)
		op := ipset.Op{Kind: ipset.Destroy, Set: h.Set}
		if h.Type == ipset.ListSet {
			lists = append(lists, op)
		} else {
			others = append(others, op)
		}
	}
	ops := slices.Concat(lists, others)
	for try := 1; ; try++ {
		err := conn.Apply(ops)
		// Rules that are gone for iptables may still be on their way out in the kernel.
		if err == nil || try == cleanupTries || !stderrors.Is(err, ipset.ErrInUse) {
			return removed, errors.Wrap(err, "destroying the sets of weave-npc")
		}
		select {
		case <-ctx.Done():
			return removed, errors.Wrap(err, "destroying the sets of weave-npc")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
