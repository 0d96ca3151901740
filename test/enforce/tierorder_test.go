package enforce

import "strings"

// Subjects of cluster network policies.
const (
	allPods  = `{namespaces: {}}`
	shopPods = `{namespaces: {matchLabels: {team: a}}}`
	opsPods  = `{namespaces: {matchLabels: {team: b}}}`
	webAlone = `{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}`
	dbAlone  = `{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: db}}}}`
	monAlone = `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}}`
)

// admin and baseline return the spec of a cluster network policy. Rules are sections, as in "ingress: [{action: Deny,
// from: [...]}]".
func admin(priority, subject string, rules ...string) string {
	return "{tier: Admin, priority: " + priority + ", subject: " + subject + ", " + strings.Join(rules, ", ") + "}"
}

func baseline(priority, subject string, rules ...string) string {
	return "{tier: Baseline, priority: " + priority + ", subject: " + subject + ", " + strings.Join(rules, ", ") + "}"
}

// ingress and egress return a section with one rule for peers, which may be followed by protocols.
func ingress(action, peers string, protocols ...string) string {
	return "ingress: [{action: " + action + ", from: [" + peers + "]" + list("protocols", protocols) + "}]"
}

func egress(action, peers string, protocols ...string) string {
	return "egress: [{action: " + action + ", to: [" + peers + "]" + list("protocols", protocols) + "}]"
}

func list(field string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return ", " + field + ": [" + strings.Join(items, ", ") + "]"
}

// tierOrderCases show which of the policies that select a pod decides.
func tierOrderCases() []testCase {
	// Both directions are alike: what is said about ingress is turned around for egress.
	turned := func(verdicts string) string {
		var all []string
		for _, v := range strings.Fields(verdicts) {
			left, right, _ := strings.Cut(v[1:], ">")
			all = append(all, v[:1]+right+">"+left)
		}
		return strings.Join(all, " ")
	}
	steps := func(rule func(action, peers string, protocols ...string) string, opens, denies string, verdicts func(string) string) []step {
		in := func(tier func(priority, subject string, rules ...string) string, priority, action string) string {
			return tier(priority, allPods, rule(action, allPods))
		}
		want := func(text string) wants { return everyProtocol(verdicts(text)) }
		return []step{
			{about: "Admin accepts what a policy denies", do: do(policy("shop/p", denies), clusterPolicy("a", in(admin, "1", "Accept"))),
				want: want("-*>shop +pods>shop")},
			{about: "Admin denies what a policy allows", do: do(policy("shop/p", opens), clusterPolicy("a", in(admin, "1", "Deny"))),
				want: want("-pods>pods")},
			{about: "Admin passes to a policy that allows", do: clusterPolicy("a", in(admin, "1", "Pass")), want: want("")},
			{about: "and to one that denies", do: policy("shop/p", denies), want: want("-*>shop")},
			{about: "and to Baseline where no policy is", do: clusterPolicy("b", in(baseline, "0", "Deny")), want: want("-*>shop -pods>ops")},
			{about: "Admin accepts what Baseline denies", do: do(without("shop/p"), clusterPolicy("a", in(admin, "1", "Accept"))), want: want("")},
			{about: "Admin denies what Baseline accepts", do: do(clusterPolicy("a", in(admin, "1", "Deny")),
				clusterPolicy("b", in(baseline, "0", "Accept"))), want: want("-pods>pods")},
			{about: "Baseline denies", do: do(without("a"), clusterPolicy("b", in(baseline, "0", "Deny"))), want: want("-pods>pods")},
			{about: "no match goes on", do: clusterPolicy("a", admin("1", allPods, rule("Accept", monAlone))), want: want("-pods>pods +mon>pods")},
			{about: "Pass skips the rest of the tier", do: do(without("b"), clusterPolicy("a", in(admin, "1", "Pass")),
				clusterPolicy("c", in(admin, "2", "Deny"))), want: want("")},
			{about: "after the Pass of Baseline everything is allowed", do: do(without("a", "c"), clusterPolicy("a", in(baseline, "1", "Pass")),
				clusterPolicy("c", in(baseline, "2", "Deny"))), want: want("")},
			{about: "what no tier decides is allowed", do: do(without("a"), clusterPolicy("c", baseline("2", allPods, rule("Deny", monAlone)))),
				want: want("-mon>pods")},
			{do: without("c"), want: want("")},
		}
	}
	same := func(verdicts string) string { return verdicts }
	return append([]testCase{
		{name: "S80_admin_then_policies_then_baseline", steps: steps(ingress, `{podSelector: {}, ingress: [{}]}`, `{podSelector: {}}`, same)},
		{name: "S80_the_same_for_egress", steps: steps(egress, `{podSelector: {}, policyTypes: [Egress], egress: [{}]}`,
			`{podSelector: {}, policyTypes: [Egress]}`, turned)},
	}, append(isolatedCases(), priorityCases()...)...)
}

// isolatedCases show that pods that a v1 policy isolates never meet Baseline.
func isolatedCases() []testCase {
	const isolatesDB = `{podSelector: {matchLabels: {app: db}}}`
	return []testCase{
		{name: "S81_the_isolated_never_meet_baseline", steps: []step{
			{about: "its Accept opens nothing", do: do(policy("shop/p", isolatesDB),
				clusterPolicy("b", baseline("1", allPods, ingress("Accept", allPods), egress("Accept", allPods)))), want: everyProtocol("-*>db")},
			{about: "its Deny closes nothing", do: do(policy("shop/p", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`),
				clusterPolicy("b", baseline("1", allPods, ingress("Deny", allPods)))), want: everyProtocol("-pods>pods +pods>db")},
			{about: "each direction for itself", do: do(
				policy("shop/p", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`),
				clusterPolicy("b", baseline("1", shopPods, ingress("Deny", allPods), egress("Deny", allPods)))),
				want: everyProtocol("-pods>shop -shop>pods +db>ops")},
			{about: "the policy goes", do: without("shop/p"), want: everyProtocol("-pods>shop -shop>pods")},
		}},
		{name: "S81_those_of_an_invalid_policy_neither", says: []string{"policy is invalid.*shop/p"}, steps: []step{
			{about: "Baseline's Accept opens nothing", do: do(policy("shop/p", `
podSelector: {matchLabels: {app: db}}
ingress: [{from: [{podSelector: {}}]}, {from: [{ipBlock: {cidr: "::ffff:192.0.2.0/120"}}]}]`),
				clusterPolicy("b", baseline("1", allPods, ingress("Accept", allPods)))), want: everyProtocol("-*>db")},
			{about: "Admin's does", do: clusterPolicy("a", admin("1", allPods, ingress("Accept", monAlone))), want: everyProtocol("-*>db +mon>db")},
			{about: "valid again", do: do(without("a"), clusterPolicy("b", baseline("1", allPods, ingress("Deny", allPods))),
				policy("shop/p", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`)), want: everyProtocol("-pods>pods +pods>db")},
		}},
	}
}

// priorityCases show the order of the policies and rules of a tier, and that nothing but their rules decides.
func priorityCases() []testCase {
	const accept, deny, pass = `{action: Accept, from: [{namespaces: {}}]}`, `{action: Deny, from: [{namespaces: {}}]}`, `{action: Pass, from: [{namespaces: {}}]}`
	two := func(tier func(priority, subject string, rules ...string) string, acceptAs, acceptPriority, denyAs, denyPriority string) change {
		return do(without("a", "b", "z"), clusterPolicy(acceptAs, tier(acceptPriority, allPods, ingress("Accept", allPods))),
			clusterPolicy(denyAs, tier(denyPriority, allPods, ingress("Deny", allPods))))
	}
	rules := func(all ...string) change {
		return do(without("a", "b", "z"), clusterPolicy("a", admin("5", allPods, "ingress: ["+strings.Join(all, ", ")+"]")))
	}
	open, closed := wants{"tcp 80": "", "icmp": ""}, wants{"tcp 80": "-pods>pods", "icmp": "-pods>pods"}
	return []testCase{
		{name: "S82_lower_priority_numbers_first", steps: []step{
			{about: "0 before 1", do: two(admin, "z", "0", "a", "1"), want: open},
			{about: "9 before 10", do: two(admin, "z", "10", "a", "9"), want: closed},
			{about: "999 before 1000", do: two(admin, "z", "999", "a", "1000"), want: open},
			{about: "in Baseline", do: two(baseline, "a", "7", "z", "3"), want: closed},
			{about: "equal: by name", do: two(admin, "a", "5", "b", "5"), want: open},
			{about: "the other way", do: two(admin, "b", "5", "a", "5"), want: closed},
			{about: "in Baseline by name", do: two(baseline, "a", "5", "z", "5"), want: open},
			{about: "only a priority changes", do: clusterPolicy("z", baseline("4", allPods, ingress("Deny", allPods))), want: closed},
			{about: "a tier's numbers are its own", do: do(without("z"), clusterPolicy("b", baseline("0", allPods, ingress("Deny", allPods))),
				clusterPolicy("a", admin("1000", allPods, ingress("Accept", allPods)))), want: open},
			{about: "rules as written", do: rules(accept, deny), want: open},
			{about: "the other way", do: rules(deny, accept), want: closed},
			{about: "Pass as written", do: rules(pass, deny), want: open},
			{about: "a repeated rule", do: rules(`{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}}]}`, deny,
				`{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}}]}`, accept),
				want: wants{"tcp 80": "-pods>pods +mon>pods", "icmp": "-pods>pods +mon>pods"}},
		}},
		{name: "S87_no_policy_isolates_by_being_there", steps: []step{
			{about: "egress rules do nothing to ingress", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", allPods))),
				want: everyProtocol("-web>pods")},
			{about: "ingress rules do nothing to egress", do: do(without("a"), clusterPolicy("b", baseline("1", webAlone, ingress("Deny", allPods)))),
				want: everyProtocol("-pods>web")},
			{about: "an Accept that does not match", do: do(without("b"), clusterPolicy("a", admin("1", webAlone,
				ingress("Accept", `{namespaces: {matchLabels: {team: none}}}`), egress("Accept", `{networks: [198.51.100.0/24]}`)))), want: everyProtocol("")},
			{about: "in Baseline too", do: do(without("a"), clusterPolicy("b", baseline("1", webAlone,
				ingress("Accept", `{namespaces: {matchLabels: {team: none}}}`), egress("Pass", `{networks: [198.51.100.0/24]}`)))), want: everyProtocol("")},
			{about: "and without rules", do: do(clusterPolicy("a", `{tier: Admin, priority: 1, subject: {namespaces: {}}}`),
				clusterPolicy("b", `{tier: Baseline, priority: 1, subject: {namespaces: {}}}`)), want: everyProtocol("")},
		}},
		{name: "S88_both_directions_decide", steps: []step{
			{about: "accepted on egress, denied on ingress by a cluster policy", do: do(
				clusterPolicy("a", admin("1", shopPods, egress("Accept", allPods))), clusterPolicy("z", admin("2", opsPods, ingress("Deny", allPods)))),
				want: everyProtocol("-pods>ops")},
			{about: "by a policy", do: do(without("z"), policy("ops/p", `{podSelector: {}}`)), want: everyProtocol("-*>ops")},
			{about: "by Baseline", do: do(without("ops/p"), clusterPolicy("z", baseline("2", opsPods, ingress("Deny", allPods)))),
				want: everyProtocol("-pods>ops")},
			{about: "accepted on ingress, denied on egress", do: do(without("z"), clusterPolicy("a", admin("1", opsPods, ingress("Accept", allPods))),
				clusterPolicy("z", admin("2", shopPods, egress("Deny", allPods)))), want: everyProtocol("-shop>pods")},
			{about: "on egress by a policy", do: do(without("z"), policy("shop/p", `{podSelector: {}, policyTypes: [Egress]}`)),
				want: everyProtocol("-shop>*")},
		}},
	}
}
