package index

import (
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// Change is what became of the index by one event. It is valid until the next one.
type Change struct {
	// Pod is the pod that was set or deleted; nil if nothing of it changed.
	Pod *Pod
	// Reselected is set if policies may select the pod that did not before, or no longer: it became local or is local
	// no more, or it is and has other labels.
	Reselected bool
	// Edited is set if the pod was there before, and has other labels or named ports.
	Edited bool
	// WasLocal is set if the pod was local before.
	WasLocal bool
	// Transfers are the addresses that changed hands, in order.
	Transfers []Transfer
	// Others are pods besides Pod that may belong to other sets, or wait for an address.
	Others []*Pod
}

// Transfer is an address that changed hands. From is nil if no pod owned it, To if none does now.
type Transfer struct {
	Addr netip.Addr
	// Family is the address's, and Entry the address as sets have it.
	Family   npc.Family
	Entry    ipset.Entry
	From, To *Pod
	// WasLocal is set if a local pod owned the address.
	WasLocal bool
	// WasPeer is set if a set had the address that rules ask.
	WasPeer bool
}

// Affected returns the pods that may belong to other sets, or wait for an address: Pod and Others.
func (c *Change) Affected() []*Pod {
	if c.Pod == nil {
		return c.Others
	}
	return append(c.Others, c.Pod)
}

// affects adds a pod to those that the change may have moved.
func (c *Change) affects(p *Pod) {
	if p != c.Pod && !slices.Contains(c.Others, p) {
		c.Others = append(c.Others, p)
	}
}
