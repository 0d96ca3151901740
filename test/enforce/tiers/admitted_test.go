package tiers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS84_S85_S86_S89_WhatOtherDefinitionsOfTheKindAdmit has an API server admit everything, as one with an older or a
// newer definition of the kind may.
func TestS84_S85_S86_S89_WhatOtherDefinitionsOfTheKindAdmit(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := e2e.NewAPIServer(t, backend)
		c.AssignRanges(t, w)
		c.Define(t, c.Definition(t, e2e.AdmitAnything))
		c.Write(t, w.Objects(e2e.Base()))
		w.StartAPIDaemons(t, c)
		for _, c := range append(understood(), notUnderstood()...) {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, w) })
		}
		t.Run("an_unknown_tier_or_subject", func(t *testing.T) { undecided(t, c, w) })
	})
}

// understood are policies that the definition of today refuses and that mean something all the same.
func understood() []e2e.Case {
	deny := func(peers string, protocols string) e2e.Change {
		return e2e.ClusterPolicy("a", `{tier: Admin, priority: 1, subject: `+e2e.WebAlone+`, egress: [{action: Deny, to: [`+peers+`], protocols: [`+protocols+`]}]}`)
	}
	const closed = "-web>pods"
	return []e2e.Case{{Name: "understood", Steps: []e2e.Step{
		{About: "an empty list of protocols", Do: deny(e2e.AllPods, ""), Want: e2e.Wants{"tcp 80": closed,
			"udp 53": closed, "sctp 80": closed, "icmp": closed}},
		{About: "all ports of TCP", Do: deny(e2e.AllPods, `{tcp: {}}`), Want: e2e.Wants{"tcp 1": closed,
			"tcp 80": closed, "udp 80": "", "sctp 80": "", "icmp": ""}},
		{About: "of UDP", Do: deny(e2e.AllPods, `{udp: {}}`), Want: e2e.Wants{"udp 53": closed, "udp 9": closed,
			"tcp 53": "", "sctp 80": "", "icmp": ""}},
		{About: "of SCTP", Do: deny(e2e.AllPods, `{sctp: {}}`), Want: e2e.Wants{"sctp 80": closed, "tcp 80": "",
			"udp 80": "", "icmp": ""}},
		{About: "a named port of pods in networks", Do: e2e.Do(e2e.Pod("shop/db", e2e.Port("http", 80, "")),
			e2e.Pod("shop/api", e2e.Port("http", 80, "")),
			e2e.Pod("ops/copy", e2e.Port("http", 8080,
				"")), deny(`{networks: [10.32.2.0/24, "fd10:32:0:2::/64", 192.0.2.0/24, "2001:db8::/32"]}`,
				`{destinationNamedPort: http}`)), Want: e2e.Wants{"tcp 80": "-web>api", "tcp 8080": "-web>copy",
			"udp 80": ""}},
	}}}
}

// notUnderstood are rules that fail closed: those that accept match nothing, and others deny everything.
func notUnderstood() []e2e.Case {
	const said = `cluster network policy is invalid: its rules that are not understood fail closed.*policy=(deny|pass|accept) `
	c := e2e.Case{Name: "not_understood", Says: []string{said}}
	for _, v := range [][2]string{
		{"a peer with no known field", `to: [{galaxies: {}}]`},
		{"a peer with two fields", `to: [{namespaces: {}, networks: [192.0.2.0/24]}]`},
		{"a malformed network", `to: [{networks: [10.0.0.0.0/8]}]`},
		{"an IPv4-mapped network", `to: [{networks: ["::ffff:198.51.100.0/120"]}]`},
		{"an unknown operator", `to: [{namespaces: {matchExpressions: [{key: team, operator: Near}]}}]`},
		{"one unknown peer of two", `to: [{namespaces: {matchLabels: {team: none}}}, {galaxies: {}}]`},
		{"an unknown protocol of two", `to: [{namespaces: {}}], protocols: [{tcp: {}}, {quic: {}}]`},
		{"a protocol with two fields", `to: [{namespaces: {}}], protocols: [{tcp: {}, udp: {}}]`},
		{"a port of no known kind", `to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {service: web}}}]`},
		{"a port of two kinds", `to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}]`},
		{"a reversed range", `to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 2, end: 1}}}}]`},
		{"no peers", `to: []`},
	} {
		rule := func(action string) string { return `egress: [{action: ` + action + `, ` + v[1] + `}` }
		c.Steps = append(c.Steps, e2e.Step{About: v[0],
			Do: e2e.Do(e2e.ClusterPolicy("deny", e2e.Admin("1", e2e.WebAlone, rule("Deny")+"]")),
				e2e.ClusterPolicy("pass", e2e.Baseline("1", e2e.MonAlone, rule("Pass")+"]")),
				e2e.ClusterPolicy("accept", e2e.Admin("1", e2e.DBAlone,
					rule("Accept")+`, {action: Deny, to: [{namespaces: {}}]}]`))),
			Want: e2e.EveryProtocol("!web,mon>* -db>pods")})
	}
	c.Steps = append(c.Steps,
		e2e.Step{About: "an unknown action", Do: e2e.Do(e2e.Without("pass", "accept"),
			e2e.ClusterPolicy("deny", e2e.Admin("1", e2e.WebAlone, e2e.Egress("Allow", e2e.AllPods)))),
			Want: e2e.EveryProtocol("!web>*")},
		e2e.Step{About: "ingress", Do: e2e.ClusterPolicy("deny", e2e.Admin("1", e2e.WebAlone,
			`ingress: [{action: Deny, from: [{galaxies: {}}], protocols: [{udp: {}}]}]`)),
			Want: e2e.EveryProtocol("-*>web")},
		e2e.Step{About: "from what only egress has", Do: e2e.ClusterPolicy("deny", e2e.Admin("1", e2e.WebAlone,
			`ingress: [{action: Pass, from: [{networks: [192.0.2.0/24]}]}]`)),
			Want: e2e.EveryProtocol("-*>web")},
		e2e.Step{About: "those that v1 policies isolate do not meet Baseline's",
			Do: e2e.Do(e2e.ClusterPolicy("deny", e2e.Baseline("1", e2e.ShopPods, e2e.Egress("Pass", `{}`))),
				e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{}]}`)),
			Want: e2e.EveryProtocol("!db,api>*")},
		e2e.Step{About: "rules before it stand", Do: e2e.Do(e2e.Without("shop/p"),
			e2e.ClusterPolicy("deny", e2e.Admin("1", e2e.WebAlone,
				`egress: [{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{galaxies: {}}]}]`))),
			Want: e2e.EveryProtocol("!web>* +web>pods")},
		e2e.Step{About: "valid again", Do: e2e.ClusterPolicy("deny", e2e.Admin("1", e2e.WebAlone,
			e2e.Egress("Deny", e2e.MonAlone))), Want: e2e.EveryProtocol("-web>mon")})
	return []e2e.Case{c}
}

// undecided writes policies whose tier or subject is unknown.
func undecided(t *testing.T, c *e2e.APIServer, w *e2e.Cluster) {
	for name, spec := range map[string]string{
		"an_unknown_tier":     `{tier: Platform, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"no_tier":             `{priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"an_unknown_subject":  `{tier: Admin, priority: 1, subject: {galaxies: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"two_subjects":        `{tier: Admin, priority: 1, subject: {namespaces: {}, pods: {podSelector: {}}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"an_unknown_operator": `{tier: Admin, priority: 1, subject: {namespaces: {matchExpressions: [{key: a, operator: Near}]}}, egress: [{action: Deny, to: [{}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, d := range w.Daemons {
				d.Log.Expect("cluster network policy is invalid: it decides nothing until it is valid.*policy=odd ")
			}
			o := w.Objects(e2e.Do(e2e.Base(), e2e.ClusterPolicy("odd", spec), e2e.ClusterPolicy("other",
				e2e.Admin("1", e2e.WebAlone, e2e.Ingress("Deny", e2e.MonAlone)))))
			w.Apply(t, o)
			w.Expect(t, e2e.EveryProtocol("-mon>web"))
			for _, d := range w.Daemons {
				d.AwaitUnready(t, "odd")
				d.AwaitMetric(t, "weavenpc_invalid_cluster_policies 1")
			}
			w.Apply(t, w.Objects(e2e.Base()))
			for _, d := range w.Daemons {
				d.AwaitReady(t)
				d.AwaitMetric(t, "weavenpc_invalid_cluster_policies 0")
			}
		})
	}
	awaitEvent(t, c, w, "odd", "Invalid", "decides nothing")
}

// awaitEvent waits for an Event of weave-npc on a ClusterNetworkPolicy.
func awaitEvent(t *testing.T, c *e2e.APIServer, w *e2e.Cluster, policy, reason, message string) {
	t.Helper()
	await.Within(t, e2e.Timeout, func() bool {
		events, err := c.Client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		c.Must(t, err)
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ClusterNetworkPolicy" && e.InvolvedObject.Name == policy &&
				e.Type == "Warning" && e.Reason == reason &&
				strings.Contains(e.Message, message) && e.Source.Component == "weave-npc" {
				return true
			}
		}
		return false
	}, func() string { return "no Event on the policy\n" + w.State() })
}
