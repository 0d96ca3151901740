// Package binding keeps pods from sending with addresses that are not theirs.
//
//	ports that lead to pods, and what is behind them (host) ──┐
//	which pod has which address (API) ────────────────────────┴─▶ bindings.decide ─▶ Guard ─▶ tables (iptables/ports)
//	                                         forged sources ◀── Reporter ◀── Guard ◀──────────┘
//
//	bindings   decides which addresses are bound to which port
//	Guard      follows the interfaces of the node, and keeps the tables as the bindings demand
//	Reporter   logs, counts and passes on which pods send with addresses that are not theirs
//
// An address is bound only if both the kernel has it behind the port and the API says that the pod has it: a pod can
// change what the kernel has, and a Pod object does not say which port is the pod's.
package binding

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
)

// maxAddrs bounds the addresses that are kept of one port. A pod that gives itself more keeps its first ones.
const maxAddrs = 64

// port is what is known of a port.
type port struct {
	host.Port
	behind host.Behind
	// mac is the hardware address of the sources.
	mac ports.MAC
	// settled is set if the addresses behind it were the same at the last two looks.
	settled bool
	// owner is the pod behind the port; zero while it is not known.
	owner Owner
	// seen holds the addresses that the kernel has had behind the port, in the order they came, and bound those of them
	// that the API said are the pod's. Both end with the interface: a runtime may take the address away from it.
	seen, bound []netip.Addr
}

// bindings decides which addresses are whose port's.
type bindings struct {
	api    API
	config Config
	ports  map[int]*port // by index
}

// newBindings returns bindings that go on from the sources that the kernel's tables hold.
func newBindings(api API, config Config, kept map[ports.Source]string) *bindings {
	b := &bindings{api: api, config: config, ports: map[int]*port{}}
	for s, name := range kept {
		p := b.port(s.Port)
		p.mac = s.MAC
		namespace, pod, known := strings.Cut(name, "/")
		if !known || s.Addr.IsLinkLocalUnicast() || b.ofOperator(s.Addr) {
			continue // the kernel decides alone, each time
		}
		p.owner.Namespace, p.owner.Name = namespace, pod
		p.seen, p.bound = append(p.seen, s.Addr), append(p.bound, s.Addr)
	}
	return b
}

// ofOperator reports whether an address is in a prefix that the operator named.
func (b *bindings) ofOperator(a netip.Addr) bool {
	return slices.ContainsFunc(b.config.Prefixes, func(q netip.Prefix) bool { return q.Contains(a) })
}

func (b *bindings) port(index int) *port {
	p := b.ports[index]
	if p == nil {
		p = &port{}
		b.ports[index] = p
	}
	return p
}

// setPorts takes the ports that there are. What was known of others is forgotten.
func (b *bindings) setPorts(list []host.Port) {
	now := make(map[int]*port, len(list))
	for _, h := range list {
		p := b.port(h.Index)
		p.Port = h
		now[h.Index] = p
	}
	b.ports = now
}

// setBehind takes what the kernel has behind a port.
func (b *bindings) setBehind(index int, behind host.Behind) {
	p := b.ports[index]
	if p == nil {
		return
	}
	p.settled = slices.Equal(p.behind.Addrs, behind.Addrs)
	p.behind = behind
	for _, a := range behind.Addrs {
		if !a.IsLinkLocalUnicast() && !slices.Contains(p.seen, a) && len(p.seen) < maxAddrs {
			p.seen = append(p.seen, a)
		}
	}
}

// result is what decide finds.
type result struct {
	// Bound are the indexes of the ports whose sources are bound, and Sources these sources with their pods.
	Bound   []int
	Sources map[ports.Source]string
	// Routing are the indexes of the ports of pods that route.
	Routing []int
	// Unbound holds the other ports -> why their sources are not bound.
	Unbound map[int]unboundReason
	// Unlisted are addresses behind the port of a pod that the API gives to nobody -> the pod.
	Unlisted map[netip.Addr]types.UID
}

// decide returns what the tables should hold.
func (b *bindings) decide(taken []ports.MAC) result {
	r := result{Sources: map[ports.Source]string{}, Unbound: map[int]unboundReason{}, Unlisted: map[netip.Addr]types.UID{}}
	sorted := b.sorted()
	b.findOwners(sorted)
	b.updateMACs(sorted, taken)
	holders := b.holders(sorted)
	for _, p := range sorted {
		if slices.Contains(b.config.Routing, p.owner.Namespace) {
			r.Routing = append(r.Routing, p.Index)
			r.Unbound[p.Index] = routing
			continue
		}
		addrs := b.addrsOf(p, holders)
		if why := b.unbound(p, addrs, sorted); why != "" {
			r.Unbound[p.Index] = why
			continue
		}
		r.Bound = append(r.Bound, p.Index)
		for _, a := range addrs {
			r.Sources[ports.Source{Port: p.Index, MAC: p.mac, Addr: a}] = p.name()
		}
		b.addUnlisted(p, r.Unlisted)
	}
	return r
}

// sorted returns the ports by index: the kernel gives later interfaces higher ones.
func (b *bindings) sorted() []*port {
	out := make([]*port, 0, len(b.ports))
	for _, p := range b.ports {
		out = append(out, p)
	}
	slices.SortFunc(out, func(p, q *port) int { return cmp.Compare(p.Index, q.Index) })
	return out
}

// name returns the pod's name, or a note for an address that no pod is known to have yet.
func (p *port) name() string {
	if p.owner.Name == "" {
		return "not known yet"
	}
	return p.owner.String()
}

// findOwners finds the pods behind the ports, and binds the addresses that the API says they have. The first address
// of a port that is a local pod's decides: a pod can add addresses only after the network was made for it. Who has an
// address keeps it, unless the API gives it to another pod by now, whose port has it too.
func (b *bindings) findOwners(sorted []*port) {
	byAddr, byPod := map[netip.Addr]*port{}, map[types.UID]*port{}
	for _, p := range sorted {
		byPod[p.owner.UID] = cmp.Or(byPod[p.owner.UID], p)
		for _, a := range p.bound {
			byAddr[a] = cmp.Or(byAddr[a], p)
		}
	}
	for _, p := range sorted {
		for _, a := range p.seen {
			o, found := b.api.Owner(a)
			if !found || !o.Local || p.owner.Name != "" && !p.owner.remade(o) {
				continue
			}
			if q := byAddr[a]; q != nil && q != p {
				if q.owner.remade(o) || b.lives(q) {
					continue
				}
				q.bound = slices.DeleteFunc(q.bound, func(b netip.Addr) bool { return a == b })
				byAddr[a] = nil
			}
			if q := byPod[o.UID]; q != nil && q != p {
				continue
			}
			delete(byPod, p.owner.UID)
			p.owner, byPod[o.UID] = o, p
			if byAddr[a] == nil {
				p.bound, byAddr[a] = append(p.bound, a), p
			}
		}
	}
}

// lives reports whether the API still gives the pod of a port one of the port's addresses.
func (b *bindings) lives(p *port) bool {
	return slices.ContainsFunc(p.bound, func(a netip.Addr) bool {
		o, found := b.api.Owner(a)
		return found && o.remade(p.owner)
	})
}

// updateMACs follows the hardware addresses behind the ports of bridges. A pod does not get one that another port or
// another interface of the node has.
func (b *bindings) updateMACs(sorted []*port, taken []ports.MAC) {
	held := map[ports.MAC]*port{}
	for _, p := range sorted {
		if p.mac != (ports.MAC{}) && held[p.mac] == nil {
			held[p.mac] = p
		}
	}
	for _, p := range sorted {
		if !p.Bridge || len(p.behind.MAC) != len(p.mac) {
			continue
		}
		now := ports.MAC(p.behind.MAC)
		if q := held[now]; now == p.mac || q != nil && q != p || slices.Contains(taken, now) {
			continue
		}
		if held[p.mac] == p {
			delete(held, p.mac)
		}
		p.mac, held[now] = now, p
	}
}

// link is an address on a network: link-local addresses are unique on one bridge only.
type link struct {
	network int
	addr    netip.Addr
}

// on returns an address on the network of a port.
func (p *port) on(a netip.Addr) link {
	if !a.IsLinkLocalUnicast() || p.Bridge {
		return link{addr: a}
	}
	return link{p.Index, a}
}

// holders returns which port has an address: that which it is bound to or, of those that show it, the first.
func (b *bindings) holders(sorted []*port) map[link]*port {
	out := map[link]*port{}
	put := func(p *port, addrs []netip.Addr) {
		for _, a := range addrs {
			if at := p.on(a); out[at] == nil {
				out[at] = p
			}
		}
	}
	for _, addrs := range []func(*port) []netip.Addr{
		func(p *port) []netip.Addr { return p.bound },
		func(p *port) []netip.Addr { return p.behind.Addrs },
		func(p *port) []netip.Addr { return p.behind.Elsewhere },
	} {
		for _, p := range sorted {
			put(p, addrs(p))
		}
	}
	return out
}

// addrsOf returns the addresses that frames of a port may come from: those that were bound, its link-local ones, those
// of the operator's prefixes and, while its pod is not known, those that may be the pod's. The network of a pod is made
// in steps: what is sent from an address that is about to be seen must not be lost, so the addresses have to settle.
func (b *bindings) addrsOf(p *port, holders map[link]*port) []netip.Addr {
	out := slices.Clone(p.bound)
	put := func(a netip.Addr) {
		if len(out) < maxAddrs && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range p.behind.Addrs {
		_, owned := b.api.Owner(a)
		switch {
		case holders[p.on(a)] != p:
		case a.IsLinkLocalUnicast(), !owned && b.ofOperator(a), !owned && p.owner.UID == "" && p.settled && b.api.InRange(a):
			put(a)
		}
	}
	for _, a := range p.behind.Elsewhere {
		if _, owned := b.api.Owner(a); !owned && b.ofOperator(a) && !a.IsLinkLocalUnicast() {
			if q := holders[link{addr: a}]; q.NetNSID == p.NetNSID {
				put(a)
			}
		}
	}
	return out
}

// unbound returns why the sources of a port are not bound; empty if they are.
func (b *bindings) unbound(p *port, addrs []netip.Addr, sorted []*port) unboundReason {
	global := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() })
	switch {
	case global && (!p.Bridge || p.mac != ports.MAC{}):
		return ""
	case slices.ContainsFunc(sorted, func(q *port) bool {
		return q != p && q.NetNSID == p.NetNSID && q.NetNSID >= 0 && q.owner.UID != ""
	}):
		return second
	case len(p.seen) == 0 || p.Bridge && p.mac == ports.MAC{}:
		return noAddress
	}
	return noPod
}

// addUnlisted adds the addresses behind the port of a known pod that no pod has.
func (b *bindings) addUnlisted(p *port, to map[netip.Addr]types.UID) {
	if p.owner.UID == "" {
		return
	}
	for _, a := range p.behind.Addrs {
		if _, owned := b.api.Owner(a); !owned && a.IsGlobalUnicast() {
			to[a] = p.owner.UID
		}
	}
}

// reserved returns the addresses that are reserved, except those of local pods that are bound to no port: nothing could
// come from them.
func (b *bindings) reserved(r result) (out []netip.Addr) {
	if b.api.Reserved == nil {
		return nil
	}
	bound := map[netip.Addr]bool{}
	for s := range r.Sources {
		bound[s.Addr] = true
	}
	for _, a := range b.api.Reserved() {
		if o, found := b.api.Owner(a); bound[a] || !found || !o.Local {
			out = append(out, a)
		}
	}
	return out
}

// has reports whether the kernel has the address of a forged source behind the port.
func (b *bindings) has(f ports.Forgery) bool {
	p := b.ports[f.Port]
	return p != nil && (slices.Contains(p.behind.Addrs, f.Addr) || slices.Contains(p.behind.Elsewhere, f.Addr))
}

// owners returns the pods behind the ports, as far as they are known.
func (b *bindings) owners() map[int]Owner {
	out := make(map[int]Owner, len(b.ports))
	for index, p := range b.ports {
		if p.owner.UID != "" {
			out[index] = p.owner
		}
	}
	return out
}
