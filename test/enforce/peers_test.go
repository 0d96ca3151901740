package enforce

// peerCases show which peers from and to select.
func peerCases() []testCase {
	return []testCase{
		{name: "S15_a_pod_selector_means_the_own_namespace", steps: []step{
			{do: policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]`), want: wants{"tcp 80": "-*>mon +copy>mon"}},
			{about: "egress", do: policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]`), want: wants{"tcp 80": "-mon>* +mon>copy"}},
			{about: "all of it", do: policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
ingress: [{from: [{podSelector: {}}]}]`), want: wants{"tcp 80": "-*>mon +copy>mon"}},
		}},
		{name: "S16_an_empty_namespace_selector_means_all_pods", steps: []step{
			{do: policy("shop/p", ingressToWeb(` [{namespaceSelector: {}}]`)), want: wants{"tcp 80": "-*>web +pods>web"}},
			{about: "not those on the host network", do: pod("ops/agent", at("copy"), labelled("app=web"), hostNetwork),
				want: wants{"tcp 80": "-*>web +pods>web", "icmp": "-*>web +pods>web"}},
			{about: "egress", do: do(without("ops/agent"), policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {}}]}]`)), want: wants{"tcp 80": "-web>* +web>pods"}},
		}},
		{name: "S17_both_in_one_item_and_in_two_items_or", steps: []step{
			{do: policy("shop/p", ingressToWeb(`
  - namespaceSelector: {matchLabels: {team: b}}
    podSelector: {matchLabels: {app: web}}`)), want: wants{"tcp 80": "-*>web +copy>web"}},
			{do: policy("shop/p", ingressToWeb(`
  - namespaceSelector: {matchLabels: {team: b}}
  - podSelector: {matchLabels: {app: db}}`)), want: wants{"tcp 80": "-*>web +copy,mon,db>web"}},
		}},
		{name: "S18_three_kinds_of_peers", steps: []step{
			{about: "namespaces with a label", do: do(
				namespace("ops", "app=web"), policy("shop/p", ingressToWeb(` [{namespaceSelector: {matchLabels: {app: web}}}]`))),
				want: wants{"tcp 80": "-*>web +ops>web"}},
			{about: "all pods in namespaces with a label", do: policy("shop/p",
				ingressToWeb(` [{namespaceSelector: {matchLabels: {app: web}}, podSelector: {}}]`)),
				want: wants{"tcp 80": "-*>web +ops>web"}},
			{about: "pods with a label in all namespaces", do: policy("shop/p",
				ingressToWeb(` [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]`)),
				want: wants{"tcp 80": "-*>web +copy>web"}},
			{about: "side by side, for a port each", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{namespaceSelector: {matchLabels: {app: web}}}]
  ports: [{port: 81}]
- from: [{namespaceSelector: {matchLabels: {app: web}}, podSelector: {}}]
  ports: [{port: 82}]
- from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]
  ports: [{port: 83}]
- from: [{podSelector: {matchLabels: {app: web}}}]
  ports: [{port: 84}]`), want: wants{"tcp 80": "-*>web", "tcp 81": "-*>web +ops>web", "tcp 82": "-*>web +ops>web",
				"tcp 83": "-*>web +copy>web", "tcp 84": "-*>web"}},
		}},
		{name: "S19_the_same_selector_in_two_namespaces", steps: []step{
			{do: do(policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]`), policy("ops/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 81}]}]`)), want: wants{
				"tcp 80": "-*>web,copy +shop>web", "tcp 81": "-*>web,copy +ops>copy"}},
			{do: without("shop/p"), want: wants{"tcp 80": "-*>copy", "tcp 81": "-*>copy +ops>copy"}},
		}},
		{name: "S20_operators", steps: []step{
			{about: "NotIn matches those that lack the key", do: do(
				pod("shop/db", labelled("role=x")), pod("shop/api", labelled("app=api")),
				policy("shop/p", ingressToWeb(` [{podSelector: {matchExpressions: [{key: role, operator: NotIn, values: [x, z]}]}}]`))),
				want: wants{"tcp 80": "-*>web +api>web"}},
			{about: "DoesNotExist", do: policy("shop/p",
				ingressToWeb(` [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]`)),
				want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "Exists", do: policy("shop/p",
				ingressToWeb(` [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`)),
				want: wants{"tcp 80": "-*>web +api,mon,copy>web"}},
			{about: "In", do: policy("shop/p",
				ingressToWeb(`
  - namespaceSelector: {}
    podSelector: {matchExpressions: [{key: app, operator: In, values: [mon, api]}]}`)),
				want: wants{"tcp 80": "-*>web +api,mon>web"}},
			{about: "several requirements together", do: policy("shop/p", ingressToWeb(`
  - namespaceSelector:
      matchExpressions: [{key: team, operator: In, values: [a, b]}, {key: team, operator: NotIn, values: [a]}]
    podSelector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: Exists}]}`)),
				want: wants{"tcp 80": "-*>web +copy>web"}},
			{about: "as a target: NotIn", do: policy("shop/p",
				`podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}`),
				want: wants{"tcp 80": "-*>db,api"}},
		}},
		{name: "S21_a_namespace_by_its_name", steps: []step{
			{do: policy("shop/p", ingressToWeb(` [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}}]`)),
				want: wants{"tcp 80": "-*>web +ops>web"}},
		}},
	}
}

// ingressToWeb returns the spec of a policy that lets peers, a list in YAML, reach pods with app=web.
func ingressToWeb(peers string) string {
	return "podSelector: {matchLabels: {app: web}}\ningress:\n- from:" + peers
}
