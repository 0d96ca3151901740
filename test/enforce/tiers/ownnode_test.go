package tiers

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// ownNodeTierCases show when a pod does not reach its own node.
func ownNodeTierCases() []e2e.Case {
	const node1 = `{networks: [$n14/32, "$n16/128"]}`
	// gateway asks for addresses of the node that the networks above do not have.
	gateway := func(wanted lab.Verdict) func(t *testing.T, w *e2e.Cluster) {
		return func(t *testing.T, w *e2e.Cluster) {
			if w.Attach != lab.Bridge {
				return
			}
			for _, r := range w.Node("node1").PodRanges() {
				w.Probe(t, "web", lab.Packet{Proto: "icmp", To: r.Addr().Next()}, wanted)
			}
		}
	}
	const said = "cluster network policy is invalid.*policy=a "
	return []e2e.Case{
		{Name: "S90_a_pod_reaches_its_own_node_but_for_networks_that_deny", Steps: []e2e.Step{
			{About: "in Admin", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods, e2e.Egress("Deny", node1))),
				Want: e2e.EveryProtocol("!shop>n1"), Then: gateway(lab.Allowed)},
			{About: "some ports", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Egress("Deny", node1, `{tcp: {destinationPort: {number: 80}}}`))),
				Want: e2e.Wants{"tcp 80": "!shop>n1", "tcp 81": "", "udp 53": "", "icmp": ""}},
			{About: "all addresses of a family", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", `{networks: [0.0.0.0/0]}`))),
				Want: e2e.Wants{"tcp 80 /4": "!web>*", "icmp /4": "!web>*", "tcp 80 /6": "", "icmp /6": ""}},
			{About: "of both", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`))),
				Want: e2e.EveryProtocol("!web>*"), Then: gateway(lab.Dropped)},
			{About: "an Accept before", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, `egress: [
{action: Accept, to: [`+node1+`], protocols: [{tcp: {destinationPort: {number: 80}}}]}, {action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]`)),
				Want: e2e.Wants{"tcp 80": "!web>* +web>n1", "udp 53": "!web>*", "icmp": "!web>*"}},
			{About: "in Baseline", Do: e2e.Do(e2e.Without("a"), e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods,
				e2e.Egress("Deny", node1)))), Want: e2e.EveryProtocol("!pods>n1")},
			{About: "which the isolated never meet", Do: e2e.Policy("shop/p", e2e.CloseAll),
				Want: e2e.EveryProtocol("!ops>n1 -*>shop -shop>* +shop>n1 -api>n1")},
			{About: "v1 policies do not apply to what Admin passes", Do: e2e.Do(e2e.Without("b"),
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.AllPods, e2e.Egress("Pass", node1)))),
				Want: e2e.EveryProtocol("-*>shop -shop>*")},
			{About: "nor namespaces and pods", Do: e2e.Do(e2e.Without("shop/p"),
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.AllPods,
					e2e.Egress("Deny", `{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {}}}`)))),
				Want: e2e.EveryProtocol("-pods>pods"), Then: gateway(lab.Allowed)},
			{About: "no policy", Do: e2e.Without("a"), Want: e2e.EveryProtocol(""), Then: gateway(lab.Allowed)},
		}},
		{Name: "S90_S92_replies_to_the_own_node_pass", Steps: []e2e.Step{
			{Then: func(t *testing.T, w *e2e.Cluster) {
				var talks []e2e.Conversation
				for _, ends := range [][2]string{{"n1", "web"}, {"web", "n1"}} {
					e2e.EachFamily(func(family int) { talks = append(talks, w.Converse(t, ends[0], ends[1], family)) })
				}
				o := w.BaseObjects()
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, e2e.Egress("Deny", node1)))(w, o)
				w.Apply(t, o)
				w.Expect(t, e2e.EveryProtocol("!web>n1"))
				for _, c := range talks {
					c.Say(t)
				}
			}},
		}},
		{Name: "S89_domain_names_fail_closed", Says: []string{said}, Steps: []e2e.Step{
			{About: "Accept matches nothing where no answer gave an address", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, `egress: [
{action: Accept, to: [{domainNames: ["*.example.com"]}]}, {action: Deny, to: [{namespaces: {}}]}]`)), Want: e2e.EveryProtocol("-web>pods")},
			{About: "Deny denies all", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", `{domainNames: [example.com]}`))), Want: e2e.EveryProtocol("!web>*")},
			{About: "whatever the other peers and protocols are", Do: e2e.ClusterPolicy("a",
				e2e.Admin("1", e2e.WebAlone,
					e2e.Egress("Deny", e2e.MonAlone+`, {domainNames: [example.com]}`,
						`{tcp: {destinationPort: {number: 80}}}`))), Want: e2e.EveryProtocol("!web>*")},
			{About: "Pass too", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Pass", `{domainNames: [example.com]}`))), Want: e2e.EveryProtocol("!web>*")},
			{About: "rules before it stand", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, `egress: [
{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{domainNames: [example.com]}]}]`)), Want: e2e.EveryProtocol("!web>* +web>pods")},
			{About: "other pods are free", Do: e2e.ClusterPolicy("a", e2e.Baseline("1", e2e.DBAlone,
				e2e.Egress("Pass", `{domainNames: [example.com]}`))),
				Want: e2e.EveryProtocol("!db>*")},
			{About: "valid again", Do: e2e.ClusterPolicy("a", e2e.Baseline("1", e2e.DBAlone,
				e2e.Egress("Deny", e2e.MonAlone))), Want: e2e.EveryProtocol("-db>mon")},
		}},
	}
}
