package refmodel_test

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/test/refmodel"
)

func TestS87_NoImplicitIsolation(t *testing.T) {
	run(t, []scenario{
		{"a policy of egress rules does nothing to ingress", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			egress: [{action: Deny, ` + toAll + `}]}`, "",
			map[string]verdict{webDBTCP: notOut, "outside>web tcp/80": passes}},
		{"a policy of ingress rules does nothing to egress", `a: {tier: Baseline, priority: 1, subject: {namespaces: {}},
			ingress: [{action: Deny, ` + fromAll + `}]}`,
			"", map[string]verdict{webDBTCP: notIn, "web>outside tcp/80": passes}},
		{"an Accept that does not match", `a: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Accept,
			from: [{namespaces: {matchLabels: {team: none}}}]}]}`, "", map[string]verdict{webDBTCP: passes}},
		{"the same in Baseline", `a: {tier: Baseline, priority: 1, subject: {namespaces: {}}, ingress: [{action: Accept,
			from: [{namespaces: {matchLabels: {team: none}}}]}]}`, "", map[string]verdict{webDBTCP: passes}},
		{"a policy without rules", `a: {tier: Admin, priority: 1, subject: {namespaces: {}}}`, "", map[string]verdict{webDBTCP: passes}},
	})
}

func TestS88_BothDirectionsDecide(t *testing.T) {
	const accept = `accept: {tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: a}}},
			egress: [{action: Accept, ` + toAll + `}]}` + "\n"
	run(t, []scenario{
		{"accepted on egress, denied on ingress by a cluster policy", accept +
			`deny: {tier: Admin, priority: 2, subject: {namespaces: {}}, ingress: [{action: Deny, ` + fromAll + `}]}`, "",
			map[string]verdict{"web>mon tcp/80": notIn}},
		{"accepted on egress, denied on ingress by a policy", accept, `ops/p: {podSelector: {}}`, map[string]verdict{"web>mon tcp/80": notIn}},
		{"accepted on ingress, denied on egress",
			`a: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Accept, ` + fromAll + `}],
			egress: [{action: Deny, ` + toAll + `}]}`, "",
			map[string]verdict{"web>mon tcp/80": notOut}},
	})
}

func TestS89_FailClosed(t *testing.T) {
	egress := func(action, rest string) string {
		return `a: {tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: a}}}, egress: [{action: ` + action + `, ` + rest + `}]}`
	}
	nothing := map[string]verdict{webDBTCP: passes, "web>mon udp/53": passes, "web>outside icmp": passes, "web6>mon6 tcp/80": passes}
	everything := map[string]verdict{webDBTCP: notOut, "web>mon udp/53": notOut, "web>outside icmp": notOut, "web6>mon6 tcp/80": notOut,
		"web>node1 tcp/80": notOut, "mon>web tcp/80": passes, "outside>web tcp/80": passes}
	var scenarios []scenario
	for name, rest := range map[string]string{
		"a peer with no known field":     `to: [{}]`,
		"a peer with two fields":         `to: [{namespaces: {}, nodes: {}}]`,
		"a malformed network":            `to: [{networks: [10.0.0.0.0/8]}]`,
		"a peer with unknown operator":   `to: [{namespaces: {matchExpressions: [{key: team, operator: Near}]}}]`,
		"domain names and networks":      `to: [{domainNames: [example.com], networks: [10.0.0.0/8]}]`,
		"one unknown peer of two":        `to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: none}}}}, {}]`,
		"a protocol with no known field": `to: [{namespaces: {}}], protocols: [{tcp: {}}, {}]`,
		"a protocol with two fields":     `to: [{namespaces: {}}], protocols: [{tcp: {}, udp: {}}]`,
		"a port of no known kind":        `to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {}}}]`,
		"a port of two kinds":            `to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}]`,
		"a reversed range":               `to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 2, end: 1}}}}]`,
		"no peers":                       `to: []`,
	} {
		scenarios = append(scenarios, scenario{name + ": Accept matches nothing", egress("Accept", rest) +
			"\n" + `z: {tier: Admin, priority: 2, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`, "",
			map[string]verdict{webDBTCP: notOut, "web>mon udp/53": notOut, "web>outside icmp": notOut, "web6>mon6 tcp/80": passes}},
			scenario{name + ": Deny denies all", egress("Deny", rest), "", everything},
			scenario{name + ": Pass denies all", egress("Pass", rest), "", everything})
	}
	run(t, append(scenarios, []scenario{
		{"an unknown action denies all", egress("Allow", `to: [{nodes: {}}]`), "", everything},
		{"ingress", `a: {tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: a}}},
			ingress: [{action: Deny, from: [{}], protocols: [{udp: {}}]}]}`, "",
			map[string]verdict{"mon>web tcp/80": notIn, "outside>web icmp": notIn, "node1>web tcp/80": passes, "web>outside tcp/80": passes}},
		{"Baseline", `a: {tier: Baseline, priority: 1, subject: {namespaces: {matchLabels: {team: a}}}, egress: [{action: Pass, to: [{}]}]}`,
			`shop/p: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`,
			map[string]verdict{"web>outside tcp/80": notOut, "db>outside tcp/80": passes}},
		{"rules before it stand", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			egress: [{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{domainNames: [example.com]}]}]}`, "",
			map[string]verdict{webDBTCP: passes, "web>outside tcp/80": notOut}},
		{"an unknown tier decides nothing", `a: {tier: Platform, priority: 1, subject: {namespaces: {}},
			egress: [{action: Deny, ` + toAll + `}]}`, "", nothing},
		{"an unknown subject decides nothing", `a: {tier: Admin, priority: 1, subject: {}, egress: [{action: Deny, to: [{}]}]}`, "", nothing},
		{"a subject of two kinds decides nothing", `a: {tier: Admin, priority: 1,
			subject: {namespaces: {}, pods: {namespaceSelector: {}, podSelector: {}}}, egress: [{action: Deny, ` + toAll + `}]}`, "", nothing},
		{"a subject that cannot be read decides nothing", `a: {tier: Admin, priority: 1,
			subject: {namespaces: {matchExpressions: [{key: team, operator: Near}]}}, egress: [{action: Deny, ` + toAll + `}]}`, "", nothing},
	}...))
}

func TestS90_ThePodsOwnNode(t *testing.T) {
	egress := func(tier, action, peer string) string {
		return `a: {tier: ` + tier + `, priority: 1, subject: {namespaces: {}}, egress: [{action: ` + action + `, to: [` + peer + `]}]}`
	}
	const isolates = `shop/p: {podSelector: {}, policyTypes: [Ingress, Egress]}`
	run(t, []scenario{
		{"reaches it past v1 policies", "", isolates, map[string]verdict{"node1>web tcp/80": passes, "also1>web icmp": passes, "node16>web6 tcp/80": passes,
			"node2>web tcp/80": notIn, "web>node1 tcp/80": passes, "web>node2 tcp/80": notOut}},
		{"reaches it past cluster policies", `a: {tier: Admin, priority: 1, subject: {namespaces: {}},
			ingress: [{action: Deny, from: [{}]}]}`, "",
			map[string]verdict{"node1>web tcp/80": passes, "node16>web6 icmp": passes, "node2>web tcp/80": notIn, "node2>mon tcp/80": passes}},
		{"is not reached where networks deny", egress("Admin", "Deny", `{networks: [172.31.0.0/24]}`), "",
			map[string]verdict{"web>node1 tcp/80": notOut, "web>also1 tcp/80": passes, "web6>node16 tcp/80": passes, "node1>web tcp/80": passes}},
		{"is not reached where nodes deny", egress("Admin", "Deny", `{nodes: {}}`), isolates,
			map[string]verdict{"web>node1 tcp/80": notOut, "web6>node16 tcp/80": notOut, "mon>node2 tcp/80": notOut}},
		{"is reached where pods and namespaces deny", egress("Admin", "Deny", `{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {}}}`), "",
			map[string]verdict{"web>node1 tcp/80": passes, "mon6>node26 tcp/80": passes}},
		{"is not reached where Baseline denies", egress("Baseline", "Deny", `{nodes: {}}`), "",
			map[string]verdict{"web>node1 tcp/80": notOut, "web>outside tcp/80": passes}},
		{"is reached by the isolated, which never meet Baseline", egress("Baseline", "Deny", `{nodes: {}}`), isolates,
			map[string]verdict{"web>node1 tcp/80": passes, "mon>node2 tcp/80": notOut}},
		{"Pass goes past v1 policies", egress("Admin", "Pass", `{nodes: {}}`), isolates,
			map[string]verdict{"web>node1 tcp/80": passes, "web>node2 tcp/80": notOut}},
	})
}

func TestS91_APodReachesItself(t *testing.T) {
	const (
		isolates = `shop/p: {podSelector: {}, policyTypes: [Ingress, Egress]}`
		through  = "web>web tcp/80 through a Service"
		direct   = "web>web tcp/80"
	)
	deny := func(tier, rest string) string {
		return `a: {tier: ` + tier + `, priority: 1, subject: {namespaces: {}}, ` + rest + `}`
	}
	run(t, []scenario{
		{"v1 policies apply to neither", "", isolates, map[string]verdict{direct: passes, through: passes, webDBTCP: isDenied}},
		{"Admin denies ingress", deny("Admin", `ingress: [{action: Deny, `+fromAll+`}]`), "", map[string]verdict{direct: passes, through: notIn}},
		{"Admin denies egress", deny("Admin", `egress: [{action: Deny, `+toAll+`}]`), "", map[string]verdict{direct: passes, through: notOut}},
		{"Admin denies both, whatever v1 policies say", deny("Admin", `egress: [{action: Deny, to: [{}]}],
			ingress: [{action: Deny, from: [{}]}]`), isolates,
			map[string]verdict{direct: passes, through: isDenied}},
		{"Admin passes", deny("Admin", `egress: [{action: Pass, `+toAll+`}], ingress: [{action: Pass, `+fromAll+`}]`), isolates,
			map[string]verdict{direct: passes, through: passes}},
		{"Baseline denies", deny("Baseline", `ingress: [{action: Deny, `+fromAll+`}]`), "", map[string]verdict{direct: passes, through: notIn}},
		{"Baseline, which the isolated never meet", deny("Baseline", `ingress: [{action: Deny, `+fromAll+`}]`), isolates,
			map[string]verdict{direct: passes, through: passes}},
	})
}

// TestS72_ClusterPoliciesOfConflictingPods shows that a direction is closed to the pod that has an address if a cluster
// policy denies a conflicting pod anything in it.
func TestS72_ClusterPoliciesOfConflictingPods(t *testing.T) {
	const denies = `[{action: Deny, ` + fromAll + `}]`
	for name, c := range map[string]struct {
		tier, rules, policies string
		want                  verdict
	}{
		"no rules":                            {"Admin", ``, "", passes},
		"Accept":                              {"Admin", `, ingress: [{action: Accept, ` + fromAll + `}]`, "", passes},
		"Accept for one that policies select": {"Admin", `, ingress: [{action: Accept, ` + fromAll + `}]`, `ops/p: {podSelector: {}}`, notIn},
		"Admin's Deny":                        {"Admin", `, ingress: ` + denies, "", notIn},
		"Baseline's Deny":                     {"Baseline", `, ingress: ` + denies, "", notIn},
		"a rule that fails closed":            {"Admin", `, ingress: [{action: Pass, from: [{}]}]`, "", notIn},
		"Deny in the other direction":         {"Admin", `, egress: [{action: Deny, ` + toAll + `}]`, "", passes},
	} {
		t.Run(name, func(t *testing.T) {
			w := harness(t, `a: {tier: `+c.tier+`, priority: 1, subject: {namespaces: {matchLabels: {team: b}}}`+c.rules+`}`, c.policies)
			w.Pods[1].ConflictingPods = []refmodel.Pod{{Namespace: "ops", Name: "rival", Node: "node1", Addrs: []netip.Addr{netip.MustParseAddr(addresses["db"])}}}
			if got := ask(t, w, webDBTCP); got != c.want {
				t.Errorf("%s; must be %s", got, c.want)
			}
		})
	}
}
