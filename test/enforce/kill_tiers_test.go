package enforce

import "testing"

// killTierScenarios returns the scenarios with cluster network policies that deny. Most of what is denied in both
// states is denied by another rule, policy or tier in each of them.
func killTierScenarios() []killScenario {
	const toOut, toNodes = `{networks: [$out4/32, "$out6/128"]}`, `{networks: [$n14/32, $n24/32, "$n16/128", "$n26/128"]}`
	// freeAlone are the pods that killed isolates in no direction, one on each node.
	const freeAlone = `{pods: {namespaceSelector: {matchLabels: {team: a}},
podSelector: {matchExpressions: [{key: app, operator: In, values: [db, api]}]}}}`
	always := do(killed(), clusterPolicy("z", admin("9", shopPods, ingress("Accept", monAlone))),
		clusterPolicy("base", baseline("1", shopPods, ingress("Deny", opsPods), egress("Deny", toOut))))
	guard := func(spec string) change { return clusterPolicy("guard", spec) }
	// free relabels those pods.
	free := func(colour string) change {
		return do(pod("shop/db", labelled("app=db,colour="+colour)), pod("shop/api", labelled("app=api,colour="+colour)))
	}
	return []killScenario{
		{name: "tiers_an_Admin_Deny_comes_and_goes", includes: "-copy>db -copy>api -db>out -api>out +mon>db +mon>api +db>api +db>web",
			states: []change{always, do(always,
				guard(admin("1", allPods, ingress("Deny", webEverywhere), egress("Deny", toOut))))}},
		{name: "tiers_a_Baseline_Deny_comes_and_goes", includes: "-mon>db -mon>api -db>out -api>out +db>api +api>db +web>mon",
			states: []change{
				do(killed(), guard(admin("1", freeAlone, ingress("Deny", monAlone), egress("Deny", toOut)))),
				do(killed(), guard(admin("1", freeAlone, ingress("Deny", monAlone), egress("Deny", toOut))),
					clusterPolicy("base", baseline("1", allPods, ingress("Deny", opsPods), egress("Deny", toOut))))}},
		{name: "tiers_an_Accept_above_a_Baseline_Deny_is_edited", includes: "-copy>db -copy>api -db>out +db>web +db>api",
			states: []change{
				do(always, guard(admin("1", shopPods, ingress("Accept", dbAlone)))),
				do(always, guard(admin("1", shopPods, `ingress: [{action: Deny, from: [`+webEverywhere+`]},
{action: Accept, from: [`+shopPods+`], protocols: [{udp: {destinationPort: {range: {start: 7, end: 9}}}}]},
{action: Pass, from: [`+opsPods+`]}]`)))}},
		{name: "tiers_a_policy_changes_its_tier", dropped: []string{"db", "api"},
			includes: "-mon>db -copy>db -mon>api -copy>api -db>out -api>out +copy>mon +web>mon", states: []change{
				do(killed(), guard(admin("1", freeAlone, ingress("Deny", opsPods), egress("Deny", toOut)))),
				do(killed(), guard(baseline("1", freeAlone, ingress("Deny", opsPods), egress("Deny", toOut))))}},
		{name: "tiers_subjects_leave_Admin_and_Baseline_for_a_v1_policy", dropped: []string{"db", "api"},
			includes: "-mon>db -copy>db -mon>api -copy>api -db>out -api>out +copy>mon +web>mon", states: []change{
				do(leaving(), free("red")), do(leaving(), free("blue"))}},
		{name: "tiers_a_peer_of_a_Pass_is_relabelled", includes: "-copy>web -copy>db -copy>api +db>web +mon>api",
			dropped: []string{"copy"}, states: []change{
				do(passing(), pod("ops/copy", labelled("app=web,colour=red"))), do(passing(), pod("ops/copy", labelled("app=web,colour=blue")))}},
		{name: "tiers_a_namespace_of_both_ends_is_relabelled", includes: "-db>web -api>web -web>api +mon>copy +copy>mon",
			dropped: []string{"web", "db", "api"}, states: []change{
				do(zones(), namespace("shop", "team=a,zone=red")), do(zones(), namespace("shop", "team=a,zone=blue"))}},
		{name: "tiers_the_own_node_is_denied_and_allowed", includes: "-web>n2 +api>n1 +mon>n1 +copy>n2 +web>mon",
			nodes: true, states: []change{killed(), do(killed(),
				guard(admin("1", webAlone, egress("Deny", toNodes))), clusterPolicy("base", baseline("1", dbAlone, egress("Deny", toNodes))))}},
		{name: "tiers_the_own_node_is_denied_by_another_tier", includes: "-db>n1 -db>n2 -api>n1 -api>n2 +web>n1 +mon>n1 +copy>n2",
			nodes: true, dropped: []string{"db", "api"}, states: []change{
				do(killed(), free("red"), guard(admin("1", colour("red"), egress("Deny", toNodes))),
					clusterPolicy("base", baseline("1", colour("blue"), egress("Deny", toNodes)))),
				do(killed(), free("blue"), guard(admin("1", colour("red"), egress("Deny", toNodes))),
					clusterPolicy("base", baseline("1", colour("blue"), egress("Deny", toNodes))))}},
		{name: "tiers_an_address_is_handed_over", includes: "-copy>web +db>api +mon>copy",
			states: []change{do(handed(), pod("shop/web", labelled("app=web,colour=red"))),
				do(handed(), without("shop/web"), pod("ops/next", at("web"), uid("next"), started, labelled("app=next,colour=blue")))},
			prepare: oldFlowPasses, check: oldFlowEnded},
		{name: "tiers_a_start_with_Denies_in_the_kernel", includes: "-web>n1 -db>n1 -copy>n2 -copy>db -copy>api +mon>db +db>api",
			nodes: true, stands: true, states: []change{do(always,
				guard(admin("1", allPods, ingress("Deny", webEverywhere), egress("Deny", toNodes))))}, reset: func(*testing.T, *harness) {}},
	}
}

// webEverywhere are the pods whose label says web, of all namespaces.
const webEverywhere = `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}`

// leaving returns policies under which a red pod has an Admin and a Baseline list, and a blue one has rules of a
// NetworkPolicy.
func leaving() change {
	const out = `{networks: [$out4/32, "$out6/128"]}`
	return do(killed(), clusterPolicy("a", admin("1", colour("red"), ingress("Deny", monAlone), egress("Deny", out))),
		clusterPolicy("b", baseline("1", colour("red"), ingress("Deny", opsPods), egress("Deny", opsPods))), policy("shop/blue", `
podSelector: {matchLabels: {colour: blue}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}]}]
egress: [{to: [{podSelector: {}}]}]`))
}

// passing returns policies: Admin denies red pods, and passes blue ones on to policies that deny them.
func passing() change {
	return do(killed(), clusterPolicy("a", admin("1", shopPods,
		`ingress: [{action: Pass, from: [`+colour("blue")+`]}, {action: Deny, from: [`+colour("red")+`]}]`)),
		clusterPolicy("b", baseline("1", shopPods, ingress("Deny", colour("blue")))), clusterPolicy("z", admin("9", shopPods, ingress("Accept", allPods))))
}

// zones returns policies whose subjects and peers are a namespace that is red or blue.
func zones() change {
	const red, blue = `{namespaces: {matchLabels: {zone: red}}}`, `{namespaces: {matchLabels: {zone: blue}}}`
	return do(killedBase(), clusterPolicy("a", admin("1", red, ingress("Deny", red))), clusterPolicy("b", baseline("1", blue, ingress("Deny", blue))),
		clusterPolicy("y", admin("8", blue, ingress("Pass", blue))), clusterPolicy("z", admin("9", allPods, ingress("Accept", allPods))))
}

// handed returns policies under which copy reaches neither a red nor a blue pod, and db a red one alone.
func handed() change {
	return do(killedBase(), clusterPolicy("a", admin("1", colour("red"), ingress("Deny", webEverywhere))),
		clusterPolicy("b", admin("2", colour("blue"), ingress("Pass", allPods))),
		clusterPolicy("c", baseline("1", colour("blue"), ingress("Deny", allPods))),
		clusterPolicy("z", admin("9", allPods, ingress("Accept", allPods))))
}
