package enforce

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// tierWireCases show what passes under cluster network policies whatever they say.
func tierWireCases() []testCase {
	everything := func(tier func(priority, subject string, rules ...string) string) string {
		return tier("0", allPods, ingress("Deny", allPods), egress("Deny", allPods))
	}
	// itself asks web for itself through a Service, and directly.
	itself := func(wanted lab.Verdict) func(t *testing.T, w *harness) {
		return func(t *testing.T, w *harness) {
			families(func(family int) {
				virtual := w.service(t, "n1", family, 5, "tcp", 8080, "web", 80)
				w.probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, wanted)
				w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr(family), Port: 80}, lab.Allowed)
			})
		}
	}
	return []testCase{
		{name: "S90_the_own_node_reaches_its_pods_S54_neighbours_are_found", steps: []step{
			{about: "under Admin", do: clusterPolicy("a", everything(admin)), want: everyProtocol("-pods>pods"), then: ownNeighbours},
			{about: "under Baseline", do: do(without("a"), clusterPolicy("b", everything(baseline))), want: everyProtocol("-pods>pods"), then: ownNeighbours},
			{about: "alongside v1 policies", do: do(clusterPolicy("a", everything(admin)), policy("shop/p", closeAll)),
				want: everyProtocol("-pods>pods -*>shop -shop>*"), then: ownNeighbours},
		}},
		{name: "S91_a_pod_reaches_itself_but_policies_apply_through_a_service", steps: []step{
			{about: "nothing denies", do: clusterPolicy("a", admin("1", webAlone, ingress("Accept", monAlone))), then: itself(lab.Allowed)},
			{about: "ingress", do: clusterPolicy("a", admin("1", webAlone, ingress("Deny", allPods))), want: everyProtocol("-pods>web"), then: itself(lab.Dropped)},
			{about: "egress", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", webAlone))), then: itself(lab.Dropped)},
			{about: "egress to its network", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", `{networks: [$web4/32, "$web6/128"]}`))),
				then: itself(lab.Dropped)},
			{about: "an Accept before", do: clusterPolicy("a", admin("1", webAlone, `ingress: [{action: Accept, from: [`+webAlone+
				`]}, {action: Deny, from: [{namespaces: {}}]}]`)), want: everyProtocol("-pods>web"), then: itself(lab.Allowed)},
			{about: "Baseline", do: do(without("a"), clusterPolicy("b", baseline("1", webAlone, ingress("Deny", allPods)))), then: itself(lab.Dropped)},
			{about: "which the isolated never meet, and v1 policies do not apply", do: policy("shop/p", closeWeb), then: itself(lab.Allowed)},
			{about: "Admin passes to v1 policies", do: clusterPolicy("a", admin("1", webAlone, ingress("Pass", allPods), egress("Pass", allPods))),
				then: itself(lab.Allowed)},
		}},
		{name: "S92_replies_and_errors_of_accepted_connections_pass", steps: []step{
			{about: "whatever the other direction says", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", allPods))),
				want: wants{"tcp 80": "-web>pods", "udp 53": "-web>pods", "icmp": "-web>pods", "tcp 9": "-web>pods", "udp 9": "-web>pods"}},
			{about: "in Baseline", do: do(without("a"), clusterPolicy("b", baseline("1", allPods, `egress: [{action: Accept, to: [`+webAlone+
				`]}, {action: Deny, to: [{namespaces: {}}]}]`))), want: wants{"tcp 80": "-pods>pods +pods>web", "udp 9": "-pods>pods +pods>web",
				"icmp": "-pods>pods +pods>web"}},
			{about: "nothing is denied yet", do: without("b"), want: wants{"tcp 80": ""}, then: keptTalks},
		}},
	}
}

// ownNeighbours makes a pod resolve its node and another pod again. Without an answer no packet would be sent, denied
// or not.
func ownNeighbours(t *testing.T, w *harness) {
	web := w.hosts["web"]
	run(t, web, "ip", "neigh", "flush", "dev", "eth0")
	families(func(family int) {
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["n1"].Addr(family), Port: 80}, lab.Allowed)
		w.probe(t, "n1", lab.Packet{Proto: "tcp", To: web.Addr(family), Port: 80}, lab.Allowed)
	})
}

// keptTalks opens connections and denies new ones like them.
func keptTalks(t *testing.T, w *harness) {
	var talks []conversation
	for _, from := range []string{"db", "copy", "n1"} {
		families(func(family int) { talks = append(talks, w.converse(t, from, "web", family)) })
	}
	flow := func(family int) lab.Packet {
		return lab.Packet{Proto: "udp", To: w.hosts["web"].Addr(family), Port: 53, FromPort: 45002}
	}
	families(func(family int) { w.probe(t, "db", flow(family), lab.Allowed) })
	o := w.baseObjects()
	clusterPolicy("a", admin("1", webAlone, ingress("Deny", allPods), egress("Deny", allPods)))(w, o)
	w.apply(t, o)
	w.expect(t, wants{"tcp 80": "-pods>web -web>pods", "udp 53": "-pods>web -web>pods"})
	for _, c := range talks {
		c.say(t)
	}
	families(func(family int) { w.probe(t, "db", flow(family), lab.Allowed) })
}
