package policies

import (
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// isolationCases show the pods and directions that one policy isolates.
func isolationCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S1_no_policy_everything_is_allowed", Steps: []e2e.Step{
			{Want: e2e.Wants{"tcp 80": "", "tcp 9": "", "udp 53": "", "udp 9": "", "icmp": "", "sctp 80": "",
				"sctp 9": ""}},
			{About: "a policy that selects no pod", Do: e2e.Policy("shop/none",
				`{podSelector: {matchLabels: {app: none}}}`),
				Want: e2e.EveryProtocol("")},
		}},
		{Name: "S2_one_direction_leaves_the_other_free", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`),
				Want: e2e.EveryProtocol(onlyWeb)},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				Want: e2e.EveryProtocol(fromWeb)},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress]}`),
				Want: e2e.EveryProtocol("-api>*")},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress, Ingress]}`),
				Want: e2e.EveryProtocol(bothWays)},
		}},
		{Name: "S3_policy_types_are_filled_in", Steps: []e2e.Step{
			{About: "absent, with egress rules: both", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
egress:
- to: [{podSelector: {matchLabels: {app: db}}}]`), Want: e2e.Wants{"tcp 80": bothWays + " +web>db"}},
			{About: "absent, without egress: ingress", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]`), Want: e2e.Wants{"tcp 80": onlyWeb + " +db>web"}},
			{About: "empty, without egress: ingress", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: []`), Want: e2e.Wants{"tcp 80": onlyWeb}},
			{About: "null", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: null
egress: null`), Want: e2e.Wants{"tcp 80": onlyWeb}},
		}},
		{Name: "S4_egress_without_rules_denies_all_egress", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				Want: e2e.EveryProtocol(fromWeb)},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: []}`),
				Want: e2e.EveryProtocol(fromWeb)},
		}},
		{Name: "S5_an_ingress_section_is_ignored_with_egress_alone", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]`), Want: e2e.EveryProtocol(fromWeb)},
			{About: "and the reverse", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress]
egress:
- to: [{podSelector: {matchLabels: {app: db}}}]`), Want: e2e.EveryProtocol(onlyWeb)},
		}},
		{Name: "S6_ingress_empty_null_or_missing_denies_all", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: []}`),
				Want: e2e.EveryProtocol(onlyWeb)},
			{Do: e2e.Do(e2e.Without("shop/p"), e2e.Policy("shop/q",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: null}`)),
				Want: e2e.EveryProtocol(onlyWeb)},
			{Do: e2e.Do(e2e.Without("shop/q"), e2e.Policy("shop/r",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)),
				Want: e2e.EveryProtocol(onlyWeb)},
		}},
		{Name: "S7_an_empty_rule_allows_everything", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`),
				Want: e2e.EveryProtocol("")},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{}]}`),
				Want: e2e.EveryProtocol(fromWeb)},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], egress: [{}]}`),
				Want: e2e.EveryProtocol(onlyWeb)},
		}},
		{Name: "S8_from_empty_is_any_source_and_ports_empty_is_any_port", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [], ports: [{port: 80}]}]}`),
				Want: e2e.Wants{"tcp 80": "", "tcp 81": onlyWeb, "udp 53": onlyWeb, "icmp": onlyWeb}},
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: []}]`), Want: e2e.EveryProtocol(onlyWeb + " +db>web")},
			{About: "to: [] and ports: [] on egress", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [], ports: []}]`), Want: e2e.EveryProtocol("")},
		}},
		{Name: "S9_an_empty_pod_selector_selects_the_namespace", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `{podSelector: {}, policyTypes: [Ingress]}`), Want: e2e.EveryProtocol("-*>shop")},
			{Do: e2e.Policy("shop/p", `{podSelector: {}, policyTypes: [Egress]}`), Want: e2e.EveryProtocol("-shop>*")},
			{Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {}, matchExpressions: []}, policyTypes: [Ingress, Egress]}`),
				Want: e2e.EveryProtocol("-*>shop -shop>*")},
		}},
	}
}

// Verdicts of cases that isolate web alone.
const (
	onlyWeb  = "-*>web"
	fromWeb  = "-web>*"
	bothWays = "-*>web -web>*"
)
