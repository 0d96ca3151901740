package cluster

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
)

// indexAddrs finds who claims and who has each address.
func (v *View) indexAddrs() {
	v.claims, v.stale = make(map[netip.Addr][]*npc.Pod, len(v.Pods)), map[netip.Addr][]*npc.Pod{}
	v.hostAddrs, v.hostIPs, v.ofNodes = map[string]addrSet{}, addrSet{}, addrSet{}
	for _, p := range v.Pods {
		for _, a := range p.Claims() {
			v.claims[a] = append(v.claims[a], p)
		}
		if p.StaleAddrs && p.HasNetwork() {
			for _, a := range p.Addrs {
				v.stale[a] = append(v.stale[a], p)
			}
		}
		if v.hostAddrs[p.Node] == nil {
			v.hostAddrs[p.Node] = addrSet{}
		}
		for _, a := range p.HostAddrs {
			v.hostAddrs[p.Node][a], v.hostIPs[a], v.ofNodes[a] = struct{}{}, struct{}{}, struct{}{}
		}
	}
	for _, addrs := range v.nodeAddrs {
		for a := range addrs {
			v.ofNodes[a] = struct{}{}
		}
	}
}

// Owner returns the pod that owns an address as a node sees it, or nil. For the empty node, no pod is local.
func (v *View) Owner(a netip.Addr, node string) *npc.Pod {
	return ipowner.Choose(v.claims[a], func(p *npc.Pod) bool { return v.refused(a, p, node) },
		func(p, q *npc.Pod) bool { return npc.OwnsBefore(p, q, node) })
}

// refused reports whether a pod cannot own an address as a node sees it: it is the node's own, or, for a pod of
// another node, in some pod's status.hostIPs. Other objects take no address from a local pod.
func (v *View) refused(a netip.Addr, p *npc.Pod, node string) bool {
	if node == "" || p.Node == node {
		return v.ClaimsNodes(p, a)
	}
	return v.nodeAddrs[node].has(a) || v.hostIPs.has(a)
}

// ClaimsNodes reports whether an address that a pod claims is its own node's. As long as a node's addresses are not
// known, only the pod's own status.hostIPs count.
func (v *View) ClaimsNodes(p *npc.Pod, a netip.Addr) bool {
	if known, ok := v.nodeAddrs[p.Node]; ok {
		return known.has(a)
	}
	return slices.Contains(p.HostAddrs, a)
}

// NodeHas reports whether a node is known to have an address itself.
func (v *View) NodeHas(node string, a netip.Addr) bool {
	if known, ok := v.nodeAddrs[node]; ok {
		return known.has(a)
	}
	return node != "" && v.hostAddrs[node].has(a)
}

// IsNodes reports whether an address is of any node.
func (v *View) IsNodes(a netip.Addr) bool { return v.ofNodes.has(a) }

// NodesAt returns the Nodes whose status has an address, ordered by name: a selector of nodes as peers matches the
// address if it matches one of them.
func (v *View) NodesAt(a netip.Addr) []npc.Node { return v.nodesAt[a] }

// StatusAddrs returns the addresses that the status of a Node has, sorted.
func (v *View) StatusAddrs() []netip.Addr {
	return slices.SortedFunc(maps.Keys(v.nodesAt), netip.Addr.Compare)
}

// ConflictingPods returns the other pods of a pod's node that claim an address, ordered by namespace/name.
func (v *View) ConflictingPods(a netip.Addr, of *npc.Pod) []*npc.Pod {
	return sorted(v.claims[a], func(p *npc.Pod) bool { return p != of && p.Node == of.Node })
}

// Stale returns the pods of a node whose status has an address from before a restart, ordered by namespace/name. The
// empty node stands for all.
func (v *View) Stale(a netip.Addr, node string) []*npc.Pod {
	return sorted(v.stale[a], func(p *npc.Pod) bool { return node == "" || p.Node == node })
}

// Claiming returns the pods whose status has an address, whoever owns it, ordered by namespace/name.
func Claiming(v *View, a netip.Addr) []*npc.Pod {
	return sorted(slices.Concat(v.claims[a], v.stale[a]), func(*npc.Pod) bool { return true })
}

// AddrsOfNodes returns the addresses of each node that are known, sorted.
func AddrsOfNodes(v *View) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, of := range []map[string]addrSet{v.nodeAddrs, v.hostAddrs} {
		for node, addrs := range of {
			if node != "" {
				out[node] = slices.AppendSeq(out[node], maps.Keys(addrs))
			}
		}
	}
	for a, nodes := range v.nodesAt {
		for i := range nodes {
			out[nodes[i].Name] = append(out[nodes[i].Name], a)
		}
	}
	for node, addrs := range out {
		slices.SortFunc(addrs, netip.Addr.Compare)
		out[node] = slices.Compact(addrs)
	}
	return out
}

// sorted returns the pods that are wanted, ordered by namespace/name.
func sorted(pods []*npc.Pod, want func(*npc.Pod) bool) []*npc.Pod {
	var out []*npc.Pod
	for _, p := range pods {
		if want(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(p, q *npc.Pod) int {
		return strings.Compare(p.Key(), q.Key())
	})
	return out
}
