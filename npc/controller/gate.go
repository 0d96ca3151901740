package controller

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/gate"
	"github.com/weave-npc/weave-npc/npc/ipblock"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/queue"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// brokenAfter is how long a watch may be broken before new pods count as unknown.
const brokenAfter = 5 * time.Second

// vanishedFor is how long the address stays closed of an isolated pod whose object vanished.
const vanishedFor = 10 * time.Minute

// gates say which unknown addresses are dropped, in each direction: those of the node's range while a
// pod may be there that is not known, but something isolates.
type gates struct {
	sets [len(traffic.Families)][len(traffic.Directions)]*dataplane.Set
	// closed is what the sets hold beside the known remote pods -> the comment.
	closed [len(traffic.Families)][len(traffic.Directions)]map[ipset.Entry]string
	// setAt is the time that the gates were last set for.
	setAt time.Time
	// vanished are addresses of isolated pods whose objects went before they had finished.
	vanished map[netip.Addr]vanished
	// broadcast are the sets that say whether broadcast is dropped, and broadcastClosed is why it is.
	broadcast       [len(traffic.Families)]*dataplane.Set
	broadcastClosed string
}

type vanished struct {
	pod      string
	isolated [len(traffic.Directions)]bool
	until    time.Time
}

// has reports whether a set is one of the gates.
func (g *gates) has(s *dataplane.Set) bool {
	return s == g.sets[s.Family()][traffic.Ingress] || s == g.sets[s.Family()][traffic.Egress]
}

// countPending keeps note of the local pods that something isolates and of which an address is missing or does not count.
func (m *Controller) countPending(p *pod) {
	waits := p.local && m.waits(p) != ""
	for _, d := range traffic.Directions {
		if waits && p.isolated[d] {
			m.pending[d][p] = struct{}{}
		} else {
			delete(m.pending[d], p)
		}
	}
}

// vanish closes the addresses of an isolated pod that goes without having finished: its containers may still run.
func (m *Controller) vanish(p *pod) {
	for _, a := range p.owned {
		isolated, found := p.isolated, m.tables[traffic.FamilyOf(a)].HoldsIsolated(a)
		for _, d := range traffic.Directions {
			isolated[d] = isolated[d] || found[d]
		}
		if isolated != [len(traffic.Directions)]bool{} {
			m.gates.vanished[a] = vanished{p.String(), isolated, m.now().Add(vanishedFor)}
		}
	}
}

// vanishedWord ends the comment of the entry that closes the address of a pod that vanished.
const vanishedWord = " vanished"

// findVanished finds, once, the isolated pods that vanished before weave-npc started: those whose addresses a weave-npc before
// had closed, and those that the kernel still has as local pods and of which there is no object any more. Their addresses
// stay closed as if they had vanished now.
func (m *Controller) findVanished(f traffic.Family) {
	t := m.tables[f]
	if !m.synced || m.missing != npc.NothingMissing || !t.Sets.Loaded() || m.recalled[f] {
		return
	}
	m.recalled[f] = true
	until := m.now().Add(vanishedFor)
	there := m.podsOfNode()
	for e, st := range t.Local.States() {
		id, name, ours := strings.Cut(st.Have.Comment, " ")
		if !st.Exists || st.Wanted || !ours || there[id] || m.claims.Owner(e.Prefix.Addr()) != nil {
			continue
		}
		v := vanished{pod: name, until: until}
		for _, d := range traffic.Directions {
			v.isolated[d] = !m.defaultAllow[f][d].State(e).Exists
		}
		if v.isolated != [len(traffic.Directions)]bool{} {
			m.gates.vanished[e.Prefix.Addr()] = v
		}
	}
	for _, d := range traffic.Directions {
		for e, st := range m.gates.sets[f][d].States() {
			name, ok := strings.CutSuffix(st.Have.Comment, vanishedWord)
			a := e.Prefix.Addr()
			if !st.Exists || !ok || m.claims.Owner(a) != nil {
				continue
			}
			v := m.gates.vanished[a]
			v.pod, v.until, v.isolated[d] = name, until, true
			m.gates.vanished[a] = v
		}
	}
}

// podsOfNode are the ids of all pods of this node that there are, finished ones too.
func (m *Controller) podsOfNode() map[string]bool {
	ids := map[string]bool{}
	for _, ns := range m.namespaces {
		for _, p := range ns.pods {
			if p.Node == m.NodeName {
				ids[p.id()] = true
			}
		}
	}
	return ids
}

// appear opens a closed address to the pod that has it now.
func (g *gates) appear(a netip.Addr) { delete(g.vanished, a) }

// closedBy returns why the gate is closed to the node's range in a direction; empty if it is open.
func (m *Controller) closedBy(d traffic.Direction, now time.Time) string {
	switch {
	case m.Gate == npc.GateOpen:
		return ""
	case m.missing == npc.ObjectsMissing, m.missing == npc.NodeMissing && (m.policyCount > 0 || slices.ContainsFunc(m.tables[:], (*dataplane.Table).HoldsPods)):
		return "not all objects could be read"
	case m.Gate == npc.GateClosed:
		return "--gate closed"
	case !m.synced:
		return "not all objects are known yet"
	case len(m.pending[d]) > 0:
		first := ""
		for p := range m.pending[d] {
			if s := p.String() + m.waits(p); first == "" || s < first {
				first = s
			}
		}
		return first
	case m.policyCount > 0:
		for _, kind := range slices.Sorted(maps.Keys(m.broken)) {
			if kind != "namespaces" && now.Sub(m.broken[kind]) >= brokenAfter {
				return "the watch of " + kind + " is broken"
			}
		}
	}
	return ""
}

// Closed returns which addresses the gate drops packets of in a direction, and why; both are empty if it is open, or if nothing is known
// that it could close.
func (m *Controller) Closed(d traffic.Direction) (what, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why = m.closedBy(d, m.now()); why == "" {
		return "", ""
	}
	if what = m.scope().String(); what == "" {
		return "", ""
	}
	return what, why
}

// linkLocal are the addresses that belong to no known pod and reach every pod of a bridge.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// setGates brings the gates up to date.
func (m *Controller) setGates() {
	now := m.now()
	m.gates.setAt = now
	// Broadcast is dropped while a local pod is isolated for ingress, or one may be that is not known yet.
	if m.isolatedPods[traffic.Ingress] > 0 {
		m.gates.setBroadcast("a local pod is isolated")
	} else {
		m.gates.setBroadcast(m.closedBy(traffic.Ingress, now))
	}
	for a, v := range m.gates.vanished {
		if !now.Before(v.until) {
			delete(m.gates.vanished, a)
		}
	}
	for _, d := range traffic.Directions {
		want := [len(traffic.Families)]map[ipset.Entry]string{{}, {}}
		if why := m.closedBy(d, now); why != "" {
			for _, r := range m.scope().Prefixes() {
				for _, p := range ipblock.Halves(r) {
					want[traffic.FamilyOf(r.Addr())][ipset.Net(p)] = why
				}
			}
		}
		if m.Gate != npc.GateOpen {
			for p := range m.pending[d] {
				for _, a := range p.Addrs {
					why, closed := p.String()+m.waits(p), want[traffic.FamilyOf(a)]
					if was, shared := closed[ipset.Addr(a)]; m.claims.Owner(a) == nil && (!shared || why < was) {
						closed[ipset.Addr(a)] = why
					}
				}
			}
			for a, v := range m.gates.vanished { // whose entries tell of them after a restart
				if v.isolated[d] {
					want[traffic.FamilyOf(a)][ipset.Addr(a)] = v.pod + vanishedWord
				}
			}
			if m.isolatedPods[d] > 0 {
				want[traffic.IPv6][ipset.Net(linkLocal)] = "link-local is no way around policies"
			}
		}
		for f := range traffic.Families {
			m.gates.set(traffic.Family(f), d, want[f])
		}
	}
}

// set has a gate close some addresses, with the given comments, and no others.
func (g *gates) set(f traffic.Family, d traffic.Direction, want map[ipset.Entry]string) {
	s, have := g.sets[f][d], g.closed[f][d]
	for e := range have {
		// An entry may have become that of a remote pod meanwhile.
		if _, ok := want[e]; !ok && !s.State(e).Want.NoMatch {
			s.Remove(e)
		}
	}
	for e, why := range want {
		// A remote pod may have had the address since, and have taken the entry with it.
		if st := s.State(e); have[e] != why || !st.Wanted || st.Want.NoMatch {
			s.Add(e, ipset.Attr{Comment: comment(why)})
		}
	}
	g.closed[f][d] = want
}

// scope is what is known of where the node's pods are.
func (m *Controller) scope() gate.Scope {
	return gate.Scope{Interface: m.PodInterface, ByCNI: m.Hook == npc.HookNone && len(m.PodRanges) == 0, Ranges: m.ranges}
}

// SetUplinks tells which ports of the pods' bridge lead away from the pods of this node; their names must be such that iptables takes each
// for one interface. Behind are the prefixes that the node routes to by them, here those of them that it finds on the bridge after all: the
// longest that holds an address counts.
func (m *Controller) SetUplinks(ports []string, behind, here []netip.Prefix) {
	m.change(queue.Event{Kind: queue.Pods, Key: "uplinks", Apply: func() {
		if slices.Equal(m.uplinks, ports) {
			m.setBehind(behind, here)
			return
		}
		m.uplinks = slices.Clone(ports)
		m.setBehind(behind, here)
		b := m.base(m.uplinks)
		for _, t := range m.tables {
			t.Chains.SetBase(b)
		}
		m.placeAll()
	}})
}

// setBehind fills the sets of what is behind uplinks. Without an uplink there are none.
func (m *Controller) setBehind(behind, here []netip.Prefix) {
	if len(m.uplinks) == 0 && m.behind[traffic.IPv4] == nil {
		return
	}
	want := [len(traffic.Families)]map[ipset.Entry]ipset.Attr{{}, {}}
	for f, t := range m.tables {
		if m.behind[f] == nil {
			m.behind[f] = t.Sets.AddFixed(naming.BehindUplinks, ipset.HashNet, "what is behind uplinks of the pods' bridge")
		}
	}
	put := func(prefixes []netip.Prefix, a ipset.Attr) {
		for _, p := range prefixes {
			for _, h := range ipblock.Halves(p) {
				want[traffic.FamilyOf(p.Addr())][ipset.Net(h)] = a
			}
		}
	}
	put(here, ipset.Attr{NoMatch: true, Comment: "on the bridge"})
	put(behind, ipset.Attr{Comment: "behind an uplink"})
	for f, s := range m.behind {
		s.Replace(want[f])
	}
}

// toEverybody are the addresses that reach every pod of a bridge, whatever its network is.
func toEverybody() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("0.0.0.0/32")}
}

// setBroadcast brings the sets up to date that decide whether broadcast is dropped. It is dropped if there is a reason.
func (g *gates) setBroadcast(why string) {
	if why == g.broadcastClosed {
		return
	}
	g.broadcastClosed = why
	for f, all := range [...]string{"0.0.0.0/0", "::/0"} {
		want := map[ipset.Entry]ipset.Attr{}
		for _, p := range ipblock.Halves(netip.MustParsePrefix(all)) {
			if why != "" {
				want[ipset.Net(p)] = ipset.Attr{Comment: comment(why)}
			}
		}
		g.broadcast[f].Replace(want)
	}
}

// placeAll brings the sets that any pod's addresses are in up to date.
func (m *Controller) placeAll() {
	for _, ns := range m.namespaces {
		for _, p := range ns.pods {
			m.place(p)
		}
	}
}

// InRange reports whether an address may be that of a local pod.
func (m *Controller) InRange(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.scope().Contains(a)
}

// OutOfRangePods returns local pods whose addresses are not in the node's range of their family, as namespace/name, sorted; at
// most as many as a comment names. Before such an address is known, its packets are not seen.
func (m *Controller) OutOfRangePods() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, ns := range m.namespaces {
		for p := range ns.local {
			if slices.ContainsFunc(p.owned, m.scope().Misses) {
				out = append(out, p.String())
			}
		}
	}
	slices.Sort(out)
	return out[:min(len(out), dataplane.MaxNamedOwners)]
}

// NoPodRange reports whether local pods' addresses can only be told once they are known: neither an interface nor a range is given, the node has
// none, and there are local pods.
func (m *Controller) NoPodRange() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced && m.scope().String() == "" && len(m.localAddrs) > 0
}

// SetRanges takes the node's own ranges of pod addresses, once they are known. Ranges that the
// operator gave come before them.
func (m *Controller) SetRanges(ranges []netip.Prefix) {
	m.change(queue.Event{Kind: queue.Pods, Key: "ranges", Apply: func() {
		if len(m.PodRanges) > 0 || slices.Equal(m.ranges, ranges) {
			return
		}
		m.setRanges(ranges)
		m.placeAll()
	}})
}

func (m *Controller) setRanges(ranges []netip.Prefix) {
	want := [len(traffic.Families)]map[ipset.Entry]ipset.Attr{{}, {}}
	put := func(r netip.Prefix, why string) {
		for _, p := range ipblock.Halves(r) {
			want[traffic.FamilyOf(r.Addr())][ipset.Net(p)] = ipset.Attr{Comment: why}
		}
	}
	m.ranges = nil
	for _, r := range ranges {
		m.ranges = append(m.ranges, r.Masked())
		put(r.Masked(), "the node's pods")
	}
	if m.PodInterface == "" && len(ranges) > 0 {
		put(linkLocal, "pods on a bridge")
	}
	if m.PodInterface == "" {
		for _, r := range toEverybody() {
			put(r, "all pods on a bridge")
		}
	}
	for f, s := range m.podRange {
		s.Replace(want[f])
	}
}

// SetConnected records whether the watch of a kind of objects works.
func (m *Controller) SetConnected(kind string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, was := m.broken[kind]; was == !ok {
		return
	}
	if ok {
		delete(m.broken, kind)
	} else {
		m.broken[kind] = m.now()
	}
	m.wakeUp()
}

// NextChange is when time alone changes what is wanted, after the time that the last plan was made for; zero if it does not. It
// may have passed meanwhile.
func (m *Controller) NextChange() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next time.Time
	soonest := func(t time.Time) {
		if t.After(m.gates.setAt) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, since := range m.broken {
		soonest(since.Add(brokenAfter))
	}
	for _, v := range m.gates.vanished {
		soonest(v.until)
	}
	return next
}
