package enforce

import corev1 "k8s.io/api/core/v1"

// subjectCases show which pods a cluster network policy is about.
func subjectCases() []testCase {
	deny := func(subject string) change {
		return clusterPolicy("a", admin("1", subject, ingress("Deny", allPods), egress("Deny", allPods)))
	}
	closed := func(pods string) wants {
		return wants{"tcp 80": "-" + pods + ">pods -pods>" + pods, "icmp": "-" + pods + ">pods -pods>" + pods}
	}
	open := wants{"tcp 80": "", "icmp": ""}
	return []testCase{
		{name: "S83_subjects", steps: []step{
			{about: "all namespaces", do: deny(`{namespaces: {}}`), want: closed("pods")},
			{about: "namespaces by label", do: deny(`{namespaces: {matchLabels: {team: b}}}`), want: closed("ops")},
			{about: "by name", do: deny(`{namespaces: {matchLabels: {kubernetes.io/metadata.name: ops}}}`), want: closed("ops")},
			{about: "by an expression", do: deny(`{namespaces: {matchExpressions: [{key: team, operator: NotIn, values: [b]}]}}`), want: closed("shop")},
			{about: "all pods of all namespaces", do: deny(`{pods: {namespaceSelector: {}, podSelector: {}}}`), want: closed("pods")},
			{about: "pods by label", do: deny(`{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}`), want: closed("web,copy")},
			{about: "pods of some namespaces", do: deny(webAlone), want: closed("web")},
			{about: "the labels of a pod change", do: do(pod("shop/web", labelled("app=other")), pod("shop/api", labelled("app=web"))), want: closed("api")},
			{about: "those of a namespace", do: namespace("ops", "team=a"), want: closed("api,copy")},
			{about: "no pod", do: deny(`{namespaces: {matchLabels: {team: none}}}`), want: open},
		}},
		{name: "S83_pods_of_the_host_network_and_finished_ones_are_none", steps: []step{
			{about: "a node is not closed with its pods", do: do(pod("ops/agent", at("copy"), labelled("app=agent"), hostNetwork), deny(allPods)),
				want: closed("pods")},
			{about: "nor by networks", do: clusterPolicy("a", admin("1", `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: agent}}}}`,
				ingress("Deny", allPods), egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`))), want: open},
			{about: "a finished pod", do: do(without("ops/agent"), deny(dbAlone), pod("shop/db", phase(corev1.PodSucceeded))), want: open},
			{about: "that runs", do: pod("shop/db", uid("again"), phase(corev1.PodRunning)), want: closed("db")},
		}},
	}
}

// tierPeerCases show which peers the rules of cluster network policies select.
func tierPeerCases() []testCase {
	from := func(peers string) change { return clusterPolicy("a", admin("1", webAlone, ingress("Deny", peers))) }
	to := func(peers string) change { return clusterPolicy("a", admin("1", webAlone, egress("Deny", peers))) }
	both := func(verdicts string) wants { return wants{"tcp 80": verdicts, "icmp": verdicts} }
	return []testCase{
		{name: "S84_namespaces_and_pods_match_pods", steps: []step{
			{about: "all namespaces", do: from(`{namespaces: {}}`), want: both("-pods>web")},
			{about: "not those on the host network", do: do(pod("ops/agent", at("copy"), labelled("app=agent"), hostNetwork)), want: both("-pods>web")},
			{about: "for egress", do: to(`{namespaces: {}}`), want: both("-web>pods")},
			{about: "namespaces by label", do: from(`{namespaces: {matchLabels: {team: b}}}`), want: both("-ops>web")},
			{about: "for egress", do: to(`{namespaces: {matchLabels: {team: b}}}`), want: both("-web>ops")},
			{about: "all pods", do: to(`{pods: {namespaceSelector: {}, podSelector: {}}}`), want: both("-web>pods")},
			{about: "pods by label", do: from(`{pods: {namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [web, api]}]}}}`),
				want: both("-api,copy>web")},
			{about: "by both labels", do: to(`{pods: {namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: web}}}}`),
				want: both("-web>copy")},
			{about: "a pod of the host network by its label", do: to(`{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: agent}}}}`), want: both("")},
			{about: "a peer is relabelled", do: do(from(monAlone), pod("shop/api", labelled("app=mon"))), want: both("-mon,api>web")},
			{about: "and a namespace", do: do(from(`{namespaces: {matchLabels: {zone: z}}}`), namespace("ops", "team=b,zone=z")), want: both("-ops>web")},
			{about: "a peer finishes", do: pod("ops/mon", phase(corev1.PodFailed)), want: both("-copy>web")},
		}},
		{name: "S84_networks_match_every_address_of_their_family", steps: []step{
			{about: "pods'", do: to(`{networks: [10.32.2.0/24, "fd10:32:0:2::/64"]}`), want: both("-web>api,copy")},
			{about: "of one family", do: to(`{networks: [10.32.2.0/24]}`), want: wants{"tcp 80 /4": "-web>api,copy", "icmp /6": "", "tcp 80 /6": ""}},
			{do: to(`{networks: ["fd10:32:0:2::/64"]}`), want: wants{"tcp 80 /6": "-web>api,copy", "icmp /4": "", "tcp 80 /4": ""}},
			{about: "one pod's", do: to(`{networks: [$db4/32, "$db6/128"]}`), want: both("-web>db")},
			{about: "another node's", do: to(`{networks: [$n24/32, "$n26/128"]}`), want: both("-web>n2")},
			{about: "outside ones", do: to(`{networks: [192.0.2.0/24, "2001:db8::/32"]}`), want: both("-web>out")},
			{about: "with host bits", do: to(`{networks: [10.32.2.77/24, "fd10:32:0:2::77/64"]}`), want: both("-web>api,copy")},
			{about: "that overlap", do: to(`{networks: [10.32.0.0/16, 10.32.2.0/24, "fd10:32::/32"]}`), want: both("-web>pods")},
			{about: "Accept before Deny", do: clusterPolicy("a", admin("1", webAlone, `egress: [
{action: Accept, to: [{networks: [$api4/32, "$api6/128"]}]}, {action: Deny, to: [{networks: [10.32.0.0/16, "fd10:32::/32"]}]}]`)),
				want: both("-web>pods +web>api")},
			{about: "Pass before Deny", do: do(clusterPolicy("a", admin("1", webAlone, `egress: [
{action: Pass, to: [{networks: [10.32.2.0/24, "fd10:32:0:2::/64"]}]}, {action: Deny, to: [{networks: [10.32.0.0/16, "fd10:32::/32"]}]}]`)),
				clusterPolicy("b", baseline("1", webAlone, egress("Deny", `{networks: [$copy4/32, "$copy6/128"]}`)))), want: both("-web>pods +web>api")},
		}},
	}
}
