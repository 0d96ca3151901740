package rules

import (
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Most packets belong to open connections, and most new connections are between ends that nothing restricts. Both pass
// by the first rules of WEAVE-NPC-FORWARD. All others meet the chains of each direction once.

// Forward returns the rules that divide forwarded packets into those from local pods and those to them.
func (b *Base) Forward(f npc.Family) []iptables.Rule {
	local := naming.FixedSet(f, naming.LocalPods)
	rules := append(b.terminated(), toDNS(b, f)...)
	if b.AllowAction != "RETURN" {
		replies := iptables.Rule{Match: established + " " + naming.Match(local, "dst"),
			Target:  b.AllowTarget(npc.Ingress),
			Comment: "replies to local pods"}
		if b.PodInterface != "" { // a lookup less for nearly all packets
			replies.Match = "-o " + b.PodInterface + " " + established
		}
		rules = append(rules, replies)
	}
	rules = append(rules, iptables.Rule{Match: established, Target: "-j RETURN", Comment: "not evaluated again"})
	rules = append(rules, unrestricted(b, f)...)
	for _, d := range [...]npc.Direction{npc.Egress, npc.Ingress} {
		to, way := "-j "+naming.MainChain, "to"
		if d == npc.Egress {
			to, way = "-j "+naming.EgressChain, "from"
		}
		known := naming.Match(local, d.Own())
		if b.PodInterface != "" {
			rules = append(rules,
				iptables.Rule{Match: byPodInterface(b, d), Target: to, Comment: way + " the interface of local pods"},
				iptables.Rule{Match: "! " + byPodInterface(b, d) + " " + known, Target: to, Comment: way + " a local pod"})
			continue
		}
		inRange := naming.FixedSet(f, naming.PodRange)
		rules = append(rules,
			iptables.Rule{Match: naming.Match(inRange, d.Own()), Target: to, Comment: way + " the range of local pods"},
			iptables.Rule{Match: naming.NoMatch(inRange, d.Own()) + " " + known, Target: to, Comment: way + " a local pod"})
	}
	if b.PodInterface == "" {
		rules = append(rules, frameToAllRules(f, "-j "+naming.MainChain)...)
	}
	return rules
}

// byPodInterface matches packets that come from the interface of local pods, or leave by it.
func byPodInterface(b *Base, d npc.Direction) string {
	if d == npc.Egress {
		return "-i " + b.PodInterface
	}
	return "-o " + b.PodInterface
}

// unrestricted returns the rules for new connections of local pods that no policy isolates and no Admin policy selects,
// with each other and with what is not a local pod. The chains of each direction would let these pass, too.
func unrestricted(b *Base, f npc.Family) []iptables.Rule {
	free := func(d npc.Direction) string {
		match := naming.Match(naming.FixedSet(f, naming.DefaultAllow(d)), d.Own())
		if b.Lists[policy.Admin][d] {
			match += " " + naming.NoMatch(naming.FixedSet(f, naming.TierSet(policy.Admin.String(), d)), d.Own())
		}
		return match
	}
	elsewhere := func(d npc.Direction) string {
		match := naming.NoMatch(naming.FixedSet(f, naming.LocalPods), d.Own())
		if b.PodInterface != "" {
			return "! " + byPodInterface(b, d) + " " + match
		}
		return match + " " + naming.NoMatch(naming.FixedSet(f, naming.PodRange), d.Own())
	}
	rule := func(target, comment string, matches ...string) iptables.Rule {
		return iptables.Rule{Match: strings.Join(matches, " ") + " " + begins, Target: target, Comment: comment}
	}
	to, from := b.AllowTarget(npc.Ingress), b.AllowTarget(npc.Egress)
	return []iptables.Rule{
		rule(to, "between pods that nothing restricts", free(npc.Egress), free(npc.Ingress), toOne),
		rule(to, "from elsewhere to a pod that nothing restricts", elsewhere(npc.Egress), free(npc.Ingress), toOne),
		rule(from, "from a pod that nothing restricts to elsewhere", "! -d "+multicast(f), elsewhere(npc.Ingress),
			free(npc.Egress), toOne),
	}
}
