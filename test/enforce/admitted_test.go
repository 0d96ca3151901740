package enforce

import (
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// definition returns the resource definition of ClusterNetworkPolicies, edited.
func (c *cluster) definition(t *testing.T, edit func(versions []any)) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../../npc/source/testdata/crd.yaml")
	c.must(t, err)
	u := &unstructured.Unstructured{}
	c.must(t, yaml.Unmarshal(text, &u.Object))
	versions := u.Object["spec"].(map[string]any)["versions"].([]any)
	if edit != nil {
		edit(versions)
	}
	return u
}

// definitions are the resource definitions of the API server.
func (c *cluster) definitions(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.server.Client())
	c.must(t, err)
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

// define installs a resource definition, and waits until ClusterNetworkPolicies are served.
func (c *cluster) define(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	_, err := c.definitions(t).Create(t.Context(), u, metav1.CreateOptions{})
	c.must(t, err)
	c.awaitKind(t, true)
}

// awaitKind waits until ClusterNetworkPolicies are served, or are not.
func (c *cluster) awaitKind(t *testing.T, served bool) {
	t.Helper()
	var err error
	await.Within(t, kindTimeout, func() bool {
		_, err = c.tiers.List(t.Context(), metav1.ListOptions{})
		return err == nil && served || apierrors.IsNotFound(err) && !served
	}, func() string { return "a list of the kind ends with " + err.Error() })
}

// anything makes a version admit every object of the kind.
func anything(versions []any) {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": open}
}

// TestS84_S85_S86_S89_WhatOtherDefinitionsOfTheKindAdmit has an API server admit everything, as one with an older or a
// newer definition of the kind may.
func TestS84_S85_S86_S89_WhatOtherDefinitionsOfTheKindAdmit(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := newCluster(t, backend)
		c.assignRanges(t, w)
		c.define(t, c.definition(t, anything))
		c.write(t, w.objects(base()))
		w.startAPIDaemons(t, c)
		for _, c := range append(understood(), notUnderstood()...) {
			t.Run(c.name, func(t *testing.T) { c.run(t, w) })
		}
		t.Run("an_unknown_tier_or_subject", func(t *testing.T) { c.undecided(t, w) })
	})
}

// understood are policies that the definition of today refuses and that mean something all the same.
func understood() []testCase {
	deny := func(peers string, protocols string) change {
		return clusterPolicy("a", `{tier: Admin, priority: 1, subject: `+webAlone+`, egress: [{action: Deny, to: [`+peers+`], protocols: [`+protocols+`]}]}`)
	}
	const closed = "-web>pods"
	return []testCase{{name: "understood", steps: []step{
		{about: "an empty list of protocols", do: deny(allPods, ""), want: wants{"tcp 80": closed, "udp 53": closed, "sctp 80": closed, "icmp": closed}},
		{about: "all ports of TCP", do: deny(allPods, `{tcp: {}}`), want: wants{"tcp 1": closed, "tcp 80": closed, "udp 80": "", "sctp 80": "", "icmp": ""}},
		{about: "of UDP", do: deny(allPods, `{udp: {}}`), want: wants{"udp 53": closed, "udp 9": closed, "tcp 53": "", "sctp 80": "", "icmp": ""}},
		{about: "of SCTP", do: deny(allPods, `{sctp: {}}`), want: wants{"sctp 80": closed, "tcp 80": "", "udp 80": "", "icmp": ""}},
		{about: "a named port of pods in networks", do: do(pod("shop/db", port("http", 80, "")), pod("shop/api", port("http", 80, "")),
			pod("ops/copy", port("http", 8080, "")), deny(`{networks: [10.32.2.0/24, "fd10:32:0:2::/64", 192.0.2.0/24, "2001:db8::/32"]}`,
				`{destinationNamedPort: http}`)), want: wants{"tcp 80": "-web>api", "tcp 8080": "-web>copy", "udp 80": ""}},
	}}}
}

// notUnderstood are rules that fail closed: those that accept match nothing, and others deny everything.
func notUnderstood() []testCase {
	const said = `cluster network policy is invalid: its rules that are not understood fail closed.*policy=(deny|pass|accept) `
	c := testCase{name: "not_understood", says: []string{said}}
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
		c.steps = append(c.steps, step{about: v[0], do: do(clusterPolicy("deny", admin("1", webAlone, rule("Deny")+"]")),
			clusterPolicy("pass", baseline("1", monAlone, rule("Pass")+"]")),
			clusterPolicy("accept", admin("1", dbAlone, rule("Accept")+`, {action: Deny, to: [{namespaces: {}}]}]`))),
			want: everyProtocol("!web,mon>* -db>pods")})
	}
	c.steps = append(c.steps,
		step{about: "an unknown action", do: do(without("pass", "accept"), clusterPolicy("deny", admin("1", webAlone, egress("Allow", allPods)))),
			want: everyProtocol("!web>*")},
		step{about: "ingress", do: clusterPolicy("deny", admin("1", webAlone, `ingress: [{action: Deny, from: [{galaxies: {}}], protocols: [{udp: {}}]}]`)),
			want: everyProtocol("-*>web")},
		step{about: "from what only egress has", do: clusterPolicy("deny", admin("1", webAlone, `ingress: [{action: Pass, from: [{networks: [192.0.2.0/24]}]}]`)),
			want: everyProtocol("-*>web")},
		step{about: "those that v1 policies isolate do not meet Baseline's", do: do(clusterPolicy("deny", baseline("1", shopPods, egress("Pass", `{}`))),
			policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{}]}`)),
			want: everyProtocol("!db,api>*")},
		step{about: "rules before it stand", do: do(without("shop/p"), clusterPolicy("deny", admin("1", webAlone,
			`egress: [{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{galaxies: {}}]}]`))), want: everyProtocol("!web>* +web>pods")},
		step{about: "valid again", do: clusterPolicy("deny", admin("1", webAlone, egress("Deny", monAlone))), want: everyProtocol("-web>mon")})
	return []testCase{c}
}

// undecided writes policies whose tier or subject is unknown.
func (c *cluster) undecided(t *testing.T, w *harness) {
	for name, spec := range map[string]string{
		"an_unknown_tier":     `{tier: Platform, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"no_tier":             `{priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"an_unknown_subject":  `{tier: Admin, priority: 1, subject: {galaxies: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"two_subjects":        `{tier: Admin, priority: 1, subject: {namespaces: {}, pods: {podSelector: {}}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`,
		"an_unknown_operator": `{tier: Admin, priority: 1, subject: {namespaces: {matchExpressions: [{key: a, operator: Near}]}}, egress: [{action: Deny, to: [{}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, d := range w.daemons {
				d.log.expect("cluster network policy is invalid: it decides nothing until it is valid.*policy=odd ")
			}
			o := w.objects(do(base(), clusterPolicy("odd", spec), clusterPolicy("other", admin("1", webAlone, ingress("Deny", monAlone)))))
			w.apply(t, o)
			w.expect(t, everyProtocol("-mon>web"))
			for _, d := range w.daemons {
				d.awaitUnready(t, "odd")
				d.awaitMetric(t, "weavenpc_invalid_cluster_policies 1")
			}
			w.apply(t, w.objects(base()))
			for _, d := range w.daemons {
				d.awaitReady(t)
				d.awaitMetric(t, "weavenpc_invalid_cluster_policies 0")
			}
		})
	}
	c.awaitEvent(t, w, "odd", "Invalid", "decides nothing")
}

// awaitEvent waits for an Event of weave-npc on a ClusterNetworkPolicy.
func (c *cluster) awaitEvent(t *testing.T, w *harness, policy, reason, message string) {
	t.Helper()
	await.Within(t, timeout, func() bool {
		events, err := c.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		c.must(t, err)
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ClusterNetworkPolicy" && e.InvolvedObject.Name == policy && e.Type == "Warning" && e.Reason == reason &&
				strings.Contains(e.Message, message) && e.Source.Component == "weave-npc" {
				return true
			}
		}
		return false
	}, func() string { return "no Event on the policy\n" + w.state() })
}
