package enforce

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// ownNodeTierCases show when a pod does not reach its own node.
func ownNodeTierCases() []testCase {
	const node1 = `{networks: [$n14/32, "$n16/128"]}`
	// gateway asks for addresses of the node that the networks above do not have.
	gateway := func(wanted lab.Verdict) func(t *testing.T, w *harness) {
		return func(t *testing.T, w *harness) {
			if w.attach != lab.Bridge {
				return
			}
			for _, r := range w.Node("node1").PodRanges() {
				w.probe(t, "web", lab.Packet{Proto: "icmp", To: r.Addr().Next()}, wanted)
			}
		}
	}
	const said = "cluster network policy is invalid.*policy=a "
	return []testCase{
		{name: "S90_a_pod_reaches_its_own_node_but_for_networks_that_deny", steps: []step{
			{about: "in Admin", do: clusterPolicy("a", admin("1", shopPods, egress("Deny", node1))), want: everyProtocol("!shop>n1"), then: gateway(lab.Allowed)},
			{about: "some ports", do: clusterPolicy("a", admin("1", shopPods, egress("Deny", node1, `{tcp: {destinationPort: {number: 80}}}`))),
				want: wants{"tcp 80": "!shop>n1", "tcp 81": "", "udp 53": "", "icmp": ""}},
			{about: "all addresses of a family", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", `{networks: [0.0.0.0/0]}`))),
				want: wants{"tcp 80 /4": "!web>*", "icmp /4": "!web>*", "tcp 80 /6": "", "icmp /6": ""}},
			{about: "of both", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`))),
				want: everyProtocol("!web>*"), then: gateway(lab.Dropped)},
			{about: "an Accept before", do: clusterPolicy("a", admin("1", webAlone, `egress: [
{action: Accept, to: [`+node1+`], protocols: [{tcp: {destinationPort: {number: 80}}}]}, {action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]`)),
				want: wants{"tcp 80": "!web>* +web>n1", "udp 53": "!web>*", "icmp": "!web>*"}},
			{about: "in Baseline", do: do(without("a"), clusterPolicy("b", baseline("1", allPods, egress("Deny", node1)))), want: everyProtocol("!pods>n1")},
			{about: "which the isolated never meet", do: policy("shop/p", closeAll), want: everyProtocol("!ops>n1 -*>shop -shop>* +shop>n1 -api>n1")},
			{about: "v1 policies do not apply to what Admin passes", do: do(without("b"), clusterPolicy("a", admin("1", allPods, egress("Pass", node1)))),
				want: everyProtocol("-*>shop -shop>*")},
			{about: "nor namespaces and pods", do: do(without("shop/p"), clusterPolicy("a", admin("1", allPods,
				egress("Deny", `{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {}}}`)))), want: everyProtocol("-pods>pods"), then: gateway(lab.Allowed)},
			{about: "no policy", do: without("a"), want: everyProtocol(""), then: gateway(lab.Allowed)},
		}},
		{name: "S90_S92_replies_to_the_own_node_pass", steps: []step{
			{then: func(t *testing.T, w *harness) {
				var talks []conversation
				for _, ends := range [][2]string{{"n1", "web"}, {"web", "n1"}} {
					families(func(family int) { talks = append(talks, w.converse(t, ends[0], ends[1], family)) })
				}
				o := w.baseObjects()
				clusterPolicy("a", admin("1", webAlone, egress("Deny", node1)))(w, o)
				w.apply(t, o)
				w.expect(t, everyProtocol("!web>n1"))
				for _, c := range talks {
					c.say(t)
				}
			}},
		}},
		{name: "S89_domain_names_fail_closed", says: []string{said}, steps: []step{
			{about: "Accept matches nothing", do: clusterPolicy("a", admin("1", webAlone, `egress: [
{action: Accept, to: [{domainNames: ["*.example.com"]}]}, {action: Deny, to: [{namespaces: {}}]}]`)), want: everyProtocol("-web>pods")},
			{about: "Deny denies all", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", `{domainNames: [example.com]}`))), want: everyProtocol("!web>*")},
			{about: "whatever the other peers and protocols are", do: clusterPolicy("a", admin("1", webAlone,
				egress("Deny", monAlone+`, {domainNames: [example.com]}`, `{tcp: {destinationPort: {number: 80}}}`))), want: everyProtocol("!web>*")},
			{about: "Pass too", do: clusterPolicy("a", admin("1", webAlone, egress("Pass", `{domainNames: [example.com]}`))), want: everyProtocol("!web>*")},
			{about: "rules before it stand", do: clusterPolicy("a", admin("1", webAlone, `egress: [
{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{domainNames: [example.com]}]}]`)), want: everyProtocol("!web>* +web>pods")},
			{about: "other pods are free", do: clusterPolicy("a", baseline("1", dbAlone, egress("Pass", `{domainNames: [example.com]}`))),
				want: everyProtocol("!db>*")},
			{about: "valid again", do: clusterPolicy("a", baseline("1", dbAlone, egress("Deny", monAlone))), want: everyProtocol("-db>mon")},
		}},
	}
}
