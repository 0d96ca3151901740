package failclosed

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Facts are the inputs of the filter that other packages know.
type Facts struct {
	Now time.Time
	// Synced is set once all objects are known that there were at the start.
	Synced  bool
	Missing npc.Missing
	// Policies is the number of policies in the cluster, and Isolated the number of local pods that are isolated.
	Policies int
	Isolated [len(npc.Directions)]int
}

// alike reports whether other facts close the same, but for the time.
func (f *Facts) alike(g *Facts) bool {
	for d := range npc.Directions {
		if (f.Isolated[d] > 0) != (g.Isolated[d] > 0) {
			return false
		}
	}
	return f.Synced == g.Synced && f.Missing == g.Missing && (f.Policies > 0) == (g.Policies > 0)
}

// Filter keeps the sets of the unknown addresses that are dropped.
type Filter struct {
	Ranges  *Ranges
	Watches Watches

	mode   enforce.FailClosedMode
	tables [len(npc.Families)]*dataplane.Table
	index  *index.Index
	sets   [len(npc.Families)][len(npc.Directions)]closedSet
	// unattended are the sets of what is dropped while weave-npc does not run, as sets alive show.
	unattended [len(npc.Families)]closedSet
	alive      [len(npc.Families)]aliveSet
	// isolated holds the directions that local pods are isolated in, if any; unlisted are addresses that only the
	// kernel knows of them.
	isolated map[*index.Pod][len(npc.Directions)]bool
	unlisted unlisted
	// waiting holds the isolated local pods with an address that is missing or does not count.
	waiting     [len(npc.Directions)]map[*index.Pod]struct{}
	deletedPods deletedPods
	broadcast   broadcast
	// updated are the facts of the last update, and stale is set if something else changed since.
	updated Facts
	stale   bool
}

// New returns a filter that drops nothing yet.
func New(c enforce.Config, tables [len(npc.Families)]*dataplane.Table, x *index.Index) *Filter {
	g := &Filter{mode: c.FailClosed, stale: true, tables: tables, index: x, Ranges: newRanges(c, tables),
		isolated:    map[*index.Pod][len(npc.Directions)]bool{},
		waiting:     [len(npc.Directions)]map[*index.Pod]struct{}{{}, {}},
		deletedPods: deletedPods{node: c.NodeName, index: x, pods: map[netip.Addr]deletedPod{}}}
	for f, t := range tables {
		g.broadcast.sets[f] = t.Sets.AddFixed(naming.Broadcast, ipset.HashNet,
			"every address while broadcast is dropped")
		g.alive[f], g.unattended[f].Set = addUnattended(t)
		for _, d := range npc.Directions {
			g.sets[f][d].Set = t.Sets.AddFixed(naming.FailClosed(d), ipset.HashNet,
				"unknown addresses that are dropped, "+d.String())
		}
	}
	return g
}

// Sets returns the fail-closed filter's sets of a family, by direction.
func (g *Filter) Sets(f npc.Family) (sets []*dataplane.Set) {
	for d := range g.sets[f] {
		sets = append(sets, g.sets[f][d].Set)
	}
	return sets
}

// Memberships adds the memberships of a known pod of another node to out: addresses that the fail-closed filter must
// not close.
func (g *Filter) Memberships(p *index.Pod, out []index.Membership) []index.Membership {
	if p.Local() {
		return out
	}
	for _, a := range p.Owned() {
		f, e := npc.FamilyOf(a), ipset.Addr(a)
		for _, d := range npc.Directions {
			if g.Ranges.excepts(a, d) {
				out = append(out, index.Membership{Set: g.sets[f][d].Set, Entry: e})
			}
		}
		if g.Ranges.excepts(a, npc.Ingress) { // so it is if it is on egress
			out = append(out, index.Membership{Set: g.unattended[f].Set, Entry: e})
		}
	}
	return out
}

// Follow records whether a pod waits for an address, and the directions that it is isolated in.
func (g *Filter) Follow(p *index.Pod, isolated [len(npc.Directions)]bool) {
	if isolated != g.isolated[p] || !p.Local() {
		g.stale = g.stale || len(g.unlisted.byPod[p.UID]) > 0
		delete(g.isolated, p)
	}
	if p.Local() && isolated != [len(npc.Directions)]bool{} {
		g.isolated[p] = isolated
	}
	waits := p.Local() && g.waits(p) != ""
	for _, d := range npc.Directions {
		if _, waited := g.waiting[d][p]; waited || waits && isolated[d] {
			g.stale = true // the reason may be another one
		}
		if waits && isolated[d] {
			g.waiting[d][p] = struct{}{}
		} else {
			delete(g.waiting[d], p)
		}
	}
}

// Waiting returns how many isolated local pods wait for an address.
func (g *Filter) Waiting(d npc.Direction) int { return len(g.waiting[d]) }

// waits returns why an address of a local pod is not known, in words that follow the pod's name; empty if all are.
func (g *Filter) waits(p *index.Pod) string {
	switch {
	case len(p.Addrs) == 0:
		return " has no address yet"
	case p.StaleAddrs:
		return " reports an address that it had before it or the node was restarted"
	case slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return g.index.Addresses.Refused(a, p) }):
		return " claims an address of this node"
	}
	return ""
}

// Vanish closes an address of an isolated pod that goes without having finished: its containers may still run.
func (g *Filter) Vanish(a netip.Addr, p *index.Pod, isolated [len(npc.Directions)]bool, now time.Time) {
	for d, found := range g.tables[npc.FamilyOf(a)].HoldsIsolated(a) {
		isolated[d] = isolated[d] || found
	}
	g.deletedPods.put(a, p.String(), isolated, now)
	g.stale = true
}

// Transfer follows an address that changed hands: one that was closed opens to the pod that has it now.
func (g *Filter) Transfer(t index.Transfer) {
	_, closed := g.deletedPods.pods[t.Addr]
	if t.To != nil {
		delete(g.deletedPods.pods, t.Addr)
	}
	for _, pods := range g.waiting {
		closed = closed || len(pods) > 0 // one of them may wait for this address
	}
	g.stale = g.stale || closed || g.unlisted.pods[t.Addr] != ""
}

// Recall finds, once, the isolated pods of a family that were deleted before weave-npc started: those whose addresses
// an earlier weave-npc process had closed, and those that the kernel still has as local pods and that have no object
// any more. Their addresses stay closed as if the pods had been deleted now. allowed are the sets of the local pods
// that nothing isolates, by direction; those that Admin policies select may be denied something all the same.
func (g *Filter) Recall(f npc.Family, allowed []*dataplane.Set, facts Facts) {
	if facts.Synced && facts.Missing == npc.NothingMissing && g.tables[f].Sets.Loaded() {
		g.deletedPods.recall(g.tables[f], g.Sets(f), allowed, facts.Now)
		g.stale = true
	}
}

// closedBy returns why the fail-closed filter is closed to the node's range in a direction; empty if it is open.
func (g *Filter) closedBy(d npc.Direction, f Facts) string {
	switch {
	case g.mode == enforce.FailClosedNever:
		return ""
	case g.lacks(f):
		return "not all objects could be read"
	case g.mode == enforce.FailClosedAlways:
		return "--fail-closed always"
	case !f.Synced:
		return "not all objects are known yet"
	case len(g.waiting[d]) > 0:
		first := ""
		for p := range g.waiting[d] {
			if s := p.String() + g.waits(p); first == "" || s < first {
				first = s
			}
		}
		return first
	case f.Policies > 0:
		return g.Watches.broken(f.Now)
	}
	return ""
}

// lacks reports whether pods or policies may be missing.
func (g *Filter) lacks(f Facts) bool {
	return f.Missing == npc.ObjectsMissing || f.Missing == npc.ClusterPoliciesMissing ||
		f.Missing == npc.NodeMissing && (f.Policies > 0 ||
			slices.ContainsFunc(g.tables[:], (*dataplane.Table).HoldsPods))
}

// Closed returns which addresses the fail-closed filter drops packets of in a direction, and why; both are empty if it
// is open, or if nothing is known that it could close.
func (g *Filter) Closed(d npc.Direction, f Facts) (what, why string) {
	if why = g.closedBy(d, f); why == "" {
		return "", ""
	}
	if what = g.Ranges.scope().String(); what == "" {
		return "", ""
	}
	return what, why
}

// Stale reports whether Update may change the fail-closed filter's sets, by something else than time.
func (g *Filter) Stale(f Facts) bool { return g.stale || !f.alike(&g.updated) }

// Update brings the fail-closed filter's sets up to date.
func (g *Filter) Update(f Facts) {
	g.updated, g.stale = f, false
	// Broadcast is dropped while a local pod is isolated for ingress, or one may be that is not known yet.
	if f.Isolated[npc.Ingress] > 0 {
		g.broadcast.drop("a local pod is isolated")
	} else {
		g.broadcast.drop(g.closedBy(npc.Ingress, f))
	}
	g.deletedPods.expire(f.Now)
	for _, d := range npc.Directions {
		want := g.unknown(d, f)
		for _, family := range npc.Families {
			g.sets[family][d].fill(want[family])
		}
	}
	g.updateUnattended(f)
}

// unknown returns the entries that are closed in a direction, by family.
func (g *Filter) unknown(d npc.Direction, f Facts) [len(npc.Families)]entries {
	want := [len(npc.Families)]entries{{}, {}}
	put := func(e ipset.Entry, why string) { want[npc.FamilyOf(e.Prefix.Addr())][e] = why }
	if why := g.closedBy(d, f); why != "" {
		for family, e := range halves(g.Ranges.scope().prefixes()...) {
			want[family][e] = why
		}
	}
	if g.mode == enforce.FailClosedNever {
		return want
	}
	for p := range g.waiting[d] {
		for _, a := range p.Addrs {
			why, e := p.String()+g.waits(p), ipset.Addr(a)
			if was, shared := want[npc.FamilyOf(a)][e]; g.index.Addresses.Owner(a) == nil && (!shared || why < was) {
				put(e, why)
			}
		}
	}
	for a, v := range g.deletedPods.pods { // whose entries identify them after a restart
		if v.isolated[d] {
			put(ipset.Addr(a), v.pod+deletedWord)
		}
	}
	for a, why := range g.closedUnlisted(d) {
		put(ipset.Addr(a), why)
	}
	if f.Isolated[d] > 0 {
		put(ipset.Net(linkLocal), "link-local is no way around policies")
	}
	return want
}

// NextDeadline returns when time alone changes what is wanted, after the time of the last update; zero if it does not.
// It may have passed meanwhile.
func (g *Filter) NextDeadline() time.Time {
	var next time.Time
	for _, t := range slices.Concat(g.Watches.deadlines(), g.deletedPods.deadlines()) {
		if t.After(g.updated.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// OutOfRange reports whether a pod has an address that is not in the node's range of its family. Before such an address
// is known, its packets are not seen.
func (g *Filter) OutOfRange(p *index.Pod) bool {
	return slices.ContainsFunc(p.Owned(), g.Ranges.scope().misses)
}
