package enforce

// isolationCases show the pods and directions that one policy isolates.
func isolationCases() []testCase {
	return []testCase{
		{name: "S1_no_policy_everything_is_allowed", steps: []step{
			{want: wants{"tcp 80": "", "tcp 9": "", "udp 53": "", "udp 9": "", "icmp": "", "sctp 80": "", "sctp 9": ""}},
			{about: "a policy that selects no pod", do: policy("shop/none", `{podSelector: {matchLabels: {app: none}}}`),
				want: everyProtocol("")},
		}},
		{name: "S2_one_direction_leaves_the_other_free", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`),
				want: everyProtocol(onlyWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				want: everyProtocol(fromWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress]}`),
				want: everyProtocol("-api>*")},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress, Ingress]}`),
				want: everyProtocol(bothWays)},
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
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`), want: everyProtocol(fromWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: []}`),
				want: everyProtocol(fromWeb)},
		}},
		{name: "S5_an_ingress_section_is_ignored_with_egress_alone", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]`), want: everyProtocol(fromWeb)},
			{about: "and the reverse", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress]
egress:
- to: [{podSelector: {matchLabels: {app: db}}}]`), want: everyProtocol(onlyWeb)},
		}},
		{name: "S6_ingress_empty_null_or_missing_denies_all", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: []}`),
				want: everyProtocol(onlyWeb)},
			{do: do(without("shop/p"), policy("shop/q",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: null}`)), want: everyProtocol(onlyWeb)},
			{do: do(without("shop/q"), policy("shop/r", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)),
				want: everyProtocol(onlyWeb)},
		}},
		{name: "S7_an_empty_rule_allows_everything", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`), want: everyProtocol("")},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{}]}`),
				want: everyProtocol(fromWeb)},
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], egress: [{}]}`),
				want: everyProtocol(onlyWeb)},
		}},
		{name: "S8_from_empty_is_any_source_and_ports_empty_is_any_port", steps: []step{
			{do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [], ports: [{port: 80}]}]}`),
				want: wants{"tcp 80": "", "tcp 81": onlyWeb, "udp 53": onlyWeb, "icmp": onlyWeb}},
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: []}]`), want: everyProtocol(onlyWeb + " +db>web")},
			{about: "to: [] and ports: [] on egress", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [], ports: []}]`), want: everyProtocol("")},
		}},
		{name: "S9_an_empty_pod_selector_selects_the_namespace", steps: []step{
			{do: policy("shop/p", `{podSelector: {}, policyTypes: [Ingress]}`), want: everyProtocol("-*>shop")},
			{do: policy("shop/p", `{podSelector: {}, policyTypes: [Egress]}`), want: everyProtocol("-shop>*")},
			{do: policy("shop/p", `{podSelector: {matchLabels: {}, matchExpressions: []}, policyTypes: [Ingress, Egress]}`),
				want: everyProtocol("-*>shop -shop>*")},
		}},
	}
}

// Verdicts of cases that isolate web alone.
const (
	onlyWeb  = "-*>web"
	fromWeb  = "-web>*"
	bothWays = "-*>web -web>*"
)

// everyProtocol expects the same verdicts of TCP, UDP and ICMP.
func everyProtocol(verdicts string) wants {
	return wants{"tcp 80": verdicts, "udp 53": verdicts, "icmp": verdicts}
}
