package tiers

import (
	"strings"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// tierOrderCases show which of the policies that select a pod decides.
func tierOrderCases() []e2e.Case {
	// Both directions are alike: what is said about ingress is turned around for egress.
	turned := func(verdicts string) string {
		var all []string
		for _, v := range strings.Fields(verdicts) {
			left, right, _ := strings.Cut(v[1:], ">")
			all = append(all, v[:1]+right+">"+left)
		}
		return strings.Join(all, " ")
	}
	steps := func(rule func(action, peers string, protocols ...string) string, opens, denies string,
		verdicts func(string) string) []e2e.Step {
		in := func(tier func(priority, subject string, rules ...string) string, priority, action string) string {
			return tier(priority, e2e.AllPods, rule(action, e2e.AllPods))
		}
		want := func(text string) e2e.Wants { return e2e.EveryProtocol(verdicts(text)) }
		return []e2e.Step{
			{About: "Admin accepts what a policy denies", Do: e2e.Do(e2e.Policy("shop/p", denies),
				e2e.ClusterPolicy("a", in(e2e.Admin, "1", "Accept"))),
				Want: want("-*>shop +pods>shop")},
			{About: "Admin denies what a policy allows", Do: e2e.Do(e2e.Policy("shop/p", opens),
				e2e.ClusterPolicy("a", in(e2e.Admin, "1", "Deny"))),
				Want: want("-pods>pods")},
			{About: "Admin passes to a policy that allows", Do: e2e.ClusterPolicy("a", in(e2e.Admin, "1", "Pass")),
				Want: want("")},
			{About: "and to one that denies", Do: e2e.Policy("shop/p", denies), Want: want("-*>shop")},
			{About: "and to Baseline where no policy is", Do: e2e.ClusterPolicy("b", in(e2e.Baseline, "0", "Deny")),
				Want: want("-*>shop -pods>ops")},
			{About: "Admin accepts what Baseline denies", Do: e2e.Do(e2e.Without("shop/p"),
				e2e.ClusterPolicy("a", in(e2e.Admin, "1", "Accept"))), Want: want("")},
			{About: "Admin denies what Baseline accepts", Do: e2e.Do(e2e.ClusterPolicy("a", in(e2e.Admin, "1", "Deny")),
				e2e.ClusterPolicy("b", in(e2e.Baseline, "0", "Accept"))), Want: want("-pods>pods")},
			{About: "Baseline denies", Do: e2e.Do(e2e.Without("a"),
				e2e.ClusterPolicy("b", in(e2e.Baseline, "0", "Deny"))), Want: want("-pods>pods")},
			{About: "no match goes on", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.AllPods,
				rule("Accept", e2e.MonAlone))), Want: want("-pods>pods +mon>pods")},
			{About: "Pass skips the rest of the tier", Do: e2e.Do(e2e.Without("b"),
				e2e.ClusterPolicy("a", in(e2e.Admin, "1", "Pass")),
				e2e.ClusterPolicy("c", in(e2e.Admin, "2", "Deny"))), Want: want("")},
			{About: "after the Pass of Baseline everything is allowed", Do: e2e.Do(e2e.Without("a", "c"),
				e2e.ClusterPolicy("a", in(e2e.Baseline, "1", "Pass")),
				e2e.ClusterPolicy("c", in(e2e.Baseline, "2", "Deny"))), Want: want("")},
			{About: "what no tier decides is allowed", Do: e2e.Do(e2e.Without("a"),
				e2e.ClusterPolicy("c", e2e.Baseline("2", e2e.AllPods, rule("Deny", e2e.MonAlone)))),
				Want: want("-mon>pods")},
			{Do: e2e.Without("c"), Want: want("")},
		}
	}
	same := func(verdicts string) string { return verdicts }
	return append([]e2e.Case{
		{Name: "S80_admin_then_policies_then_baseline", Steps: steps(e2e.Ingress, `{podSelector: {}, ingress: [{}]}`,
			`{podSelector: {}}`, same)},
		{Name: "S80_the_same_for_egress", Steps: steps(e2e.Egress,
			`{podSelector: {}, policyTypes: [Egress], egress: [{}]}`,
			`{podSelector: {}, policyTypes: [Egress]}`, turned)},
	}, append(isolatedCases(), priorityCases()...)...)
}

// isolatedCases show that pods that a v1 policy isolates never meet Baseline.
func isolatedCases() []e2e.Case {
	const isolatesDB = `{podSelector: {matchLabels: {app: db}}}`
	return []e2e.Case{
		{Name: "S81_the_isolated_never_meet_baseline", Steps: []e2e.Step{
			{About: "its Accept opens nothing", Do: e2e.Do(e2e.Policy("shop/p", isolatesDB),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods, e2e.Ingress("Accept", e2e.AllPods),
					e2e.Egress("Accept", e2e.AllPods)))), Want: e2e.EveryProtocol("-*>db")},
			{About: "its Deny closes nothing", Do: e2e.Do(e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods, e2e.Ingress("Deny", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-pods>pods +pods>db")},
			{About: "each direction for itself", Do: e2e.Do(
				e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.ShopPods, e2e.Ingress("Deny", e2e.AllPods),
					e2e.Egress("Deny", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-pods>shop -shop>pods +db>ops")},
			{About: "the policy goes", Do: e2e.Without("shop/p"), Want: e2e.EveryProtocol("-pods>shop -shop>pods")},
		}},
		{Name: "S81_those_of_an_invalid_policy_neither", Says: []string{"policy is invalid.*shop/p"}, Steps: []e2e.Step{
			{About: "Baseline's Accept opens nothing", Do: e2e.Do(e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: db}}
ingress: [{from: [{podSelector: {}}]}, {from: [{ipBlock: {cidr: "::ffff:192.0.2.0/120"}}]}]`),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods, e2e.Ingress("Accept", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-*>db")},
			{About: "Admin's does", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.AllPods,
				e2e.Ingress("Accept", e2e.MonAlone))), Want: e2e.EveryProtocol("-*>db +mon>db")},
			{About: "valid again", Do: e2e.Do(e2e.Without("a"), e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods,
				e2e.Ingress("Deny", e2e.AllPods))),
				e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`)),
				Want: e2e.EveryProtocol("-pods>pods +pods>db")},
		}},
	}
}

// priorityCases show the order of the policies and rules of a tier, and that nothing but their rules decides.
func priorityCases() []e2e.Case {
	const accept, deny, pass = `{action: Accept, from: [{namespaces: {}}]}`, `{action: Deny, from: [{namespaces: {}}]}`, `{action: Pass, from: [{namespaces: {}}]}`
	two := func(tier func(priority, subject string, rules ...string) string, acceptAs, acceptPriority, denyAs,
		denyPriority string) e2e.Change {
		return e2e.Do(e2e.Without("a", "b", "z"), e2e.ClusterPolicy(acceptAs, tier(acceptPriority, e2e.AllPods,
			e2e.Ingress("Accept", e2e.AllPods))),
			e2e.ClusterPolicy(denyAs, tier(denyPriority, e2e.AllPods, e2e.Ingress("Deny", e2e.AllPods))))
	}
	rules := func(all ...string) e2e.Change {
		return e2e.Do(e2e.Without("a", "b", "z"), e2e.ClusterPolicy("a", e2e.Admin("5", e2e.AllPods,
			"ingress: ["+strings.Join(all, ", ")+"]")))
	}
	open, closed := e2e.Wants{"tcp 80": "", "icmp": ""}, e2e.Wants{"tcp 80": "-pods>pods", "icmp": "-pods>pods"}
	return []e2e.Case{
		{Name: "S82_lower_priority_numbers_first", Steps: []e2e.Step{
			{About: "0 before 1", Do: two(e2e.Admin, "z", "0", "a", "1"), Want: open},
			{About: "9 before 10", Do: two(e2e.Admin, "z", "10", "a", "9"), Want: closed},
			{About: "999 before 1000", Do: two(e2e.Admin, "z", "999", "a", "1000"), Want: open},
			{About: "in Baseline", Do: two(e2e.Baseline, "a", "7", "z", "3"), Want: closed},
			{About: "equal: by name", Do: two(e2e.Admin, "a", "5", "b", "5"), Want: open},
			{About: "the other way", Do: two(e2e.Admin, "b", "5", "a", "5"), Want: closed},
			{About: "in Baseline by name", Do: two(e2e.Baseline, "a", "5", "z", "5"), Want: open},
			{About: "only a priority changes", Do: e2e.ClusterPolicy("z", e2e.Baseline("4", e2e.AllPods,
				e2e.Ingress("Deny", e2e.AllPods))), Want: closed},
			{About: "a tier's numbers are its own", Do: e2e.Do(e2e.Without("z"),
				e2e.ClusterPolicy("b", e2e.Baseline("0", e2e.AllPods, e2e.Ingress("Deny", e2e.AllPods))),
				e2e.ClusterPolicy("a", e2e.Admin("1000", e2e.AllPods, e2e.Ingress("Accept", e2e.AllPods)))),
				Want: open},
			{About: "rules as written", Do: rules(accept, deny), Want: open},
			{About: "the other way", Do: rules(deny, accept), Want: closed},
			{About: "Pass as written", Do: rules(pass, deny), Want: open},
			{About: "a repeated rule", Do: rules(`{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}}]}`, deny,
				`{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}}]}`,
				accept),
				Want: e2e.Wants{"tcp 80": "-pods>pods +mon>pods", "icmp": "-pods>pods +mon>pods"}},
		}},
		{Name: "S87_no_policy_isolates_by_being_there", Steps: []e2e.Step{
			{About: "egress rules do nothing to ingress", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", e2e.AllPods))),
				Want: e2e.EveryProtocol("-web>pods")},
			{About: "ingress rules do nothing to egress", Do: e2e.Do(e2e.Without("a"),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.WebAlone, e2e.Ingress("Deny", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-pods>web")},
			{About: "an Accept that does not match", Do: e2e.Do(e2e.Without("b"),
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
					e2e.Ingress("Accept", `{namespaces: {matchLabels: {team: none}}}`), e2e.Egress("Accept",
						`{networks: [198.51.100.0/24]}`)))), Want: e2e.EveryProtocol("")},
			{About: "in Baseline too", Do: e2e.Do(e2e.Without("a"),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.WebAlone,
					e2e.Ingress("Accept", `{namespaces: {matchLabels: {team: none}}}`), e2e.Egress("Pass",
						`{networks: [198.51.100.0/24]}`)))), Want: e2e.EveryProtocol("")},
			{About: "and without rules", Do: e2e.Do(e2e.ClusterPolicy("a",
				`{tier: Admin, priority: 1, subject: {namespaces: {}}}`),
				e2e.ClusterPolicy("b", `{tier: Baseline, priority: 1, subject: {namespaces: {}}}`)),
				Want: e2e.EveryProtocol("")},
		}},
		{Name: "S88_both_directions_decide", Steps: []e2e.Step{
			{About: "accepted on egress, denied on ingress by a cluster policy", Do: e2e.Do(
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
					e2e.Egress("Accept", e2e.AllPods))),
				e2e.ClusterPolicy("z", e2e.Admin("2", e2e.OpsPods, e2e.Ingress("Deny", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-pods>ops")},
			{About: "by a policy", Do: e2e.Do(e2e.Without("z"), e2e.Policy("ops/p", `{podSelector: {}}`)),
				Want: e2e.EveryProtocol("-*>ops")},
			{About: "by Baseline", Do: e2e.Do(e2e.Without("ops/p"),
				e2e.ClusterPolicy("z", e2e.Baseline("2", e2e.OpsPods, e2e.Ingress("Deny", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-pods>ops")},
			{About: "accepted on ingress, denied on egress", Do: e2e.Do(e2e.Without("z"),
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.OpsPods, e2e.Ingress("Accept", e2e.AllPods))),
				e2e.ClusterPolicy("z", e2e.Admin("2", e2e.ShopPods, e2e.Egress("Deny", e2e.AllPods)))),
				Want: e2e.EveryProtocol("-shop>pods")},
			{About: "on egress by a policy", Do: e2e.Do(e2e.Without("z"),
				e2e.Policy("shop/p", `{podSelector: {}, policyTypes: [Egress]}`)),
				Want: e2e.EveryProtocol("-shop>*")},
		}},
	}
}
