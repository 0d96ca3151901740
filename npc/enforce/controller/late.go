package controller

import (
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// late records the addresses that became local pods' and were not known as such: connections may be open that they
// began or accepted before. While weave-npc does not run for a few seconds, nothing stops these.
type late struct {
	// synced is set once all objects are known. compared is set for a family once its local pods were compared with
	// those that the kernel had at the start.
	synced   bool
	compared [len(npc.Families)]bool
	// had is set for a family if the kernel had a set of local pods at the start.
	had   [len(npc.Families)]bool
	addrs []netip.Addr
}

// load takes the sets that were read for a family.
func (x *late) load(f npc.Family, sets []ipset.Listing) {
	if !x.compared[f] {
		name := naming.FixedSet(f, naming.LocalPods)
		x.had[f] = slices.ContainsFunc(sets, func(l ipset.Listing) bool { return l.Name == name })
	}
}

// compare finds, once, the local pods that the kernel lacks. Where it lacks the set too, weave-npc is new on the node,
// and keeps what is open.
func (x *late) compare(t *dataplane.Table) {
	if !x.synced || x.compared[t.Family] || !t.Sets.Loaded() {
		return
	}
	x.compared[t.Family] = true
	if !x.had[t.Family] {
		return
	}
	for e, st := range t.Local.Differences() {
		if st.Wanted && !st.Exists {
			x.addrs = append(x.addrs, e.Prefix.Addr())
		}
	}
}

// transfer records an address that no pod had and a local one has now.
func (x *late) transfer(t index.Transfer) {
	if x.synced && t.From == nil && t.To != nil && t.To.Local() {
		x.addrs = append(x.addrs, t.Addr)
	}
}

// take returns the addresses since the last call whose connections policies may deny.
func (x *late) take(mayDeny func(netip.Addr) bool) (out []netip.Addr) {
	for _, a := range x.addrs {
		if mayDeny(a) {
			out = append(out, a)
		}
	}
	x.addrs = nil
	return out
}
