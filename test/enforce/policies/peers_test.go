package policies

import (
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// peerCases show which peers from and to select.
func peerCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S15_a_pod_selector_means_the_own_namespace", Steps: []e2e.Step{
			{Do: e2e.Policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]`), Want: e2e.Wants{"tcp 80": "-*>mon +copy>mon"}},
			{About: "egress", Do: e2e.Policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]`), Want: e2e.Wants{"tcp 80": "-mon>* +mon>copy"}},
			{About: "all of it", Do: e2e.Policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
ingress: [{from: [{podSelector: {}}]}]`), Want: e2e.Wants{"tcp 80": "-*>mon +copy>mon"}},
		}},
		{Name: "S16_an_empty_namespace_selector_means_all_pods", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", ingressToWeb(` [{namespaceSelector: {}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +pods>web"}},
			{About: "not those on the host network", Do: e2e.Pod("ops/agent", e2e.At("copy"), e2e.Labelled("app=web"),
				e2e.HostNetwork),
				Want: e2e.Wants{"tcp 80": "-*>web +pods>web", "icmp": "-*>web +pods>web"}},
			{About: "egress", Do: e2e.Do(e2e.Without("ops/agent"), e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {}}]}]`)), Want: e2e.Wants{"tcp 80": "-web>* +web>pods"}},
		}},
		{Name: "S17_both_in_one_item_and_in_two_items_or", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", ingressToWeb(`
  - namespaceSelector: {matchLabels: {team: b}}
    podSelector: {matchLabels: {app: web}}`)), Want: e2e.Wants{"tcp 80": "-*>web +copy>web"}},
			{Do: e2e.Policy("shop/p", ingressToWeb(`
  - namespaceSelector: {matchLabels: {team: b}}
  - podSelector: {matchLabels: {app: db}}`)), Want: e2e.Wants{"tcp 80": "-*>web +copy,mon,db>web"}},
		}},
		{Name: "S18_three_kinds_of_peers", Steps: []e2e.Step{
			{About: "namespaces with a label", Do: e2e.Do(
				e2e.Namespace("ops", "app=web"), e2e.Policy("shop/p",
					ingressToWeb(` [{namespaceSelector: {matchLabels: {app: web}}}]`))),
				Want: e2e.Wants{"tcp 80": "-*>web +ops>web"}},
			{About: "all pods in namespaces with a label", Do: e2e.Policy("shop/p",
				ingressToWeb(` [{namespaceSelector: {matchLabels: {app: web}}, podSelector: {}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +ops>web"}},
			{About: "pods with a label in all namespaces", Do: e2e.Policy("shop/p",
				ingressToWeb(` [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +copy>web"}},
			{About: "side by side, for a port each", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{namespaceSelector: {matchLabels: {app: web}}}]
  ports: [{port: 81}]
- from: [{namespaceSelector: {matchLabels: {app: web}}, podSelector: {}}]
  ports: [{port: 82}]
- from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]
  ports: [{port: 83}]
- from: [{podSelector: {matchLabels: {app: web}}}]
  ports: [{port: 84}]`), Want: e2e.Wants{"tcp 80": "-*>web", "tcp 81": "-*>web +ops>web", "tcp 82": "-*>web +ops>web",
				"tcp 83": "-*>web +copy>web", "tcp 84": "-*>web"}},
		}},
		{Name: "S19_the_same_selector_in_two_namespaces", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]`), e2e.Policy("ops/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 81}]}]`)), Want: e2e.Wants{
				"tcp 80": "-*>web,copy +shop>web", "tcp 81": "-*>web,copy +ops>copy"}},
			{Do: e2e.Without("shop/p"), Want: e2e.Wants{"tcp 80": "-*>copy", "tcp 81": "-*>copy +ops>copy"}},
		}},
		{Name: "S20_operators", Steps: []e2e.Step{
			{About: "NotIn matches those that lack the key", Do: e2e.Do(
				e2e.Pod("shop/db", e2e.Labelled("role=x")), e2e.Pod("shop/api", e2e.Labelled("app=api")),
				e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchExpressions: [{key: role, operator: NotIn, values: [x, z]}]}}]`))),
				Want: e2e.Wants{"tcp 80": "-*>web +api>web"}},
			{About: "DoesNotExist", Do: e2e.Policy("shop/p",
				ingressToWeb(` [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
			{About: "Exists", Do: e2e.Policy("shop/p",
				ingressToWeb(` [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +api,mon,copy>web"}},
			{About: "In", Do: e2e.Policy("shop/p",
				ingressToWeb(`
  - namespaceSelector: {}
    podSelector: {matchExpressions: [{key: app, operator: In, values: [mon, api]}]}`)),
				Want: e2e.Wants{"tcp 80": "-*>web +api,mon>web"}},
			{About: "several requirements together", Do: e2e.Policy("shop/p", ingressToWeb(`
  - namespaceSelector:
      matchExpressions: [{key: team, operator: In, values: [a, b]}, {key: team, operator: NotIn, values: [a]}]
    podSelector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: Exists}]}`)),
				Want: e2e.Wants{"tcp 80": "-*>web +copy>web"}},
			{About: "as a target: NotIn", Do: e2e.Policy("shop/p",
				`podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}`),
				Want: e2e.Wants{"tcp 80": "-*>db,api"}},
		}},
		{Name: "S21_a_namespace_by_its_name", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", ingressToWeb(` [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +ops>web"}},
		}},
	}
}

// ingressToWeb returns the spec of a policy that lets peers, a list in YAML, reach pods with app=web.
func ingressToWeb(peers string) string {
	return "podSelector: {matchLabels: {app: web}}\ningress:\n- from:" + peers
}
