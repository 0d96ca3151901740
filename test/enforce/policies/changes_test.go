package policies

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// changeCases show how verdicts follow the labels, addresses and phases of the objects that policies name.
func changeCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S22_a_namespaces_labels_change", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{namespaceSelector: {matchLabels: {zone: z}}}]
  ports: [{port: 81}]
- from: [{namespaceSelector: {matchLabels: {zone: z}}, podSelector: {matchLabels: {app: web}}}]
  ports: [{port: 82}]
- from: [{namespaceSelector: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}]
  ports: [{port: 83}]`), Want: e2e.Wants{"tcp 81": "-*>web", "tcp 82": "-*>web", "tcp 83": "-*>web +pods>web"}},
			{Do: e2e.Namespace("ops", "team=b,zone=z"), Want: e2e.Wants{"tcp 81": "-*>web +ops>web",
				"tcp 82": "-*>web +copy>web",
				"tcp 83": "-*>web +shop>web"}},
			{Do: e2e.Namespace("shop", "zone=z"), Want: e2e.Wants{"tcp 81": "-*>web +pods>web",
				"tcp 82": "-*>web +copy>web",
				"tcp 83": "-*>web"}},
			{Do: e2e.Namespace("ops", ""), Want: e2e.Wants{"tcp 81": "-*>web +shop>web", "tcp 82": "-*>web",
				"tcp 83": "-*>web +ops>web"}},
		}},
		{Name: "S23_a_pods_labels_change", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
			{About: "of a peer", Do: e2e.Pod("shop/api", e2e.Labelled("app=db")),
				Want: e2e.Wants{"tcp 80": "-*>web +db,api>web"}},
			{About: "and another one's", Do: e2e.Pod("shop/db", e2e.Labelled("")),
				Want: e2e.Wants{"tcp 80": "-*>web +api>web"}},
			{About: "of a target: open again", Do: e2e.Pod("shop/web", e2e.Labelled("app=no")),
				Want: e2e.Wants{"tcp 80": ""}},
			{About: "another target", Do: e2e.Pod("shop/db", e2e.Labelled("app=web")),
				Want: e2e.Wants{"tcp 80": "-*>db +api>db"}},
			{About: "on the other node", Do: e2e.Pod("shop/api", e2e.Labelled("app=web")),
				Want: e2e.Wants{"tcp 80": "-*>db,api"}},
		}},
		{Name: "S24_a_pod_with_two_addresses_is_matched_by_both", Steps: []e2e.Step{
			{About: "both", Do: e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
			{About: "the peer is known by its IPv4 address alone", Do: e2e.Pod("shop/db", e2e.Only4),
				Want: e2e.Wants{"tcp 80 /4": "-*>web +db>web", "tcp 80 /6": "-*>web"}},
			{About: "by its IPv6 address alone", Do: e2e.Pod("shop/db", e2e.Only6),
				Want: e2e.Wants{"tcp 80 /4": "-*>web", "tcp 80 /6": "-*>web +db>web"}},
			{About: "both again", Do: e2e.Pod("shop/db", e2e.At("db")), Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
		}},
		{Name: "S25_a_host_network_pod_matches_nothing", Says: []string{e2e.Conflict}, Steps: []e2e.Step{
			{About: "as a peer: its node's address is no pod's", Do: e2e.Do(
				e2e.Pod("shop/agent", e2e.At("copy"), e2e.Labelled("app=agent"), e2e.HostNetwork),
				e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: agent}}}, {namespaceSelector: {}}]`))),
				Want: e2e.Wants{"tcp 80": "-*>web +pods>web"}},
			{About: "as a target: its node is not isolated", Do: e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: agent}}, policyTypes: [Ingress, Egress]}`),
				Want: e2e.Wants{"tcp 80": ""}},
			{About: "a pod that claims its node's address does not get it", Do: e2e.Do(
				e2e.Pod("shop/thief", e2e.At("copy"), e2e.Labelled("app=thief"), e2e.HostNetwork, e2e.ClaimsHost),
				e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: thief}}}]`))),
				Want: e2e.Wants{"tcp 80": "-*>web"}},
		}},
		{Name: "S26_a_finished_pod_leaves_every_set", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
			{About: "as a peer", Do: e2e.Pod("shop/db", e2e.Phase(corev1.PodSucceeded)),
				Want: e2e.Wants{"tcp 80": "-*>web"}},
			{About: "as a target", Do: e2e.Do(e2e.Pod("shop/db", e2e.Phase(corev1.PodRunning)),
				e2e.Pod("shop/web", e2e.Phase(corev1.PodFailed))),
				Want: e2e.Wants{"tcp 80": ""}},
		}},
		{Name: "S29_a_pending_pod_with_an_address_is_enforced", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/web", e2e.Phase(corev1.PodPending)),
				e2e.Pod("shop/db", e2e.Phase(corev1.PodPending)),
				e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`))),
				Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
		}},
		{Name: "S30_deleted_and_made_again_with_the_same_name", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/db", e2e.UID("first")),
				e2e.Policy("shop/p", ingressToWeb(` [{podSelector: {matchLabels: {app: db}}}]`))),
				Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
			{About: "another pod of that name, without the label, and with another address", Do: e2e.Do(
				e2e.Pod("shop/db", e2e.UID("second"), e2e.Labelled("app=other"), e2e.At("api")), e2e.Pod("shop/api",
					e2e.UID("third"), e2e.At("db"))),
				Want: e2e.Wants{"tcp 80": "-*>web"}},
			{About: "and with it", Do: e2e.Pod("shop/db", e2e.UID("fourth"), e2e.Labelled("app=db")),
				Want: e2e.Wants{"tcp 80": "-*>web +api>web"}},
		}},
		{Name: "S32_objects_arrive_in_any_order", Steps: []e2e.Step{
			{About: "no policies, so that no pod vanishes that one isolates"},
			{About: "nothing at all", Do: e2e.Without("shop", "ops"), Want: e2e.Wants{"tcp 80": ""}},
			{About: "policies first", Do: e2e.Do(
				e2e.Policy("shop/p", ingressToWeb(` [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: db}}}]`)),
				e2e.Policy("ops/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`)),
				Want: e2e.Wants{"tcp 80": ""}},
			{About: "then pods", Do: e2e.Do(e2e.Pod("shop/web", e2e.Labelled("app=web")),
				e2e.Pod("shop/db", e2e.Labelled("app=db")),
				e2e.Pod("ops/mon", e2e.Labelled("app=mon")), e2e.Namespace("ops", "")),
				Want: e2e.Wants{"tcp 80": "-*>web,mon +db>web"}},
			{About: "then namespaces", Do: e2e.Do(e2e.Namespace("shop", "team=a"), e2e.Namespace("ops", "team=b")),
				Want: e2e.Wants{"tcp 80": "-*>web,mon +mon,db>web +web,db>mon"}},
		}},
	}
}
