package matrix

import (
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// alone records the ends whose verdicts depend on the enforcing node, or on other pods. The page cannot know who owns
// an address as a node sees it, and why an address is closed; so this is asked here, for each such end once.
func (w *pods) alone() {
	var nodes []string // of the pods that stand for classes
	var ends []reachability.End
	classes := w.partition.Classes()
	for _, c := range classes {
		if pod := w.view.Pods[c.Ends[0].Pod]; pod != nil && !slices.Contains(nodes, pod.Node) {
			nodes = append(nodes, pod.Node)
		}
		for _, e := range c.Ends {
			if e.Alone {
				ends = append(ends, e)
			}
		}
	}
	for i, c := range classes {
		for j, e := range c.Ends {
			if !e.Alone {
				continue
			}
			out := alone{Class: i, End: j, Multicast: e.Addr.IsMulticast(), Owner: w.pod(w.view.Owner(e.Addr, "")),
				Owners: map[int]int{}}
			for _, d := range npc.Directions {
				out.Own[d] = w.own(e.End, d, ends)
			}
			for _, name := range nodes {
				if owner := w.pod(w.view.Owner(e.Addr, name)); owner != out.Owner {
					out.Owners[w.node(name)] = owner
				}
				if w.view.NodeHas(name, e.Addr) {
					out.At = append(out.At, w.node(name))
				}
			}
			w.Alone = append(w.Alone, out)
		}
	}
}

// own finds the subject whose policies apply to an end in a direction, and what contradicts that the address is the
// subject's.
func (w *pods) own(e flow.End, d npc.Direction, ends []reachability.End) own {
	out := own{Subject: -1}
	side := w.ask(e, flow.End{Addr: w.unknown(e.Addr)}, d)
	pod := w.view.Pods[side.Pod]
	if pod == nil {
		return out
	}
	out.Subject, out.Conflict, out.Closed = w.pod(pod), side.Conflict, side.Closed()
	if d == npc.Egress {
		for _, other := range ends {
			if w.view.NodeHas(pod.Node, other.Addr) && w.view.Owner(other.Addr, pod.Node) == nil &&
				other.Addr != e.Addr {
				out.ClosedToNode = w.ask(e, other.End, d).Closed()
				break
			}
		}
	}
	return out
}

// ask returns the side of a verdict whose policies apply to an end.
func (w *pods) ask(own, peer flow.End, d npc.Direction) explain.Side {
	f := flow.Flow{From: own, To: peer, Service: flow.Service{Protocol: npc.ICMP}}
	if d == npc.Ingress {
		f.From, f.To = peer, own
	}
	return explain.Explain(w.view, f).Side(d)
}

// unknown returns a free address of the same family.
func (w *pods) unknown(like netip.Addr) netip.Addr {
	a := netip.MustParseAddr("192.0.2.1")
	if like.Is6() {
		a = netip.MustParseAddr("2001:db8::1")
	}
	for w.view.Owner(a, "") != nil || w.view.IsNodes(a) || len(w.view.NodesAt(a)) > 0 || len(w.view.Stale(a, "")) > 0 ||
		a == like {
		a = a.Next()
	}
	return a
}
