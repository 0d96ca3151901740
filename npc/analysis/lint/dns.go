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
		switch udp, tcp := l.mayAsk(g, npc.UDP), l.mayAsk(g, npc.TCP); {
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

// mayAsk reports whether a rule of any policy may allow pods to ask a DNS server. A named port may be such a one.
func (l *pods) mayAsk(g *group, protocol uint8) bool {
	of := l.view.Applied(g.Pod, npc.Egress)
	if of.Isolated == policy.Never {
		return true
	}
	for r := range of.All() {
		if r.Action == policy.Accept && isForDNS(*r.Rule, protocol) {
			return true
		}
	}
	return false
}

func isForDNS(r policy.Rule, protocol uint8) bool {
	return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p policy.Port) bool {
		return p.HasProtocol(protocol) &&
			(p.Name != "" || slices.ContainsFunc(dnsPorts(), func(n uint16) bool { return p.Includes(protocol, n) }))
	})
}
