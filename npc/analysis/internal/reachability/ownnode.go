package reachability

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// nodes returns a subject for each class of addresses of Nodes that no pod claims: in the same ipBlocks, and of Nodes
// that the same peers choose.
func (s *subjects) nodes() (out []Subject) {
	var addrs []netip.Addr
	var choose [states][]policy.Selector
	for w, v := range s.views {
		addrs = append(addrs, v.StatusAddrs()...)
		seen := map[string]bool{}
		for r := range cluster.Rules(v.View) {
			for _, peer := range r.Peers {
				if peer.Nodes != nil && !seen[peer.Nodes.String()] {
					seen[peer.Nodes.String()] = true
					choose[w] = append(choose[w], *peer.Nodes)
				}
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	found := map[string]int{} // what policies see of an address -> its subject
	for _, a := range slices.Compact(addrs) {
		if s.taken[a] {
			continue
		}
		var key strings.Builder
		var names []string
		for w, v := range s.views {
			fmt.Fprint(&key, v.addresses.Of(a), " ")
			at := v.NodesAt(a)
			for _, n := range at {
				names = append(names, n.Name)
			}
			for i, selector := range choose[w] {
				for _, n := range at {
					if selector.Matches(n.Labels) {
						fmt.Fprint(&key, i, ",")
						break
					}
				}
			}
			key.WriteByte(';')
		}
		at, ok := found[key.String()]
		if !ok {
			at = len(out)
			found[key.String()] = at
			out = append(out, Subject{In: [states]bool{true, true}, Addr: a})
		}
		out[at].NodeAddrs, out[at].Nodes = append(out[at].NodeAddrs, a), append(out[at].Nodes, names...)
	}
	for i := range out {
		slices.Sort(out[i].Nodes)
		out[i].Nodes = slices.Compact(out[i].Nodes)
	}
	return out
}

// ownNodes finds the classes of Nodes where a pod sees only its own node.
type ownNodes struct {
	views [states]*view
	nodes []Subject
	known map[[states]string][]int // nodes of a pod in both states -> numbers of classes
}

// of returns the numbers of the classes whose addresses the node of a pod all has, in one of the states that the pod is
// in.
func (o *ownNodes) of(pod string, in [states]bool) []int {
	if len(o.nodes) == 0 {
		return nil
	}
	var on [states]string
	for w, v := range o.views {
		if in[w] {
			on[w] = v.Pods[pod].Node
		}
	}
	numbers, ok := o.known[on]
	if ok {
		return numbers
	}
	for i, n := range o.nodes {
		if !slices.ContainsFunc(n.NodeAddrs, func(a netip.Addr) bool {
			return !o.views[before].NodeHas(on[before], a) && !o.views[after].NodeHas(on[after], a)
		}) {
			numbers = append(numbers, i+1)
		}
	}
	o.known[on] = numbers
	return numbers
}
