package enforce

// combinedCases show what several policies make together, and what is left when one is edited or goes.
func combinedCases() []testCase {
	return []testCase{
		{name: "S10_policies_add_up", steps: []step{
			{do: do(policy("shop/deny", `{podSelector: {}}`),
				policy("shop/allow", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)),
				want: everyProtocol("-*>db,api")},
			{do: do(policy("shop/a", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 80}]}]}`),
				policy("shop/b", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}`)),
				want: wants{"tcp 80": "-*>api", "tcp 81": "-*>db,api +shop>db", "icmp": "-*>db,api +shop>db"}},
		}},
		{name: "S11_both_ends_must_allow", steps: []step{
			{about: "egress denied at the source, ingress allowed", do: do(
				policy("shop/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				policy("shop/in", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`)), want: everyProtocol(fromWeb)},
			{about: "egress allowed, ingress denied at the destination", do: do(
				policy("shop/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{}]}`),
				policy("shop/in", `{podSelector: {matchLabels: {app: db}}, ingress: []}`)), want: everyProtocol("-*>db")},
			{about: "the same over nodes", do: do(
				policy("shop/out", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}, {namespaceSelector: {matchLabels: {team: b}}}]}]`),
				policy("shop/in", `
podSelector: {matchLabels: {app: api}}
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]`)),
				want: everyProtocol("-web>* +web>api,ops -*>api +web>api")},
			{about: "ingress at the destination does not name it", do: policy("shop/in", `
podSelector: {matchLabels: {app: api}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]`),
				want: everyProtocol("-web>* +web>ops -*>api +db>api")},
		}},
		{name: "S12_a_peer_that_matches_no_pod_allows_nothing", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]
egress: [{to: [{namespaceSelector: {matchLabels: {app: none}}}]}]`), want: everyProtocol(bothWays)},
		}},
		{name: "S13_the_last_policy_goes_and_one_of_two_goes", steps: []step{
			{do: do(policy("shop/a", `{podSelector: {matchLabels: {app: web}}}`),
				policy("shop/b", `{podSelector: {matchLabels: {app: web}}}`)), want: everyProtocol(onlyWeb)},
			{do: without("shop/a"), want: everyProtocol(onlyWeb)},
			{do: without("shop/b"), want: everyProtocol("")},
			{about: "two with the same rules", do: do(
				policy("shop/a", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`),
				policy("shop/b", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)),
				want: everyProtocol("-*>web +shop>web")},
			{do: without("shop/b"), want: everyProtocol("-*>web +shop>web")},
			{do: without("shop/a"), want: everyProtocol("")},
		}},
		{name: "S14_an_edit_takes_effect_as_edited", steps: []step{
			{about: "ingress only", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`), want: everyProtocol(onlyWeb)},
			{about: "the first egress policy arrives as an edit", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`), want: everyProtocol(fromWeb)},
			{about: "another target", do: policy("shop/p", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`),
				want: everyProtocol("-db>*")},
			{about: "another peer", do: policy("shop/p", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}]}]`), want: everyProtocol("-db>* +db>api")},
			{about: "another port", do: policy("shop/p", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 81}]}]`),
				want: wants{"tcp 80": "-db>*", "tcp 81": "-db>* +db>api"}},
			{about: "no pod", do: policy("shop/p", `{podSelector: {matchLabels: {app: none}}}`), want: everyProtocol("")},
		}},
	}
}
