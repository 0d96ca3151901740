package tiers

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// tierWireCases show what passes under cluster network policies whatever they say.
func tierWireCases() []e2e.Case {
	everything := func(tier func(priority, subject string, rules ...string) string) string {
		return tier("0", e2e.AllPods, e2e.Ingress("Deny", e2e.AllPods), e2e.Egress("Deny", e2e.AllPods))
	}
	// itself asks web for itself through a Service, and directly.
	itself := func(wanted lab.Verdict) func(t *testing.T, w *e2e.Cluster) {
		return func(t *testing.T, w *e2e.Cluster) {
			e2e.EachFamily(func(family int) {
				virtual := w.Service(t, "n1", family, 5, "tcp", 8080, "web", 80)
				w.Probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, wanted)
				w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr(family), Port: 80}, lab.Allowed)
			})
		}
	}
	return []e2e.Case{
		{Name: "S90_the_own_node_reaches_its_pods_S54_neighbours_are_found", Steps: []e2e.Step{
			{About: "under Admin", Do: e2e.ClusterPolicy("a", everything(e2e.Admin)),
				Want: e2e.EveryProtocol("-pods>pods"), Then: ownNeighbours},
			{About: "under Baseline", Do: e2e.Do(e2e.Without("a"), e2e.ClusterPolicy("b", everything(e2e.Baseline))),
				Want: e2e.EveryProtocol("-pods>pods"), Then: ownNeighbours},
			{About: "alongside v1 policies", Do: e2e.Do(e2e.ClusterPolicy("a", everything(e2e.Admin)),
				e2e.Policy("shop/p", e2e.CloseAll)),
				Want: e2e.EveryProtocol("-pods>pods -*>shop -shop>*"), Then: ownNeighbours},
		}},
		{Name: "S91_a_pod_reaches_itself_but_policies_apply_through_a_service", Steps: []e2e.Step{
			{About: "nothing denies", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Ingress("Accept", e2e.MonAlone))), Then: itself(lab.Allowed)},
			{About: "ingress", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Ingress("Deny", e2e.AllPods))), Want: e2e.EveryProtocol("-pods>web"), Then: itself(lab.Dropped)},
			{About: "egress", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", e2e.WebAlone))), Then: itself(lab.Dropped)},
			{About: "egress to its network", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", `{networks: [$web4/32, "$web6/128"]}`))),
				Then: itself(lab.Dropped)},
			{About: "an Accept before", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				`ingress: [{action: Accept, from: [`+e2e.WebAlone+
					`]}, {action: Deny, from: [{namespaces: {}}]}]`)), Want: e2e.EveryProtocol("-pods>web"),
				Then: itself(lab.Allowed)},
			{About: "Baseline", Do: e2e.Do(e2e.Without("a"), e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.WebAlone,
				e2e.Ingress("Deny", e2e.AllPods)))), Then: itself(lab.Dropped)},
			{About: "which the isolated never meet, and v1 policies do not apply",
				Do: e2e.Policy("shop/p", e2e.CloseWeb), Then: itself(lab.Allowed)},
			{About: "Admin passes to v1 policies", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Ingress("Pass", e2e.AllPods), e2e.Egress("Pass", e2e.AllPods))),
				Then: itself(lab.Allowed)},
		}},
		{Name: "S92_replies_and_errors_of_accepted_connections_pass", Steps: []e2e.Step{
			{About: "whatever the other direction says", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", e2e.AllPods))),
				Want: e2e.Wants{"tcp 80": "-web>pods", "udp 53": "-web>pods", "icmp": "-web>pods",
					"tcp 9": "-web>pods", "udp 9": "-web>pods"}},
			{About: "in Baseline", Do: e2e.Do(e2e.Without("a"), e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods,
				`egress: [{action: Accept, to: [`+e2e.WebAlone+
					`]}, {action: Deny, to: [{namespaces: {}}]}]`))), Want: e2e.Wants{"tcp 80": "-pods>pods +pods>web",
				"udp 9": "-pods>pods +pods>web",
				"icmp":  "-pods>pods +pods>web"}},
			{About: "nothing is denied yet", Do: e2e.Without("b"), Want: e2e.Wants{"tcp 80": ""}, Then: keptTalks},
		}},
	}
}

// ownNeighbours makes a pod resolve its node and another pod again. Without an answer no packet would be sent, denied
// or not.
func ownNeighbours(t *testing.T, w *e2e.Cluster) {
	web := w.Hosts["web"]
	e2e.Run(t, web, "ip", "neigh", "flush", "dev", "eth0")
	e2e.EachFamily(func(family int) {
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["n1"].Addr(family), Port: 80}, lab.Allowed)
		w.Probe(t, "n1", lab.Packet{Proto: "tcp", To: web.Addr(family), Port: 80}, lab.Allowed)
	})
}

// keptTalks opens connections and denies new ones like them.
func keptTalks(t *testing.T, w *e2e.Cluster) {
	var talks []e2e.Conversation
	for _, from := range []string{"db", "copy", "n1"} {
		e2e.EachFamily(func(family int) { talks = append(talks, w.Converse(t, from, "web", family)) })
	}
	flow := func(family int) lab.Packet {
		return lab.Packet{Proto: "udp", To: w.Hosts["web"].Addr(family), Port: 53, FromPort: 45002}
	}
	e2e.EachFamily(func(family int) { w.Probe(t, "db", flow(family), lab.Allowed) })
	o := w.BaseObjects()
	e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, e2e.Ingress("Deny", e2e.AllPods),
		e2e.Egress("Deny", e2e.AllPods)))(w, o)
	w.Apply(t, o)
	w.Expect(t, e2e.Wants{"tcp 80": "-pods>web -web>pods", "udp 53": "-pods>web -web>pods"})
	for _, c := range talks {
		c.Say(t)
	}
	e2e.EachFamily(func(family int) { w.Probe(t, "db", flow(family), lab.Allowed) })
}
