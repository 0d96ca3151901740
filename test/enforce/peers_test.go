package enforce

import corev1 "k8s.io/api/core/v1"

// peerCases show whom from and to name.
func peerCases() []testCase {
	only := func(spec string) string {
		return "podSelector: {matchLabels: {app: web}}\ningress:\n- from:" + spec
	}
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
			{do: policy("shop/p", only(` [{namespaceSelector: {}}]`)), want: wants{"tcp 80": "-*>web +pods>web"}},
			{about: "not those on the host network", do: pod("ops/agent", at("copy"), labelled("app=web"), hostNetwork),
				want: wants{"tcp 80": "-*>web +pods>web", "icmp": "-*>web +pods>web"}},
			{about: "egress", do: do(without("ops/agent"), policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {}}]}]`)), want: wants{"tcp 80": "-web>* +web>pods"}},
		}},
		{name: "S17_both_in_one_item_and_in_two_items_or", steps: []step{
			{do: policy("shop/p", only(`
  - namespaceSelector: {matchLabels: {team: b}}
    podSelector: {matchLabels: {app: web}}`)), want: wants{"tcp 80": "-*>web +copy>web"}},
			{do: policy("shop/p", only(`
  - namespaceSelector: {matchLabels: {team: b}}
  - podSelector: {matchLabels: {app: db}}`)), want: wants{"tcp 80": "-*>web +copy,mon,db>web"}},
		}},
		{name: "S18_three_kinds_of_peers", steps: []step{
			{about: "namespaces with a label", do: do(
				namespace("ops", "app=web"), policy("shop/p", only(` [{namespaceSelector: {matchLabels: {app: web}}}]`))),
				want: wants{"tcp 80": "-*>web +ops>web"}},
			{about: "all pods in namespaces with a label", do: policy("shop/p",
				only(` [{namespaceSelector: {matchLabels: {app: web}}, podSelector: {}}]`)),
				want: wants{"tcp 80": "-*>web +ops>web"}},
			{about: "pods with a label in all namespaces", do: policy("shop/p",
				only(` [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]`)),
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
				policy("shop/p", only(` [{podSelector: {matchExpressions: [{key: role, operator: NotIn, values: [x, z]}]}}]`))),
				want: wants{"tcp 80": "-*>web +api>web"}},
			{about: "DoesNotExist", do: policy("shop/p",
				only(` [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]`)),
				want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "Exists", do: policy("shop/p",
				only(` [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`)),
				want: wants{"tcp 80": "-*>web +api,mon,copy>web"}},
			{about: "In", do: policy("shop/p",
				only(`
  - namespaceSelector: {}
    podSelector: {matchExpressions: [{key: app, operator: In, values: [mon, api]}]}`)),
				want: wants{"tcp 80": "-*>web +api,mon>web"}},
			{about: "several requirements together", do: policy("shop/p", only(`
  - namespaceSelector:
      matchExpressions: [{key: team, operator: In, values: [a, b]}, {key: team, operator: NotIn, values: [a]}]
    podSelector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: Exists}]}`)),
				want: wants{"tcp 80": "-*>web +copy>web"}},
			{about: "as a target: NotIn", do: policy("shop/p",
				`podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}`),
				want: wants{"tcp 80": "-*>db,api"}},
		}},
		{name: "S21_a_namespace_by_its_name", steps: []step{
			{do: policy("shop/p", only(` [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}}]`)),
				want: wants{"tcp 80": "-*>web +ops>web"}},
		}},
		{name: "S22_a_namespaces_labels_change", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{namespaceSelector: {matchLabels: {zone: z}}}]
  ports: [{port: 81}]
- from: [{namespaceSelector: {matchLabels: {zone: z}}, podSelector: {matchLabels: {app: web}}}]
  ports: [{port: 82}]
- from: [{namespaceSelector: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}]
  ports: [{port: 83}]`), want: wants{"tcp 81": "-*>web", "tcp 82": "-*>web", "tcp 83": "-*>web +pods>web"}},
			{do: namespace("ops", "team=b,zone=z"), want: wants{"tcp 81": "-*>web +ops>web", "tcp 82": "-*>web +copy>web",
				"tcp 83": "-*>web +shop>web"}},
			{do: namespace("shop", "zone=z"), want: wants{"tcp 81": "-*>web +pods>web", "tcp 82": "-*>web +copy>web",
				"tcp 83": "-*>web"}},
			{do: namespace("ops", ""), want: wants{"tcp 81": "-*>web +shop>web", "tcp 82": "-*>web",
				"tcp 83": "-*>web +ops>web"}},
		}},
		{name: "S23_a_pods_labels_change", steps: []step{
			{do: policy("shop/p", only(` [{podSelector: {matchLabels: {app: db}}}]`)), want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "of a peer", do: pod("shop/api", labelled("app=db")), want: wants{"tcp 80": "-*>web +db,api>web"}},
			{about: "and another one's", do: pod("shop/db", labelled("")), want: wants{"tcp 80": "-*>web +api>web"}},
			{about: "of a target: open again", do: pod("shop/web", labelled("app=no")), want: wants{"tcp 80": ""}},
			{about: "another target", do: pod("shop/db", labelled("app=web")), want: wants{"tcp 80": "-*>db +api>db"}},
			{about: "on the other node", do: pod("shop/api", labelled("app=web")), want: wants{"tcp 80": "-*>db,api"}},
		}},
		{name: "S24_a_pod_with_two_addresses_is_matched_by_both", steps: []step{
			{about: "both", do: policy("shop/p", only(` [{podSelector: {matchLabels: {app: db}}}]`)),
				want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "the peer is known by its IPv4 address alone", do: pod("shop/db", only4),
				want: wants{"tcp 80 /4": "-*>web +db>web", "tcp 80 /6": "-*>web"}},
			{about: "by its IPv6 address alone", do: pod("shop/db", only6),
				want: wants{"tcp 80 /4": "-*>web", "tcp 80 /6": "-*>web +db>web"}},
			{about: "both again", do: pod("shop/db", at("db")), want: wants{"tcp 80": "-*>web +db>web"}},
		}},
		{name: "S25_a_host_network_pod_matches_nothing", says: []string{conflict}, steps: []step{
			{about: "as a peer: its node's address is no pod's", do: do(
				pod("shop/agent", at("copy"), labelled("app=agent"), hostNetwork),
				policy("shop/p", only(` [{podSelector: {matchLabels: {app: agent}}}, {namespaceSelector: {}}]`))),
				want: wants{"tcp 80": "-*>web +pods>web"}},
			{about: "as a target: its node is not isolated", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: agent}}, policyTypes: [Ingress, Egress]}`), want: wants{"tcp 80": ""}},
			{about: "a pod that claims its node's address does not get it", do: do(
				pod("shop/thief", at("copy"), labelled("app=thief"), hostNetwork, claimsHost),
				policy("shop/p", only(` [{podSelector: {matchLabels: {app: thief}}}]`))),
				want: wants{"tcp 80": "-*>web"}},
		}},
		{name: "S26_a_finished_pod_leaves_every_set", steps: []step{
			{do: policy("shop/p", only(` [{podSelector: {matchLabels: {app: db}}}]`)), want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "as a peer", do: pod("shop/db", phase(corev1.PodSucceeded)), want: wants{"tcp 80": "-*>web"}},
			{about: "as a target", do: do(pod("shop/db", phase(corev1.PodRunning)), pod("shop/web", phase(corev1.PodFailed))),
				want: wants{"tcp 80": ""}},
		}},
		{name: "S29_a_pending_pod_with_an_address_is_enforced", steps: []step{
			{do: do(pod("shop/web", phase(corev1.PodPending)), pod("shop/db", phase(corev1.PodPending)),
				policy("shop/p", only(` [{podSelector: {matchLabels: {app: db}}}]`))), want: wants{"tcp 80": "-*>web +db>web"}},
		}},
		{name: "S30_deleted_and_made_again_with_the_same_name", steps: []step{
			{do: do(pod("shop/db", uid("first")), policy("shop/p", only(` [{podSelector: {matchLabels: {app: db}}}]`))),
				want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "another pod of that name, without the label, and with another address", do: do(
				pod("shop/db", uid("second"), labelled("app=other"), at("api")), pod("shop/api", uid("third"), at("db"))),
				want: wants{"tcp 80": "-*>web"}},
			{about: "and with it", do: pod("shop/db", uid("fourth"), labelled("app=db")),
				want: wants{"tcp 80": "-*>web +api>web"}},
		}},
		{name: "S32_objects_arrive_in_any_order", steps: []step{
			{about: "no policies, so that no pod vanishes that one isolates"},
			{about: "nothing at all", do: without("shop", "ops"), want: wants{"tcp 80": ""}},
			{about: "policies first", do: do(
				policy("shop/p", only(` [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: db}}}]`)),
				policy("ops/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`)),
				want: wants{"tcp 80": ""}},
			{about: "then pods", do: do(pod("shop/web", labelled("app=web")), pod("shop/db", labelled("app=db")),
				pod("ops/mon", labelled("app=mon")), namespace("ops", "")), want: wants{"tcp 80": "-*>web,mon +db>web"}},
			{about: "then namespaces", do: do(namespace("shop", "team=a"), namespace("ops", "team=b")),
				want: wants{"tcp 80": "-*>web,mon +mon,db>web +web,db>mon"}},
		}},
	}
}
