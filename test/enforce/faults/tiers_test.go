package faults

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// killTierScenarios returns the scenarios with cluster network policies that deny. Most of what is denied in both
// states is denied by another rule, policy or tier in each of them.
func killTierScenarios() []killScenario {
	const toOut, toNodes = `{networks: [$out4/32, "$out6/128"]}`, `{networks: [$n14/32, $n24/32, "$n16/128", "$n26/128"]}`
	// freeAlone are the pods that killed isolates in no direction, one on each node.
	const freeAlone = `{pods: {namespaceSelector: {matchLabels: {team: a}},
podSelector: {matchExpressions: [{key: app, operator: In, values: [db, api]}]}}}`
	always := e2e.Do(killed(), e2e.ClusterPolicy("z", e2e.Admin("9", e2e.ShopPods,
		e2e.Ingress("Accept", e2e.MonAlone))),
		e2e.ClusterPolicy("base", e2e.Baseline("1", e2e.ShopPods, e2e.Ingress("Deny", e2e.OpsPods),
			e2e.Egress("Deny", toOut))))
	guard := func(spec string) e2e.Change { return e2e.ClusterPolicy("guard", spec) }
	// free relabels those pods.
	free := func(colour string) e2e.Change {
		return e2e.Do(e2e.Pod("shop/db", e2e.Labelled("app=db,colour="+colour)),
			e2e.Pod("shop/api", e2e.Labelled("app=api,colour="+colour)))
	}
	return []killScenario{
		{name: "tiers_an_Admin_Deny_comes_and_goes",
			includes: "-copy>db -copy>api -db>out -api>out +mon>db +mon>api +db>api +db>web",
			states: []e2e.Change{always, e2e.Do(always,
				guard(e2e.Admin("1", e2e.AllPods, e2e.Ingress("Deny", webEverywhere), e2e.Egress("Deny", toOut))))}},
		{name: "tiers_a_Baseline_Deny_comes_and_goes",
			includes: "-mon>db -mon>api -db>out -api>out +db>api +api>db +web>mon",
			states: []e2e.Change{
				e2e.Do(killed(), guard(e2e.Admin("1", freeAlone, e2e.Ingress("Deny", e2e.MonAlone),
					e2e.Egress("Deny", toOut)))),
				e2e.Do(killed(), guard(e2e.Admin("1", freeAlone, e2e.Ingress("Deny", e2e.MonAlone),
					e2e.Egress("Deny", toOut))),
					e2e.ClusterPolicy("base", e2e.Baseline("1", e2e.AllPods, e2e.Ingress("Deny", e2e.OpsPods),
						e2e.Egress("Deny", toOut))))}},
		{name: "tiers_an_Accept_above_a_Baseline_Deny_is_edited",
			includes: "-copy>db -copy>api -db>out +db>web +db>api",
			states: []e2e.Change{
				e2e.Do(always, guard(e2e.Admin("1", e2e.ShopPods, e2e.Ingress("Accept", e2e.DBAlone)))),
				e2e.Do(always, guard(e2e.Admin("1", e2e.ShopPods, `ingress: [{action: Deny, from: [`+webEverywhere+`]},
{action: Accept, from: [`+e2e.ShopPods+`], protocols: [{udp: {destinationPort: {range: {start: 7, end: 9}}}}]},
{action: Pass, from: [`+e2e.OpsPods+`]}]`)))}},
		{name: "tiers_a_policy_changes_its_tier", dropped: []string{"db", "api"},
			includes: "-mon>db -copy>db -mon>api -copy>api -db>out -api>out +copy>mon +web>mon", states: []e2e.Change{
				e2e.Do(killed(), guard(e2e.Admin("1", freeAlone, e2e.Ingress("Deny", e2e.OpsPods),
					e2e.Egress("Deny", toOut)))),
				e2e.Do(killed(), guard(e2e.Baseline("1", freeAlone, e2e.Ingress("Deny", e2e.OpsPods),
					e2e.Egress("Deny", toOut))))}},
		{name: "tiers_subjects_leave_Admin_and_Baseline_for_a_v1_policy", dropped: []string{"db", "api"},
			includes: "-mon>db -copy>db -mon>api -copy>api -db>out -api>out +copy>mon +web>mon", states: []e2e.Change{
				e2e.Do(leaving(), free("red")), e2e.Do(leaving(), free("blue"))}},
		{name: "tiers_a_peer_of_a_Pass_is_relabelled", includes: "-copy>web -copy>db -copy>api +db>web +mon>api",
			dropped: []string{"copy"}, states: []e2e.Change{
				e2e.Do(passing(), e2e.Pod("ops/copy", e2e.Labelled("app=web,colour=red"))), e2e.Do(passing(),
					e2e.Pod("ops/copy", e2e.Labelled("app=web,colour=blue")))}},
		{name: "tiers_a_namespace_of_both_ends_is_relabelled",
			includes: "-db>web -api>web -web>api +mon>copy +copy>mon",
			dropped:  []string{"web", "db", "api"}, states: []e2e.Change{
				e2e.Do(zones(), e2e.Namespace("shop", "team=a,zone=red")), e2e.Do(zones(),
					e2e.Namespace("shop", "team=a,zone=blue"))}},
		{name: "tiers_the_own_node_is_denied_and_allowed", includes: "-web>n2 +api>n1 +mon>n1 +copy>n2 +web>mon",
			nodes: true, states: []e2e.Change{killed(), e2e.Do(killed(),
				guard(e2e.Admin("1", e2e.WebAlone, e2e.Egress("Deny", toNodes))), e2e.ClusterPolicy("base",
					e2e.Baseline("1", e2e.DBAlone, e2e.Egress("Deny", toNodes))))}},
		{name: "tiers_the_own_node_is_denied_by_another_tier",
			includes: "-db>n1 -db>n2 -api>n1 -api>n2 +web>n1 +mon>n1 +copy>n2",
			nodes:    true, dropped: []string{"db", "api"}, states: []e2e.Change{
				e2e.Do(killed(), free("red"), guard(e2e.Admin("1", e2e.Colour("red"), e2e.Egress("Deny", toNodes))),
					e2e.ClusterPolicy("base", e2e.Baseline("1", e2e.Colour("blue"), e2e.Egress("Deny", toNodes)))),
				e2e.Do(killed(), free("blue"), guard(e2e.Admin("1", e2e.Colour("red"), e2e.Egress("Deny", toNodes))),
					e2e.ClusterPolicy("base", e2e.Baseline("1", e2e.Colour("blue"), e2e.Egress("Deny", toNodes))))}},
		{name: "tiers_an_address_is_handed_over", includes: "-copy>web +db>api +mon>copy",
			states: []e2e.Change{e2e.Do(handed(), e2e.Pod("shop/web", e2e.Labelled("app=web,colour=red"))),
				e2e.Do(handed(), e2e.Without("shop/web"), e2e.Pod("ops/next", e2e.At("web"), e2e.UID("next"),
					e2e.Started, e2e.Labelled("app=next,colour=blue")))},
			prepare: oldFlowPasses, check: oldFlowEnded},
		{name: "tiers_a_start_with_Denies_in_the_kernel",
			includes: "-web>n1 -db>n1 -copy>n2 -copy>db -copy>api +mon>db +db>api",
			nodes:    true, stands: true, states: []e2e.Change{e2e.Do(always,
				guard(e2e.Admin("1", e2e.AllPods, e2e.Ingress("Deny", webEverywhere), e2e.Egress("Deny", toNodes))))},
			reset: func(*testing.T, *e2e.Cluster) {}},
	}
}

// webEverywhere are the pods whose label says web, of all namespaces.
const webEverywhere = `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}`

// leaving returns policies under which a red pod has an Admin and a Baseline list, and a blue one has rules of a
// NetworkPolicy.
func leaving() e2e.Change {
	const out = `{networks: [$out4/32, "$out6/128"]}`
	return e2e.Do(killed(), e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"), e2e.Ingress("Deny", e2e.MonAlone),
		e2e.Egress("Deny", out))),
		e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.Colour("red"), e2e.Ingress("Deny", e2e.OpsPods),
			e2e.Egress("Deny", e2e.OpsPods))), e2e.Policy("shop/blue", `
podSelector: {matchLabels: {colour: blue}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}]}]
egress: [{to: [{podSelector: {}}]}]`))
}

// passing returns policies: Admin denies red pods, and passes blue ones on to policies that deny them.
func passing() e2e.Change {
	return e2e.Do(killed(), e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
		`ingress: [{action: Pass, from: [`+e2e.Colour("blue")+`]}, {action: Deny, from: [`+e2e.Colour("red")+`]}]`)),
		e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.ShopPods,
			e2e.Ingress("Deny", e2e.Colour("blue")))),
		e2e.ClusterPolicy("z", e2e.Admin("9", e2e.ShopPods, e2e.Ingress("Accept", e2e.AllPods))))
}

// zones returns policies whose subjects and peers are a namespace that is red or blue.
func zones() e2e.Change {
	const red, blue = `{namespaces: {matchLabels: {zone: red}}}`, `{namespaces: {matchLabels: {zone: blue}}}`
	return e2e.Do(killedBase(), e2e.ClusterPolicy("a", e2e.Admin("1", red, e2e.Ingress("Deny", red))),
		e2e.ClusterPolicy("b", e2e.Baseline("1", blue, e2e.Ingress("Deny", blue))),
		e2e.ClusterPolicy("y", e2e.Admin("8", blue, e2e.Ingress("Pass", blue))), e2e.ClusterPolicy("z",
			e2e.Admin("9", e2e.AllPods, e2e.Ingress("Accept", e2e.AllPods))))
}

// handed returns policies under which copy reaches neither a red nor a blue pod, and db a red one alone.
func handed() e2e.Change {
	return e2e.Do(killedBase(), e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"),
		e2e.Ingress("Deny", webEverywhere))),
		e2e.ClusterPolicy("b", e2e.Admin("2", e2e.Colour("blue"), e2e.Ingress("Pass", e2e.AllPods))),
		e2e.ClusterPolicy("c", e2e.Baseline("1", e2e.Colour("blue"), e2e.Ingress("Deny", e2e.AllPods))),
		e2e.ClusterPolicy("z", e2e.Admin("9", e2e.AllPods, e2e.Ingress("Accept", e2e.AllPods))))
}
