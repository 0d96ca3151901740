package enforce

import corev1 "k8s.io/api/core/v1"

// changeCases show how verdicts follow the labels, addresses and phases of the objects that policies name.
func changeCases() []testCase {
	return []testCase{
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
			{do: policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`)), want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "of a peer", do: pod("shop/api", labelled("app=db")), want: wants{"tcp 80": "-*>web +db,api>web"}},
			{about: "and another one's", do: pod("shop/db", labelled("")), want: wants{"tcp 80": "-*>web +api>web"}},
			{about: "of a target: open again", do: pod("shop/web", labelled("app=no")), want: wants{"tcp 80": ""}},
			{about: "another target", do: pod("shop/db", labelled("app=web")), want: wants{"tcp 80": "-*>db +api>db"}},
			{about: "on the other node", do: pod("shop/api", labelled("app=web")), want: wants{"tcp 80": "-*>db,api"}},
		}},
		{name: "S24_a_pod_with_two_addresses_is_matched_by_both", steps: []step{
			{about: "both", do: policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`)),
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
				policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: agent}}}, {namespaceSelector: {}}]`))),
				want: wants{"tcp 80": "-*>web +pods>web"}},
			{about: "as a target: its node is not isolated", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: agent}}, policyTypes: [Ingress, Egress]}`), want: wants{"tcp 80": ""}},
			{about: "a pod that claims its node's address does not get it", do: do(
				pod("shop/thief", at("copy"), labelled("app=thief"), hostNetwork, claimsHost),
				policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: thief}}}]`))),
				want: wants{"tcp 80": "-*>web"}},
		}},
		{name: "S26_a_finished_pod_leaves_every_set", steps: []step{
			{do: policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`)), want: wants{"tcp 80": "-*>web +db>web"}},
			{about: "as a peer", do: pod("shop/db", phase(corev1.PodSucceeded)), want: wants{"tcp 80": "-*>web"}},
			{about: "as a target", do: do(pod("shop/db", phase(corev1.PodRunning)), pod("shop/web", phase(corev1.PodFailed))),
				want: wants{"tcp 80": ""}},
		}},
		{name: "S29_a_pending_pod_with_an_address_is_enforced", steps: []step{
			{do: do(pod("shop/web", phase(corev1.PodPending)), pod("shop/db", phase(corev1.PodPending)),
				policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`))), want: wants{"tcp 80": "-*>web +db>web"}},
		}},
		{name: "S30_deleted_and_made_again_with_the_same_name", steps: []step{
			{do: do(pod("shop/db", uid("first")), policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`))),
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
				policy("shop/p", ingressToWeb(` [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: db}}}]`)),
				policy("ops/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`)),
				want: wants{"tcp 80": ""}},
			{about: "then pods", do: do(pod("shop/web", labelled("app=web")), pod("shop/db", labelled("app=db")),
				pod("ops/mon", labelled("app=mon")), namespace("ops", "")), want: wants{"tcp 80": "-*>web,mon +db>web"}},
			{about: "then namespaces", do: do(namespace("shop", "team=a"), namespace("ops", "team=b")),
				want: wants{"tcp 80": "-*>web,mon +mon,db>web +web,db>mon"}},
		}},
	}
}
