package policies

import (
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// combinedCases show what several policies make together, and what is left when one is edited or goes.
func combinedCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S10_policies_add_up", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Policy("shop/deny", `{podSelector: {}}`),
				e2e.Policy("shop/allow", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)),
				Want: e2e.EveryProtocol("-*>db,api")},
			{Do: e2e.Do(e2e.Policy("shop/a", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 80}]}]}`),
				e2e.Policy("shop/b", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}`)),
				Want: e2e.Wants{"tcp 80": "-*>api", "tcp 81": "-*>db,api +shop>db", "icmp": "-*>db,api +shop>db"}},
		}},
		{Name: "S11_both_ends_must_allow", Steps: []e2e.Step{
			{About: "egress denied at the source, ingress allowed", Do: e2e.Do(
				e2e.Policy("shop/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				e2e.Policy("shop/in", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`)),
				Want: e2e.EveryProtocol(fromWeb)},
			{About: "egress allowed, ingress denied at the destination", Do: e2e.Do(
				e2e.Policy("shop/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{}]}`),
				e2e.Policy("shop/in", `{podSelector: {matchLabels: {app: db}}, ingress: []}`)),
				Want: e2e.EveryProtocol("-*>db")},
			{About: "the same over nodes", Do: e2e.Do(
				e2e.Policy("shop/out", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}, {namespaceSelector: {matchLabels: {team: b}}}]}]`),
				e2e.Policy("shop/in", `
podSelector: {matchLabels: {app: api}}
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]`)),
				Want: e2e.EveryProtocol("-web>* +web>api,ops -*>api +web>api")},
			{About: "ingress at the destination does not name it", Do: e2e.Policy("shop/in", `
podSelector: {matchLabels: {app: api}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]`),
				Want: e2e.EveryProtocol("-web>* +web>ops -*>api +db>api")},
		}},
		{Name: "S12_a_peer_that_matches_no_pod_allows_nothing", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]
egress: [{to: [{namespaceSelector: {matchLabels: {app: none}}}]}]`), Want: e2e.EveryProtocol(bothWays)},
		}},
		{Name: "S13_the_last_policy_goes_and_one_of_two_goes", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Policy("shop/a", `{podSelector: {matchLabels: {app: web}}}`),
				e2e.Policy("shop/b", `{podSelector: {matchLabels: {app: web}}}`)), Want: e2e.EveryProtocol(onlyWeb)},
			{Do: e2e.Without("shop/a"), Want: e2e.EveryProtocol(onlyWeb)},
			{Do: e2e.Without("shop/b"), Want: e2e.EveryProtocol("")},
			{About: "two with the same rules", Do: e2e.Do(
				e2e.Policy("shop/a", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`),
				e2e.Policy("shop/b", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)),
				Want: e2e.EveryProtocol("-*>web +shop>web")},
			{Do: e2e.Without("shop/b"), Want: e2e.EveryProtocol("-*>web +shop>web")},
			{Do: e2e.Without("shop/a"), Want: e2e.EveryProtocol("")},
		}},
		{Name: "S14_an_edit_takes_effect_as_edited", Steps: []e2e.Step{
			{About: "ingress only", Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`),
				Want: e2e.EveryProtocol(onlyWeb)},
			{About: "the first egress policy arrives as an edit", Do: e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`), Want: e2e.EveryProtocol(fromWeb)},
			{About: "another target", Do: e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`),
				Want: e2e.EveryProtocol("-db>*")},
			{About: "another peer", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}]}]`), Want: e2e.EveryProtocol("-db>* +db>api")},
			{About: "another port", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 81}]}]`),
				Want: e2e.Wants{"tcp 80": "-db>*", "tcp 81": "-db>* +db>api"}},
			{About: "no pod", Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: none}}}`),
				Want: e2e.EveryProtocol("")},
		}},
	}
}
