package controller

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Lookup answers what readers ask. It changes nothing except what Unreported has returned.
type Lookup struct{ c *Controller }

// Lookup returns what readers ask: names for addresses, uses of sets, what is closed and why.
func (c *Controller) Lookup() Lookup { return Lookup{c} }

// NameOf returns the pod that has an address, as namespace/name; "node" for an address of a node; empty for any other.
func (l Lookup) NameOf(a netip.Addr) string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.index.NameOf(a)
}

// PodAt returns the pod that has an address, with that address alone, and whether there is one.
func (l Lookup) PodAt(a netip.Addr) (npc.Pod, bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	p := l.c.state.index.Addresses.Owner(a)
	if p == nil {
		return npc.Pod{}, false
	}
	f := p.Facts()
	f.Addrs = []netip.Addr{a}
	return f, true
}

// IsLocal reports whether an address is a local pod's.
func (l Lookup) IsLocal(a netip.Addr) bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.index.Addresses.IsLocal(a)
}

// InRange reports whether an address may be that of a local pod.
func (l Lookup) InRange(a netip.Addr) bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.failClosed.Ranges.Contains(a)
}

// Isolating returns the policies that isolate the local pod with an address in a direction, as namespace/name, sorted;
// at most as many as a rule's comment names.
func (l Lookup) Isolating(a netip.Addr, d npc.Direction) []string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	q := l.c.state.index.Addresses.Owner(a)
	if q == nil || !q.Local() {
		return nil
	}
	out := l.c.state.isolation.Isolating(q, d)
	return out[:min(len(out), naming.MaxNamed)]
}

// AnyIsolated reports whether a local pod is isolated in some direction.
func (l Lookup) AnyIsolated() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	f := l.c.state.facts()
	return f.Isolated[npc.Ingress] > 0 || f.Isolated[npc.Egress] > 0
}

// Closed returns which addresses the fail-closed filter drops packets of in a direction, and why; both are empty if it
// is open, or if nothing is known that it could close.
func (l Lookup) Closed(d npc.Direction) (what, why string) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.failClosed.Closed(d, l.c.state.facts())
}

// Unlisted returns the addresses that isolated local pods have and no object lists, as "address of namespace/name", in
// order. They are closed.
func (l Lookup) Unlisted() (out []string) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, u := range l.c.state.failClosed.Unlisted() {
		out = append(out, u.Addr.String()+" of "+u.Pod)
	}
	return out
}

// Alive returns the operation that renews the set of a family which shows that weave-npc runs. The set is made with
// these elements, which expire.
func (l Lookup) Alive(f npc.Family) ipset.Op {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.failClosed.Alive(f)
}

// FailClosedMode returns when the fail-closed filter drops packets.
func (l Lookup) FailClosedMode() enforce.FailClosedMode { return l.c.state.config.FailClosed }

// OutOfRangePods returns local pods whose addresses are not in the node's range of their family, as namespace/name,
// sorted; at most as many as a comment names. Before such an address is known, its packets are not seen.
func (l Lookup) OutOfRangePods() []string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	var out []string
	for p := range l.c.state.index.LocalPods() {
		if l.c.state.failClosed.OutOfRange(p) {
			out = append(out, p.String())
		}
	}
	slices.Sort(out)
	return out[:min(len(out), naming.MaxNamed)]
}

// NoPodRange reports whether there are local pods whose addresses cannot be identified before they are known.
func (l Lookup) NoPodRange() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.synced && l.c.state.failClosed.Ranges.Unknown() && l.c.state.index.Addresses.AnyLocal()
}

// Conflicts returns the claims of local pods to addresses that something contradicts, in order.
func (l Lookup) Conflicts() []ipowner.Conflict {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.index.Conflicts()
}

// Unreported returns the invalid policies, cluster network policies among them, that were not returned before.
func (l Lookup) Unreported() []enforce.InvalidPolicy {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return append(l.c.state.isolation.Unreported(), l.c.state.tiers.Unreported()...)
}

// Inert returns the names of the cluster network policies that decide nothing, because they are not understood, in
// order.
func (l Lookup) Inert() []string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.tiers.Inert()
}

// Rejected returns the policies with a rule that the kernel rejects, or a set that a rule needs, in order.
func (l Lookup) Rejected() []enforce.InvalidPolicy {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	found := map[string]enforce.InvalidPolicy{}
	reject := func(o *dataplane.Owner, why string) {
		found[o.String()] = enforce.InvalidPolicy{Namespace: o.Namespace, Name: o.Name, UID: o.UID,
			Reason: why, Refused: true,
			Cluster: o.Namespace == ""}
	}
	for _, t := range l.c.state.tables {
		if !t.Rejecting() {
			continue
		}
		for o, why := range t.Rejected() {
			reject(o, why)
		}
		l.c.state.isolation.Unreachable(t.Family, reject)
	}
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b enforce.InvalidPolicy) int {
		return strings.Compare(npc.ObjectKey(a.Namespace, a.Name), npc.ObjectKey(b.Namespace, b.Name))
	})
	return out
}

// LoggingRejected returns why packets that are dropped are not reported, in some family and direction; empty if they
// are.
func (l Lookup) LoggingRejected() string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, t := range l.c.state.tables {
		if why := t.LoggingRejected(); why != "" {
			return why
		}
	}
	return ""
}

// SetUse is what a set is for.
type SetUse struct {
	// About describes what the set holds: a selector, an address block, the local pods.
	About string
	// Policies are those whose rules ask the set, as namespace/name, sorted; none for a set that every node has.
	Policies []string
}

// Uses returns what the sets are for: name -> use. Of a set that is not there because no local pod has an address of
// its family, the name that it would have is among them.
func (l Lookup) Uses() map[string]SetUse {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.state.isolation.Write()
	uses := map[string]SetUse{}
	for _, t := range l.c.state.tables {
		for s := range t.Sets.Wanted() {
			uses[s.Name] = SetUse{About: s.About()}
		}
	}
	for _, use := range slices.Concat(l.c.state.index.Sets.Uses(), l.c.state.isolation.Uses()) {
		uses[use.Set.Name] = SetUse{use.Set.About(), names(use.Users)}
	}
	return uses
}

// names returns the names of policies, sorted.
func names(policies map[*dataplane.Owner]int) []string {
	all := map[string]struct{}{}
	for o := range policies {
		all[o.String()] = struct{}{}
	}
	return slices.Sorted(maps.Keys(all))
}

// ChainUse returns what a chain is for; empty if it is not desired.
func (l Lookup) ChainUse(name string) string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, t := range l.c.state.tables {
		if about := t.Chains.About(name); about != "" {
			return about
		}
	}
	return ""
}
