package refmodel_test

import "testing"

func TestS80_AdminThenPoliciesThenBaseline(t *testing.T) {
	const (
		admin    = `admin: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: `
		baseline = `baseline: {tier: Baseline, priority: 0, subject: {namespaces: {}}, ingress: [{action: `
		end      = `, ` + fromAll + `}]}` + "\n"
		denies   = `shop/p: {podSelector: {}}`
		opens    = `shop/p: {podSelector: {}, ingress: [{}]}`
	)
	run(t, []scenario{
		{"no policy", "", "", map[string]verdict{webDBTCP: passes, "outside>db udp/53": passes}},
		{"Admin accepts what a policy denies", admin + "Accept" + end, denies, map[string]verdict{webDBTCP: passes, "outside>db tcp/80": notIn}},
		{"Admin denies what a policy allows", admin + "Deny" + end, opens, map[string]verdict{webDBTCP: notIn, "outside>db tcp/80": passes}},
		{"Admin passes to policies that deny", admin + "Pass" + end, denies, map[string]verdict{webDBTCP: notIn}},
		{"Admin passes to policies that allow", admin + "Pass" + end, opens, map[string]verdict{webDBTCP: passes}},
		{"Admin passes to Baseline where no policy is", admin + "Pass" + end + baseline + "Deny" + end, denies,
			map[string]verdict{"web>mon tcp/80": notIn}},
		{"Admin accepts what Baseline denies", admin + "Accept" + end + baseline + "Deny" + end, "", map[string]verdict{webDBTCP: passes}},
		{"Admin denies what Baseline accepts", admin + "Deny" + end + baseline + "Accept" + end, "", map[string]verdict{webDBTCP: notIn}},
		{"Baseline denies", baseline + "Deny" + end, "", map[string]verdict{webDBTCP: notIn, "outside>db tcp/80": passes}},
		{"Pass skips the rest of the tier", admin + "Pass" + end + `second: {tier: Admin, priority: 2, subject: {namespaces: {}},
			ingress: [{action: Deny, ` +
			fromAll + `}]}`, "", map[string]verdict{webDBTCP: passes}},
		{"after Baseline's Pass: allowed", baseline + "Pass" + end + `second: {tier: Baseline, priority: 2, subject: {namespaces: {}},
			ingress: [{action: Deny, ` + fromAll + `}]}`, "", map[string]verdict{webDBTCP: passes}},
		{"no match goes on", `admin: {tier: Admin, priority: 1, subject: {namespaces: {}},
			ingress: [{action: Accept, from: [{pods: {namespaceSelector: {},
			podSelector: {matchLabels: {app: mon}}}}]}]}` + "\n" + baseline + "Deny" + end, "", map[string]verdict{webDBTCP: notIn, "mon>db tcp/80": passes}},
	})
}

func TestS81_TheIsolatedNeverMeetBaseline(t *testing.T) {
	const (
		accepts = `b: {tier: Baseline, priority: 1, subject: {namespaces: {}}, ingress: [{action: Accept, ` + fromAll + `}],
			egress: [{action: Accept, ` + toAll + `}]}`
		denies = `b: {tier: Baseline, priority: 1, subject: {namespaces: {}},
			ingress: [{action: Deny, ` + fromAll + `}], egress: [{action: Deny, ` + toAll + `}]}`
	)
	run(t, []scenario{
		{"Baseline's Accept opens nothing", accepts, `shop/p: {podSelector: {matchLabels: {app: db}}}`,
			map[string]verdict{webDBTCP: notIn, "mon>web tcp/80": passes}},
		{"Baseline's Deny closes nothing", denies, `shop/p: {podSelector: {matchLabels: {app: db}}, ingress: [{}]}`,
			map[string]verdict{webDBTCP: notOut, dbWebTCP: isDenied}},
		{"each direction for itself", denies, `shop/p: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`,
			map[string]verdict{webDBTCP: isDenied, dbWebTCP: notIn}},
		{"a policy with a malformed block isolates too", accepts,
			`shop/p: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0.0/8}}, {podSelector: {}}]}]}`,
			map[string]verdict{webDBTCP: notIn, dbWebTCP: passes}},
		{"one with a malformed selector isolates its namespace", accepts,
			`shop/p: {podSelector: {matchExpressions: [{key: app, operator: Near}]}, ingress: [{}]}`,
			map[string]verdict{webDBTCP: notIn, dbWebTCP: notIn, "web>mon tcp/80": passes}},
	})
}

func TestS82_LowerPriorityNumbersFirst(t *testing.T) {
	policy := func(name, priority, rules string) string {
		return name + `: {tier: Admin, priority: ` + priority + `, subject: {namespaces: {}}, ingress: [` + rules + "]}\n"
	}
	const (
		accept = `{action: Accept, ` + fromAll + `}`
		deny   = `{action: Deny, ` + fromAll + `}`
		pass   = `{action: Pass, ` + fromAll + `}`
	)
	run(t, []scenario{
		{"0 before 1", policy("z", "0", accept) + policy("a", "1", deny), "", map[string]verdict{webDBTCP: passes}},
		{"9 before 10", policy("z", "9", accept) + policy("a", "10", deny), "", map[string]verdict{webDBTCP: passes}},
		{"999 before 1000", policy("a", "1000", accept) + policy("z", "999", deny), "", map[string]verdict{webDBTCP: notIn}},
		{"equal priorities: by name", policy("a", "5", accept) + policy("b", "5", deny), "", map[string]verdict{webDBTCP: passes}},
		{"equal priorities: by name, the other way", policy("b", "5", accept) + policy("a", "5", deny), "", map[string]verdict{webDBTCP: notIn}},
		{"rules as written", policy("a", "5", accept+", "+deny), "", map[string]verdict{webDBTCP: passes}},
		{"rules as written, the other way", policy("a", "5", deny+", "+accept), "", map[string]verdict{webDBTCP: notIn}},
		{"Pass as written", policy("a", "5", pass+", "+deny), "", map[string]verdict{webDBTCP: passes}},
		{"a tier's numbers are its own", `a: {tier: Baseline, priority: 0, subject: {namespaces: {}}, ingress: [` + deny + "]}\n" +
			policy("b", "1000", accept), "", map[string]verdict{webDBTCP: passes}},
	})
}

func TestS83_Subjects(t *testing.T) {
	deny := func(subject string) string {
		return `a: {tier: Admin, priority: 1, subject: ` + subject + `, ingress: [{action: Deny, ` + fromAll + `}],
			egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`
	}
	run(t, []scenario{
		{"all namespaces", deny(`{namespaces: {}}`), "", map[string]verdict{webDBTCP: isDenied, monWebTCP: isDenied, "mon>outside icmp": notOut}},
		{"namespaces by label", deny(`{namespaces: {matchLabels: {team: b}}}`), "",
			map[string]verdict{webDBTCP: passes, "web>mon tcp/80": notIn, monWebTCP: notOut}},
		{"namespaces without a label", deny(`{namespaces: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}`), "",
			map[string]verdict{webDBTCP: isDenied, "web>mon tcp/80": notOut}},
		{"all pods of all namespaces", deny(`{pods: {namespaceSelector: {}, podSelector: {}}}`), "",
			map[string]verdict{webDBTCP: isDenied, "web>mon tcp/80": isDenied}},
		{"pods by label", deny(`{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}`), "",
			map[string]verdict{webDBTCP: notIn, dbWebTCP: notOut, monWebTCP: passes}},
		{"pods of some namespaces", deny(`{pods: {namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: db}}}}`), "",
			map[string]verdict{webDBTCP: passes, monWebTCP: passes}},
		{"a pod on its node's network is none", deny(`{namespaces: {}}`), "",
			map[string]verdict{"node2>web tcp/80": passes, "node2>outside tcp/80": passes, "outside>node2 tcp/80": passes}},
	})
}
