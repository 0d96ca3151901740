// Package whocan finds out who reaches a pod or an address, and what it reaches.
//
// These are pods, nodes and addresses outside, on which ports, and by which policy and rule.
//
//	answer := whocan.Around(view, whocan.Question{Ends: ends, Direction: npc.Ingress})
//
// Its verdicts are those of npc/analysis/explain, whose words it takes.
package whocan

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/analysis/matrix"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Question asks who reaches a pod or an address, or what it reaches.
type Question struct {
	// Ends are the addresses of the pod, or one that is no pod's.
	Ends []flow.End
	// Direction is Ingress to ask who reaches it, Egress to ask what it reaches.
	Direction npc.Direction
	// Services are the only ones that are asked about; all if there are none.
	Services []flow.Service
	// EachPod answers for each pod apart.
	EachPod bool
}

// The kinds of neighbours.
const (
	KindPods    = "pods"
	KindNode    = "node"
	KindOutside = "outside"
	// kindDomain is the addresses of a domain name.
	kindDomain = "domain"
	// kindUnreadable is the pods that could not be read.
	kindUnreadable = "unreadable"
)

// Neighbour is who may reach a pod, or what it may reach: pods of one namespace with the same labels that no policy
// distinguishes, nodes with the pods on their network, a domain name that the pod's policies have, or addresses of none
// of these that no policy distinguishes.
type Neighbour struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Pods      []string `json:"pods,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	// OwnNode is set for the node of the pod that is asked about.
	OwnNode bool `json:"own_node,omitempty"`
	// Addresses are those of nodes, or ranges of addresses outside.
	Addresses []ipblock.Range `json:"addresses,omitempty"`
	// Ports are the answers, for all ports of all protocols, or for those that were asked about.
	Ports []Span `json:"ports"`
}

// Answer is what is known about everybody.
type Answer struct {
	// Neighbours are in the order of namespaces and names: pods, nodes, domain names, addresses outside.
	Neighbours []Neighbour
	// Alike are other pods with the same answers as the one that was asked about.
	Alike []string
	// Omitted are pods that are left out, because they own none of their addresses.
	Omitted []string
}

// Around answers a question about everybody. A pod that stands for a workload is among its own neighbours, as another of
// the workload's pods. Of a domain name, an address that it could have stands for all.
func Around(v *cluster.View, q Question) (all Answer) {
	if domains := reachability.Domains(nil, nil, v); domains != nil && q.Direction == npc.Egress {
		v = cluster.WithLearned(v, domains)
	}
	a := &around{Question: q, View: v}
	var addrs []netip.Addr
	for _, e := range q.Ends {
		if e.Pod == "" {
			addrs = append(addrs, e.Addr)
		}
		a.pods = append(a.pods, a.podsAt(e)...)
	}
	p := reachability.NewPartition(v.PodNames(""), addrs, v)
	classes := p.Classes()
	all.Omitted, all.Alike = p.Omitted(), without(v, classes, q.Ends)
	known := map[int][]Span{} // class -> its answers
	for _, r := range matrix.Rows(v, classes, q.EachPod) {
		if len(r.Pods) == 0 {
			continue // the address that is asked about
		}
		spans, ok := known[r.Class()]
		if !ok {
			spans = a.askPod(r.Pods[0])
			known[r.Class()] = spans
		}
		all.Neighbours = append(all.Neighbours,
			Neighbour{Kind: KindPods, Name: r.Name, Namespace: r.Namespace(), Pods: r.Pods, Ports: spans})
	}
	if v.Unreadable.Pods.Reason != "" {
		all.Neighbours = append(all.Neighbours,
			Neighbour{Kind: kindUnreadable, Name: "pods that cannot be read", Ports: a.ask([]flow.End{{}})})
	}
	if len(a.pods) > 0 {
		all.Neighbours = append(all.Neighbours, a.nodes()...)
		all.Neighbours = append(all.Neighbours, a.domains()...)
		all.Neighbours = append(all.Neighbours, a.outside()...)
	}
	return all
}

// without takes the pods of some ends out of their classes, unless they stand for workloads. It returns the others of
// these classes.
func without(v *cluster.View, classes []reachability.Class, ends []flow.End) (alike []string) {
	isAsked := func(name string) bool { return isOf(ends, name) }
	for i := range classes {
		c := &classes[i]
		if others := slices.DeleteFunc(slices.Clone(c.Pods), isAsked); len(others) < len(c.Pods) {
			alike = append(alike, others...)
		}
		c.Pods = slices.DeleteFunc(slices.Clone(c.Pods), func(name string) bool {
			return isAsked(name) && !v.Pods[name].StandsForWorkload()
		})
	}
	return alike
}

// isOf reports whether one of some ends is that of a pod.
func isOf(ends []flow.End, pod string) bool {
	return slices.ContainsFunc(ends, func(e flow.End) bool { return e.Pod == pod })
}

// around answers a question.
type around struct {
	Question
	*cluster.View
	// pods are those that policies may choose when they are asked about the ends of the question.
	pods []*npc.Pod
}

// podsAt returns the pods whose policies, labels and ports may count for an end.
func (a *around) podsAt(e flow.End) []*npc.Pod {
	pods := cluster.Claiming(a.View, e.Addr)
	if p := a.Pods[e.Pod]; p != nil && !slices.Contains(pods, p) {
		pods = append(pods, p)
	}
	return pods
}

// askPod returns the answers for a pod. The pod that is asked about is another one of its workload.
func (a *around) askPod(name string) []Span {
	ends := a.OwnedEnds(name)
	if !isOf(a.Ends, name) {
		return a.ask(ends)
	}
	with := *a
	with.View, ends = cluster.WithOther(a.View, name, ends)
	return with.ask(ends)
}

// ask returns the answers for the pod or the address of some ends.
func (a *around) ask(ends []flow.End) (spans []Span) {
	for _, ports := range a.intervals(ends) {
		from, to := ends, a.Ends
		if a.Direction == npc.Egress {
			from, to = to, from
		}
		var verdicts []explain.Verdict
		for _, f := range flow.Between(from, to, ports.Service()) {
			verdicts = append(verdicts, explain.Explain(a.View, f))
		}
		reach := cellOf(verdicts)
		spans = append(spans, Span{ports, string(reach), explain.Brief(verdicts)})
	}
	if len(a.Services) > 0 {
		return spans
	}
	return merge(spans)
}

// intervals returns the ports that are asked about, such that policies treat those of one interval alike between the
// question's ends and some others.
func (a *around) intervals(ends []flow.End) (out []flow.Ports) {
	for _, s := range a.Services {
		out = append(out, flow.Ports{Protocol: s.Protocol, First: s.Port, Last: s.Port})
	}
	if len(out) > 0 {
		return out
	}
	var others []*npc.Pod
	for _, e := range ends {
		others = append(others, a.podsAt(e)...)
	}
	split := flow.NewSplit()
	destinations := a.pods
	if a.Direction == npc.Egress {
		destinations = others
	}
	a.split(split, a.pods, a.Direction, ends, destinations)
	a.split(split, others, a.Direction.Opposite(), a.Ends, destinations)
	return append(flow.PortsFrom(split.Services()), flow.Ports{Protocol: npc.ICMP})
}

// split splits the ports by the rules that count for some pods in a direction and may have some ends as peers.
func (a *around) split(into flow.Split, pods []*npc.Pod, d npc.Direction, ends []flow.End, destinations []*npc.Pod) {
	for rule := range a.rules(pods, d) {
		if a.mayMatch(rule, ends) {
			addPorts(into, rule, destinations)
		}
	}
}

// rules yields the rules of a direction that policies have which choose pods.
func (a *around) rules(pods []*npc.Pod, d npc.Direction) iter.Seq[*policy.Rule] {
	return func(yield func(*policy.Rule) bool) {
		for _, p := range pods {
			policies, _ := a.Isolating(p, d)
			for _, q := range policies {
				for i := range q.Rules[d] {
					if !yield(&q.Rules[d][i]) {
						return
					}
				}
			}
			for _, q := range a.ClusterPolicies {
				for i := range q.Written[d] {
					if a.Selects(q, p) != policy.Never && !yield(&q.Written[d][i].Rule) {
						return
					}
				}
			}
		}
	}
}

// mayMatch reports whether one of the ends may be among the peers of a rule.
func (a *around) mayMatch(rule *policy.Rule, ends []flow.End) bool {
	if len(rule.Peers) == 0 || a.Unreadable.Any() {
		return true
	}
	for _, peer := range rule.Peers {
		for _, e := range ends {
			pods := a.podsAt(e)
			if explain.PeerFits(a.View, peer, e.Addr, nil) ||
				slices.ContainsFunc(pods, func(p *npc.Pod) bool { return explain.PeerFits(a.View, peer, e.Addr, p) }) {
				return true
			}
		}
	}
	return false
}

// nodes returns the nodes, those with the same answers together, the pods' own ones first.
func (a *around) nodes() (out []Neighbour) {
	addrs := cluster.AddrsOfNodes(a.View)
	own := map[string]bool{}
	for _, p := range a.pods {
		own[p.Node] = true
	}
	names := slices.SortedFunc(maps.Keys(addrs), func(x, y string) int {
		if own[x] != own[y] {
			return map[bool]int{true: -1, false: 1}[own[x]]
		}
		return cmp.Compare(x, y)
	})
	for _, name := range names {
		var ends []flow.End
		var ranges []ipblock.Range
		for _, addr := range addrs[name] {
			ends, ranges = append(ends, flow.End{Addr: addr}), append(ranges, ipblock.Range{First: addr, Last: addr})
		}
		n := Neighbour{Kind: KindNode, Nodes: []string{name}, OwnNode: own[name], Addresses: ranges, Ports: a.ask(ends)}
		same := slices.IndexFunc(out, func(o Neighbour) bool {
			return o.OwnNode == n.OwnNode && slices.Equal(o.Ports, n.Ports)
		})
		if same < 0 {
			out = append(out, n)
			continue
		}
		out[same].Nodes = append(out[same].Nodes, name)
		out[same].Addresses = append(out[same].Addresses, ranges...)
	}
	return out
}

// cellOf returns the answer that verdicts on flows between the same two give.
func cellOf(verdicts []explain.Verdict) reachability.Cell {
	allowed := 0
	for i := range verdicts {
		if verdicts[i].Unknown {
			return reachability.CellUnknown
		}
		if verdicts[i].Allowed {
			allowed++
		}
	}
	return reachability.Tally(len(verdicts), allowed)
}

// outsideName names addresses outside.
func outsideName(ranges []ipblock.Range) string {
	var whole []string
	for _, r := range ranges {
		if r.Whole() {
			whole = append(whole, npc.FamilyOf(r.First).String())
		}
	}
	switch {
	case len(whole) == 2:
		return "any address outside"
	case len(whole) == 1 && len(ranges) == 1:
		return fmt.Sprintf("any %s address outside", whole[0])
	}
	return "addresses outside"
}
