package npc

import (
	"context"
	stderrors "errors"
	"net/netip"
	"slices"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// applyTimeout bounds one iptables-restore, the wait for the lock included.
const applyTimeout = 30 * time.Second

// forgetTries is how often conntrack is read that changes while it is.
const forgetTries = 5

// kernel is one family's sets and chains. It is used by one goroutine at a time.
type kernel struct {
	family Family
	sets   *ipset.Conn
	filter *iptables.Table
	flows  *netlink.Handle
	// known says that the model knows what is there.
	known bool
	// print is what the filter table looked like after our last transaction; zero if that is not known.
	print iptables.Fingerprint
	// unread says that we wrote chains that were not read since: what their rules look like when printed is not known.
	unread bool
}

// openKernel opens the kernel of the network namespace that we run in, once per family.
func openKernel(f Family, b iptables.Backend) (*kernel, error) {
	filter, err := iptables.New(f.IPTables(), b)
	if err != nil {
		return nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	flows, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, errors.Wrap(err, "opening a netlink socket for conntrack")
	}
	return &kernel{family: f, sets: sets, filter: filter, flows: flows}, nil
}

// close closes the sockets. What is in the kernel stays.
func (k *kernel) close() {
	k.flows.Close()
	// There is nothing to do about a socket that does not close, and nothing that it would harm.
	_ = k.sets.Close()
}

// read reads everything of ours, and what may be of the original weave-npc.
func (k *kernel) read(ctx context.Context) ([]ipset.Listing, iptables.Seen, error) {
	print, err := k.filter.Fingerprint()
	if err != nil {
		return nil, iptables.Seen{}, err
	}
	seen, err := k.filter.Read(ctx, chainPrefix)
	if err != nil {
		return nil, iptables.Seen{}, err
	}
	sets, err := k.sets.List(setPrefix)
	if err != nil {
		return nil, iptables.Seen{}, err
	}
	k.print = print
	return sets, seen, nil
}

// failure is what went wrong with a transaction.
type failure struct {
	// errs are to be reported.
	errs []error
	// inUse are sets that could not be destroyed yet, which is no error.
	inUse []ipset.Set
	// unforgotten are addresses of which flows may be left.
	unforgotten []netip.Addr
	// refused is the id of a rule that the kernel did not take.
	refused string
}

// apply carries out a transaction, step by step. A step that fails does not keep the next from being
// tried, unless that would take away what the rules still need.
func (k *kernel) apply(ctx context.Context, tx Transaction) failure {
	var f failure
	f.sets(k, "revoking", tx.Revoke)
	if err := k.forget(tx.Forget); err != nil {
		f.errs = append(f.errs, err)
		f.unforgotten = tx.Forget
	}
	f.sets(k, "growing", tx.Grow)
	admit, shrink := tx.Admit, tx.Shrink
	if err := k.restore(ctx, tx.Rules); err != nil {
		f.errs = append(f.errs, err)
		var re *iptables.RestoreError
		if stderrors.As(err, &re) {
			f.refused = iptables.RuleID(re.Text)
		}
		// What the old rules allow stays closed to those that are not there yet.
		admit = nil
		// What the old rules allow by sets that are not wanted any more stays; members that are not wanted go.
		shrink = slices.DeleteFunc(slices.Clone(shrink), func(op ipset.Op) bool { return op.Kind != ipset.Delete })
	}
	f.sets(k, "admitting to", admit)
	f.sets(k, "shrinking", shrink)
	return f
}

// sets carries out operations on sets and sorts out what failed.
func (f *failure) sets(k *kernel, step string, ops []ipset.Op) {
	if len(ops) == 0 {
		return
	}
	err := k.sets.Apply(ops)
	var be *ipset.BatchError
	if !stderrors.As(err, &be) {
		if err != nil {
			f.errs = append(f.errs, errors.Wrapf(err, "%s the sets of %s", step, k.family))
		}
		return
	}
	for _, e := range be.Errors {
		if e.Kind == ipset.Destroy && stderrors.Is(e.Err, ipset.ErrInUse) {
			f.inUse = append(f.inUse, ops[e.Index].Set)
			continue
		}
		f.errs = append(f.errs, errors.Wrapf(e, "%s the sets of %s", step, k.family))
	}
}

func (k *kernel) restore(ctx context.Context, u iptables.Update) error {
	if u.Empty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	before, err := k.filter.Fingerprint()
	if err != nil {
		return err
	}
	if err := k.filter.Apply(ctx, u); err != nil {
		return err
	}
	k.unread = true
	after, err := k.filter.Fingerprint()
	if err != nil {
		return err
	}
	// Had somebody else changed anything since we last looked, the print would not be ours to remember.
	if before == k.print && k.ours(before, after) {
		k.print = after
	} else {
		k.print = iptables.Fingerprint{}
	}
	return nil
}

// ours says whether a change of the table was our transaction alone. Under nft, each makes one generation.
func (k *kernel) ours(before, after iptables.Fingerprint) bool {
	return k.filter.Backend() != iptables.NFT || after.Generation == before.Generation+1
}

// forget deletes what conntrack knows of flows from and to addresses.
func (k *kernel) forget(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	family := netlink.InetFamily(netlink.FAMILY_V4)
	if k.family == IPv6 {
		family = netlink.FAMILY_V6
	}
	_, err := k.flows.ConntrackDeleteFilters(netlink.ConntrackTable, family, flowsOf(addrs))
	for try := 1; stderrors.Is(err, netlink.ErrDumpInterrupted) && try < forgetTries; try++ {
		_, err = k.flows.ConntrackDeleteFilters(netlink.ConntrackTable, family, flowsOf(addrs))
	}
	return errors.Wrapf(err, "deleting the conntrack entries of %v", addrs)
}

// flowsOf matches the flows that have one of the addresses at either end, before or after translation.
type flowsOf []netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (addrs flowsOf) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	for _, end := range [][]byte{flow.Forward.SrcIP, flow.Forward.DstIP, flow.Reverse.SrcIP, flow.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(end); ok && slices.Contains(addrs, a.Unmap()) {
			return true
		}
	}
	return false
}
