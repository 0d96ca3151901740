package tiers

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// subjectCases show which pods a cluster network policy is about.
func subjectCases() []e2e.Case {
	deny := func(subject string) e2e.Change {
		return e2e.ClusterPolicy("a", e2e.Admin("1", subject, e2e.Ingress("Deny", e2e.AllPods),
			e2e.Egress("Deny", e2e.AllPods)))
	}
	closed := func(pods string) e2e.Wants {
		return e2e.Wants{"tcp 80": "-" + pods + ">pods -pods>" + pods, "icmp": "-" + pods + ">pods -pods>" + pods}
	}
	open := e2e.Wants{"tcp 80": "", "icmp": ""}
	return []e2e.Case{
		{Name: "S83_subjects", Steps: []e2e.Step{
			{About: "all namespaces", Do: deny(`{namespaces: {}}`), Want: closed("pods")},
			{About: "namespaces by label", Do: deny(`{namespaces: {matchLabels: {team: b}}}`), Want: closed("ops")},
			{About: "by name", Do: deny(`{namespaces: {matchLabels: {kubernetes.io/metadata.name: ops}}}`),
				Want: closed("ops")},
			{About: "by an expression", Do: deny(`{namespaces: {matchExpressions: [{key: team, operator: NotIn, values: [b]}]}}`), Want: closed("shop")},
			{About: "all pods of all namespaces", Do: deny(`{pods: {namespaceSelector: {}, podSelector: {}}}`),
				Want: closed("pods")},
			{About: "pods by label", Do: deny(`{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}`), Want: closed("web,copy")},
			{About: "pods of some namespaces", Do: deny(e2e.WebAlone), Want: closed("web")},
			{About: "the labels of a pod change", Do: e2e.Do(e2e.Pod("shop/web", e2e.Labelled("app=other")),
				e2e.Pod("shop/api", e2e.Labelled("app=web"))), Want: closed("api")},
			{About: "those of a namespace", Do: e2e.Namespace("ops", "team=a"), Want: closed("api,copy")},
			{About: "no pod", Do: deny(`{namespaces: {matchLabels: {team: none}}}`), Want: open},
		}},
		{Name: "S83_pods_of_the_host_network_and_finished_ones_are_none", Steps: []e2e.Step{
			{About: "a node is not closed with its pods",
				Do: e2e.Do(e2e.Pod("ops/agent", e2e.At("copy"), e2e.Labelled("app=agent"), e2e.HostNetwork),
					deny(e2e.AllPods)),
				Want: closed("pods")},
			{About: "nor by networks", Do: e2e.ClusterPolicy("a",
				e2e.Admin("1", `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: agent}}}}`,
					e2e.Ingress("Deny", e2e.AllPods), e2e.Egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`))), Want: open},
			{About: "a finished pod", Do: e2e.Do(e2e.Without("ops/agent"), deny(e2e.DBAlone),
				e2e.Pod("shop/db", e2e.Phase(corev1.PodSucceeded))), Want: open},
			{About: "that runs", Do: e2e.Pod("shop/db", e2e.UID("again"), e2e.Phase(corev1.PodRunning)),
				Want: closed("db")},
		}},
	}
}

// tierPeerCases show which peers the rules of cluster network policies select.
func tierPeerCases() []e2e.Case {
	from := func(peers string) e2e.Change {
		return e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, e2e.Ingress("Deny", peers)))
	}
	to := func(peers string) e2e.Change {
		return e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, e2e.Egress("Deny", peers)))
	}
	both := func(verdicts string) e2e.Wants { return e2e.Wants{"tcp 80": verdicts, "icmp": verdicts} }
	return []e2e.Case{
		{Name: "S84_namespaces_and_pods_match_pods", Steps: []e2e.Step{
			{About: "all namespaces", Do: from(`{namespaces: {}}`), Want: both("-pods>web")},
			{About: "not those on the host network",
				Do: e2e.Do(e2e.Pod("ops/agent", e2e.At("copy"), e2e.Labelled("app=agent"),
					e2e.HostNetwork)), Want: both("-pods>web")},
			{About: "for egress", Do: to(`{namespaces: {}}`), Want: both("-web>pods")},
			{About: "namespaces by label", Do: from(`{namespaces: {matchLabels: {team: b}}}`), Want: both("-ops>web")},
			{About: "for egress", Do: to(`{namespaces: {matchLabels: {team: b}}}`), Want: both("-web>ops")},
			{About: "all pods", Do: to(`{pods: {namespaceSelector: {}, podSelector: {}}}`), Want: both("-web>pods")},
			{About: "pods by label", Do: from(`{pods: {namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [web, api]}]}}}`),
				Want: both("-api,copy>web")},
			{About: "by both labels", Do: to(`{pods: {namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: web}}}}`),
				Want: both("-web>copy")},
			{About: "a pod of the host network by its label",
				Do: to(`{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: agent}}}}`), Want: both("")},
			{About: "a peer is relabelled", Do: e2e.Do(from(e2e.MonAlone),
				e2e.Pod("shop/api", e2e.Labelled("app=mon"))), Want: both("-mon,api>web")},
			{About: "and a namespace", Do: e2e.Do(from(`{namespaces: {matchLabels: {zone: z}}}`),
				e2e.Namespace("ops", "team=b,zone=z")), Want: both("-ops>web")},
			{About: "a peer finishes", Do: e2e.Pod("ops/mon", e2e.Phase(corev1.PodFailed)), Want: both("-copy>web")},
		}},
		{Name: "S84_networks_match_every_address_of_their_family", Steps: []e2e.Step{
			{About: "pods'", Do: to(`{networks: [10.32.2.0/24, "fd10:32:0:2::/64"]}`), Want: both("-web>api,copy")},
			{About: "of one family", Do: to(`{networks: [10.32.2.0/24]}`),
				Want: e2e.Wants{"tcp 80 /4": "-web>api,copy", "icmp /6": "", "tcp 80 /6": ""}},
			{Do: to(`{networks: ["fd10:32:0:2::/64"]}`), Want: e2e.Wants{"tcp 80 /6": "-web>api,copy", "icmp /4": "",
				"tcp 80 /4": ""}},
			{About: "one pod's", Do: to(`{networks: [$db4/32, "$db6/128"]}`), Want: both("-web>db")},
			{About: "another node's", Do: to(`{networks: [$n24/32, "$n26/128"]}`), Want: both("-web>n2")},
			{About: "outside ones", Do: to(`{networks: [192.0.2.0/24, "2001:db8::/32"]}`), Want: both("-web>out")},
			{About: "with host bits", Do: to(`{networks: [10.32.2.77/24, "fd10:32:0:2::77/64"]}`),
				Want: both("-web>api,copy")},
			{About: "that overlap", Do: to(`{networks: [10.32.0.0/16, 10.32.2.0/24, "fd10:32::/32"]}`),
				Want: both("-web>pods")},
			{About: "Accept before Deny", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, `egress: [
{action: Accept, to: [{networks: [$api4/32, "$api6/128"]}]}, {action: Deny, to: [{networks: [10.32.0.0/16, "fd10:32::/32"]}]}]`)),
				Want: both("-web>pods +web>api")},
			{About: "Pass before Deny", Do: e2e.Do(e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, `egress: [
{action: Pass, to: [{networks: [10.32.2.0/24, "fd10:32:0:2::/64"]}]}, {action: Deny, to: [{networks: [10.32.0.0/16, "fd10:32::/32"]}]}]`)),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.WebAlone,
					e2e.Egress("Deny", `{networks: [$copy4/32, "$copy6/128"]}`)))), Want: both("-web>pods +web>api")},
		}},
	}
}
