package whocan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// outside returns the addresses of no pod and no node, those with the same answers together. Only the blocks of
// policies that select the pods count, as no other policy applies to addresses outside.
func (a *around) outside() (out []Neighbour) {
	taken := a.takenAddrs()
	for _, r := range ipblock.NewClasses(policy.Blocks(a.rules(a.pods, a.Direction))).Ranges() {
		free, ok := r.Unicast(func(addr netip.Addr) bool { return !taken[addr] })
		if !ok {
			continue
		}
		spans := a.ask([]flow.End{{Addr: free, Outside: true}})
		if len(spans) == 0 || spans[0].Reach == string(reachability.CellNever) {
			continue
		}
		same := slices.IndexFunc(out, func(n Neighbour) bool { return slices.Equal(n.Ports, spans) })
		if same < 0 {
			same = len(out)
			out = append(out, Neighbour{Kind: KindOutside, Ports: spans})
		}
		out[same].add(r)
	}
	for i := range out {
		out[i].Name = outsideName(out[i].Addresses)
	}
	return out
}

// domains returns the domain names that policies of the pods have, in order.
func (a *around) domains() (out []Neighbour) {
	own := map[string]bool{}
	for rule := range a.rules(a.pods, a.Direction) {
		for _, peer := range rule.Peers {
			own[peer.Name] = peer.Name != ""
		}
	}
	for addr, names := range a.Learned {
		if own[names[0]] {
			out = append(out, Neighbour{Kind: kindDomain, Name: names[0], Ports: a.ask([]flow.End{{Addr: addr, Outside: true}})})
		}
	}
	slices.SortFunc(out, func(x, y Neighbour) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// add adds a range, which joins the last one if that ends where it begins.
func (n *Neighbour) add(r ipblock.Range) {
	if i := len(n.Addresses) - 1; i >= 0 && n.Addresses[i].Last.Next() == r.First {
		n.Addresses[i].Last = r.Last
		return
	}
	n.Addresses = append(n.Addresses, r)
}

// takenAddrs returns the addresses of pods, nodes and domain names.
func (a *around) takenAddrs() map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	for _, p := range a.Pods {
		for _, addr := range p.Addrs {
			taken[addr] = true
		}
	}
	for _, addrs := range cluster.AddrsOfNodes(a.View) {
		for _, addr := range addrs {
			taken[addr] = true
		}
	}
	for addr := range a.Learned {
		taken[addr] = true
	}
	return taken
}
