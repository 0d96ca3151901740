package lint

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// dnsPorts are those at which DNS servers in pods listen: behind the Service, it need not be 53.
func dnsPorts() []uint16 { return []uint16{53, 5353, 8053, 1053} }

// checkDNS looks for pods that a policy isolates for egress, that may open connections to pods, and that may not ask
// any DNS server.
func (l *linter) checkDNS(p *networkingv1.NetworkPolicy, c *cluster.Policy, targets []*group) {
	if !c.Isolates[npc.Egress] || !slices.ContainsFunc(c.Rules[npc.Egress], opensToPods) {
		return
	}
	var without, overTCP []*group
	for _, g := range targets {
		switch udp, tcp := l.mayAsk(g, npc.UDP, fitServer), l.mayAsk(g, npc.TCP, fitServer); {
		case !udp:
			without = append(without, g)
		case !tcp:
			overTCP = append(overTCP, g)
		}
	}
	s := policySubject(p)
	if len(without) > 0 {
		l.add(egressDNS, s, "spec.egress",
			fmt.Sprintf("no rule allows %s to ask a DNS server: none is for udp/53", podsText(without)), "")
	}
	if len(overTCP) > 0 {
		l.add(egressDNSOverTCP, s, "spec.egress",
			fmt.Sprintf("rules allow %s udp/53 and not tcp/53", podsText(overTCP)), "")
	}
}

// podsText returns a count of pods with one of them by name.
func podsText(groups []*group) string {
	if n := countPods(groups); n > 1 {
		return fmt.Sprintf("%d pods, such as %s/%s,", n, groups[0].Namespace, groups[0].Name)
	}
	return podName(groups[0].Pod)
}

// opensToPods reports whether a rule may allow connections to pods by their names, which are asked for in the DNS.
func opensToPods(r policy.Rule) bool {
	return len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, func(p policy.Peer) bool { return p.Block == nil })
}

// mayAsk reports whether policies may allow pods to ask a DNS server. The function reports whether the peers of a rule
// are the servers.
func (l *pods) mayAsk(g *group, protocol uint8, fit func([]policy.Peer) policy.Fit) bool {
	return mayAccept(l.view.Applied(g.Pod, npc.Egress), func(r cluster.Rule) policy.Fit {
		return min(fitDNS(r.Ports, protocol), fit(r.Peers))
	})
}

// mayAccept reports whether policies may accept something. The function reports how it fits a rule.
func mayAccept(of policy.Applied[cluster.Rule], matches func(cluster.Rule) policy.Fit) (may bool) {
	q := policy.Question[policy.Fit, cluster.Rule]{
		Sets:    policy.Fits(),
		Action:  cluster.Rule.Does,
		Matches: matches,
		Decide:  func(d policy.Decision[cluster.Rule], _, _ policy.Fit) { may = may || d.Action == policy.Accept },
	}
	q.Ask(&of, policy.Always)
	return may
}

// fitDNS reports whether ports of a rule are those of a DNS server. A named port may be such a one.
func fitDNS(ports []policy.Port, protocol uint8) policy.Fit {
	if len(ports) == 0 {
		return policy.Always
	}
	if slices.ContainsFunc(ports, func(p policy.Port) bool {
		return p.HasProtocol(protocol) &&
			(p.Name != "" || slices.ContainsFunc(dnsPorts(), func(n uint16) bool { return p.Includes(protocol, n) }))
	}) {
		return policy.Maybe
	}
	return policy.Never
}

// fitServer reports whether peers of a rule are a DNS server: any but domain names may be.
func fitServer(peers []policy.Peer) policy.Fit {
	if len(peers) == 0 || slices.ContainsFunc(peers, func(p policy.Peer) bool { return p.Name == "" }) {
		return policy.Maybe
	}
	return policy.Never
}
