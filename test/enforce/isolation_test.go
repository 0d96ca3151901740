package enforce

// isolationCases show whom policies isolate, and in which direction.
func isolationCases() []testCase {
	const (
		onlyWeb  = "-*>web"
		fromWeb  = "-web>*"
		bothWays = "-*>web -web>*"
	)
	everywhere := func(verdicts string) wants {
		return wants{"tcp 80": verdicts, "udp 53": verdicts, "icmp": verdicts}
	}
	return []testCase{
		{name: "S1_no_policy_everything_is_allowed", steps: []step{
			{want: wants{"tcp 80": "", "tcp 9": "", "udp 53": "", "udp 9": "", "icmp": "", "sctp 80": "", "sctp 9": ""}},
			{about: "a policy that selects nobody", do: policy("shop/nobody", `{podSelector: {matchLabels: {app: none}}}`),
				want: everywhere("")},
		}},
		{name: "S2_one_direction_leaves_the_other_free", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`),
				want: everywhere(onlyWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				want: everywhere(fromWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress]}`),
				want: everywhere("-api>*")},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress, Ingress]}`),
				want: everywhere(bothWays)},
		}},
		{name: "S3_policy_types_are_filled_in", steps: []step{
			{about: "absent, with egress rules: both", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
egress:
- to: [{podSelector: {matchLabels: {app: db}}}]`), want: wants{"tcp 80": bothWays + " +web>db"}},
			{about: "absent, without egress: ingress", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]`), want: wants{"tcp 80": onlyWeb + " +db>web"}},
			{about: "empty, without egress: ingress", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: []`), want: wants{"tcp 80": onlyWeb}},
			{about: "null", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: null
egress: null`), want: wants{"tcp 80": onlyWeb}},
		}},
		{name: "S4_egress_without_rules_denies_all_egress", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`), want: everywhere(fromWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: []}`),
				want: everywhere(fromWeb)},
		}},
		{name: "S5_an_ingress_section_is_ignored_with_egress_alone", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]`), want: everywhere(fromWeb)},
			{about: "and the reverse", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress]
egress:
- to: [{podSelector: {matchLabels: {app: db}}}]`), want: everywhere(onlyWeb)},
		}},
		{name: "S6_ingress_empty_null_or_missing_denies_all", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: []}`),
				want: everywhere(onlyWeb)},
			{do: do(without("shop/p"), policy("shop/q",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: null}`)), want: everywhere(onlyWeb)},
			{do: do(without("shop/q"), policy("shop/r", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)),
				want: everywhere(onlyWeb)},
		}},
		{name: "S7_an_empty_rule_allows_everything", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`), want: everywhere("")},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{}]}`),
				want: everywhere(fromWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], egress: [{}]}`),
				want: everywhere(onlyWeb)},
		}},
		{name: "S8_from_empty_is_any_source_and_ports_empty_is_any_port", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [], ports: [{port: 80}]}]}`),
				want: wants{"tcp 80": "", "tcp 81": onlyWeb, "udp 53": onlyWeb, "icmp": onlyWeb}},
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: []}]`), want: everywhere(onlyWeb + " +db>web")},
			{about: "to: [] and ports: [] on egress", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [], ports: []}]`), want: everywhere("")},
		}},
		{name: "S9_an_empty_pod_selector_selects_the_namespace", steps: []step{
			{do: policy("shop/p", `{podSelector: {}, policyTypes: [Ingress]}`), want: everywhere("-*>shop")},
			{do: policy("shop/p", `{podSelector: {}, policyTypes: [Egress]}`), want: everywhere("-shop>*")},
			{do: policy("shop/p", `{podSelector: {matchLabels: {}, matchExpressions: []}, policyTypes: [Ingress, Egress]}`),
				want: everywhere("-*>shop -shop>*")},
		}},
		{name: "S10_policies_add_up", steps: []step{
			{do: do(policy("shop/deny", `{podSelector: {}}`),
				policy("shop/allow", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)),
				want: everywhere("-*>db,api")},
			{do: do(policy("shop/a", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 80}]}]}`),
				policy("shop/b", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}`)),
				want: wants{"tcp 80": "-*>api", "tcp 81": "-*>db,api +shop>db", "icmp": "-*>db,api +shop>db"}},
		}},
		{name: "S11_both_ends_must_allow", steps: []step{
			{about: "egress denied at the source, ingress allowed", do: do(
				policy("shop/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				policy("shop/in", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`)), want: everywhere(fromWeb)},
			{about: "egress allowed, ingress denied at the destination", do: do(
				policy("shop/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{}]}`),
				policy("shop/in", `{podSelector: {matchLabels: {app: db}}, ingress: []}`)), want: everywhere("-*>db")},
			{about: "the same over nodes", do: do(
				policy("shop/out", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}, {namespaceSelector: {matchLabels: {team: b}}}]}]`),
				policy("shop/in", `
podSelector: {matchLabels: {app: api}}
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]`)),
				want: everywhere("-web>* +web>api,ops -*>api +web>api")},
			{about: "ingress at the destination does not name it", do: policy("shop/in", `
podSelector: {matchLabels: {app: api}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]`),
				want: everywhere("-web>* +web>ops -*>api +db>api")},
		}},
		{name: "S12_a_peer_that_matches_nobody_allows_nothing", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]
egress: [{to: [{namespaceSelector: {matchLabels: {app: none}}}]}]`), want: everywhere(bothWays)},
		}},
		{name: "S13_the_last_policy_goes_and_one_of_two_goes", steps: []step{
			{do: do(policy("shop/a", `{podSelector: {matchLabels: {app: web}}}`),
				policy("shop/b", `{podSelector: {matchLabels: {app: web}}}`)), want: everywhere(onlyWeb)},
			{do: without("shop/a"), want: everywhere(onlyWeb)},
			{do: without("shop/b"), want: everywhere("")},
			{about: "two with the same rules", do: do(
				policy("shop/a", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`),
				policy("shop/b", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)),
				want: everywhere("-*>web +shop>web")},
			{do: without("shop/b"), want: everywhere("-*>web +shop>web")},
			{do: without("shop/a"), want: everywhere("")},
		}},
		{name: "S14_an_edit_takes_effect_as_edited", steps: []step{
			{about: "ingress only", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`), want: everywhere(onlyWeb)},
			{about: "the first egress policy arrives as an edit", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`), want: everywhere(fromWeb)},
			{about: "another target", do: policy("shop/p", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`),
				want: everywhere("-db>*")},
			{about: "another peer", do: policy("shop/p", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}]}]`), want: everywhere("-db>* +db>api")},
			{about: "another port", do: policy("shop/p", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 81}]}]`),
				want: wants{"tcp 80": "-db>*", "tcp 81": "-db>* +db>api"}},
			{about: "nobody", do: policy("shop/p", `{podSelector: {matchLabels: {app: none}}}`), want: everywhere("")},
		}},
	}
}
