package kernel

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestS90_KernelVerdictsToTheNode shows that what a pod sends to its own node is sent through INPUT if INPUT leads to
// weave-npc or policies deny it, and else not at all.
func TestS90_KernelVerdictsToTheNode(t *testing.T) {
	const web, other, node = "10.32.1.2", "10.32.1.3", "192.0.2.1"
	deny := "-A WEAVE-NPC-EGRESS -s " + web + "/32 -g WEAVE-NPC-DROP-E"
	hook := "-A INPUT -m addrtype --dst-type LOCAL -j WEAVE-NPC-EGRESS"
	for _, c := range []struct {
		name, from, to  string
		input           []string
		asked, accepted bool
		policies        bool
		way             string
	}{
		{"denied", web, node, []string{hook}, true, false, false, "INPUT 1, WEAVE-NPC-EGRESS 1, WEAVE-NPC-DROP-E 1"},
		{"not_denied", other, node, []string{hook}, true, true, true, "INPUT 1"},
		{"denied_and_not_led_there", web, node, nil, true, true, false, ""},
		{"not_denied_and_not_led_there", other, node, nil, false, false, true, ""},
		{"a_foreign_rule", other, node, []string{"-A INPUT -j ACCEPT"}, false, false, true, ""},
		{"a_foreign_rule_before_ours", web, node, []string{"-A INPUT -p tcp -j ACCEPT", hook}, true, true, false, "INPUT 1"},
		{"from_the_node", node, web, []string{hook}, false, false, true, ""},
		{"another_nodes_pod", "10.32.2.2", "192.0.2.2", []string{hook}, false, false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := cluster.New()
			objects.SetNamespace(fixture.Namespace("shop"))
			objects.SetPod(fixture.Pod("shop/web node1 app=web " + web))
			objects.SetPod(fixture.Pod("shop/other node1 app=other " + other))
			objects.SetPod(fixture.Pod("shop/far node2@192.0.2.2 10.32.2.2 app=web"))
			objects.SetNodeAddrs("node1", fixture.Addrs(node))
			objects.SetClusterPolicy(fixture.ClusterPolicy(t, "p", `{tier: Admin, priority: 1,
				subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}, egress: [{action: Deny, to: [{networks: [192.0.2.0/24]}]}]}`))
			s := State{tables: map[npc.Family]iptables.Seen{npc.IPv4: {Hooks: map[string][]string{"INPUT": c.input},
				Chains: map[string]iptables.SeenChain{"WEAVE-NPC-EGRESS": {Text: []string{deny}},
					"WEAVE-NPC-DROP-E": {Text: []string{"-A WEAVE-NPC-DROP-E -j DROP"}}}}}}
			s.Describe(Purpose{Cluster: objects})
			v, err := s.Verdict(fixture.Flows(t, objects.View(), c.from, c.to, "tcp/80")[0], "node1")
			if err != nil {
				t.Fatal(err)
			}
			if v.Asked != c.asked || v.ToNode != c.asked || v.Accepted != c.accepted || v.Policies != c.policies || strings.Join(v.Trace, ", ") != c.way {
				t.Errorf("%+v", v)
			}
		})
	}
}
