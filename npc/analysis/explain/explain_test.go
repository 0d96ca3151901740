package explain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

type harness struct {
	*testing.T
	*cluster.Cluster
}

func newHarness(t *testing.T) harness {
	w := harness{t, cluster.New()}
	w.SetNamespace(fixture.Namespace("a"))
	w.SetPod(fixture.Pod("a/web node1 10.32.1.2 app=web"))
	w.SetPod(fixture.Pod("a/client node1 10.32.1.3 app=client"))
	return w
}

func (w harness) policy(key, spec string) {
	w.Helper()
	w.SetPolicy(fixture.Policy(w, key, spec))
}

// verdict returns the verdict on a flow to TCP port 80.
func (w harness) verdict(from, to string) explain.Verdict {
	w.Helper()
	return explain.Explain(w.View(), fixture.Flows(w, w.View(), from, to, "tcp/80")[0])
}

// expect compares the reasons of the ingress of a/web from a pod, or from an address.
func (w harness) expect(from, want string) {
	w.Helper()
	_, got, _ := strings.Cut(explain.Text([]explain.Verdict{w.verdict(from, "a/web")}), "ingress to ")
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		w.Errorf("from %s: -want +got:\n%s", from, diff)
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		name, spec, from, want string
	}{
		{"invalid", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}]}`, "a/client", `a/web: denied: no rule allows it
  policy a/p: isolates, and allows nothing: it is invalid: spec.ingress[0]: from[0]: ipBlock: cidr: "10.0.0.0/33" is no CIDR
`},
		{"unknown_kind_of_peer", `{podSelector: {}, ingress: [{from: [{}]}]}`, "a/client", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer is of an unknown kind, which matches no pod
`},
		{"value_that_no_label_can_have", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: "no label;"}}}]}]}`, "a/client",
			`a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants a value that no label can have, a/client has app=client
`},
		{"namespace_without_an_object", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`, "late/x",
			`a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants a namespace's labels, namespace late has no object
`},
		{"excepted", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.32.1.0/24, except: [10.32.1.0/30]}}]}]}`, "a/client",
			`a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants addresses in 10.32.1.0/24, a/client is excepted by 10.32.1.0/30
`},
		{"not_a_pod", `{podSelector: {}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}`, "198.51.100.7",
			`a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants pods, 198.51.100.7 is none; peer wants addresses in 10.0.0.0/8, 198.51.100.7 is not there
`},
		{"allowed_by_one_rule_of_two", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]},
			{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}`, "a/client", `a/web: allowed: a rule allows it
  policy a/p: isolates
    rule 1: no: peer wants app=db, a/client has app=client
    rule 2: allows it
`},
		{"another_namespace", `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`, "b/x", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants namespace a, b/x has b
`},
		{"no_rule", `{podSelector: {}}`, "a/client", `a/web: denied: no rule allows it
  policy a/p: isolates, and has no rule
`},
		{"several_labels", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: db, tier: x}, matchExpressions: [
			{key: canary, operator: Exists}, {key: run, operator: DoesNotExist}]}}]}]}`, "a/client", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants app=db, a label canary and tier=x, a/client has app=client, no label canary and no label tier
`},
		{"label_that_must_not_be", `{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]}]}`,
			"a/client", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants no label app, a/client has app=client
`},
		{"value_that_no_label_can_have_without_labels", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: "no label;"}}}]}]}`, "a/bare",
			`a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants a value that no label can have, a/bare has no labels
`},
		{"block_and_a_pod_without_an_address", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`, "a/new",
			`a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants addresses in 10.0.0.0/8, a/new has none yet
`},
		{"ports", `{podSelector: {}, ingress: [{ports: [{port: 443}, {port: 8000, endPort: 8100}, {port: http}, {port: dns}, {protocol: UDP}]}]}`,
			"a/client", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: port wants tcp/443, asked for is tcp/80; port wants tcp/8000-8100, asked for is tcp/80; ` +
				`port wants tcp/http, which is 8080 there, asked for is tcp/80; ` +
				`port wants tcp/dns, the destination has no port of that name; port wants udp, asked for is tcp/80
`},
		{"the_namespace_and_the_pod", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}},
			podSelector: {matchLabels: {app: y}}}], ports: [{port: 80}]}]}`, "b/x", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants namespace with team=b, namespace b has no label team
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.SetNamespace(fixture.Namespace("b"))
			w.SetPod(fixture.Pod("b/x node1 10.32.1.7 app=x"))
			w.SetPod(fixture.Pod("late/x node1 10.32.1.8 app=x"))
			w.SetPod(fixture.Pod("a/bare node1 10.32.1.10"))
			w.SetPod(fixture.Pod("a/new node1"))
			w.SetPod(fixture.Pod("a/web node1 10.32.1.2 app=web http:8080"))
			w.policy("a/p", c.spec)
			w.expect(c.from, c.want)
		})
	}
}

// TestS67_LegacyNetpol shows that an annotation isolates, and policies only allow.
func TestS67_LegacyNetpol(t *testing.T) {
	w := newHarness(t)
	w.LegacyNetpol = true
	w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	w.expect("198.51.100.7", "a/web: allowed: no policy isolates it\n")
	w.SetNamespace(npc.Namespace{Name: "a", DefaultDeny: true})
	if !w.verdict("a/client", "a/web").Allowed || w.verdict("198.51.100.7", "a/web").Allowed {
		t.Error("the policy does not allow its peer, or allows another")
	}
}

// TestS27_EachNodeHasItsOwnView shows that a node takes an address for its own pod's, and other nodes for the later
// one's.
func TestS27_EachNodeHasItsOwnView(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("a/old node1 10.32.1.9 app=old"))
	w.later("a/later node2 10.32.1.9 app=later")
	w.SetPod(fixture.Pod("a/far node2 10.32.2.2 app=web"))
	w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: old}}}]}]}`)
	if !w.verdict("a/old", "a/web").Allowed {
		t.Error("a pod of the same node is not known by its address")
	}
	if w.verdict("a/old", "a/far").Allowed {
		t.Error("another node takes the address for that of the pod that began first")
	}
}

// TestS50_OwnNode shows that another node's address is one from outside.
func TestS50_OwnNode(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("a/web node1@172.31.0.1 10.32.1.2 app=web"))
	w.SetPod(fixture.Pod("a/far node2@172.31.0.2 10.32.2.2 app=far"))
	w.policy("a/deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	for end, want := range map[string]bool{"172.31.0.1": true, "172.31.0.2": false} {
		if got := w.verdict(end, "a/web").Allowed; got != want {
			t.Errorf("from %s: %t", end, got)
		}
		if got := w.verdict("a/web", end).Allowed; got != want {
			t.Errorf("to %s: %t", end, got)
		}
	}
}

// TestWhereNoPolicyDecides shows the flows about which policies are not asked.
func TestWhereNoPolicyDecides(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("a/two node1@172.31.0.1 10.32.1.5 fd32:1::5 app=two"))
	w.SetPod(fixture.Pod("a/far node2 10.32.2.2 app=far"))
	w.policy("a/deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	for _, c := range []struct{ name, from, to, node, want string }{
		{"itself", "a/web", "a/web", "", "egress from a/web: allowed: a pod reaches itself; ingress to a/web: allowed: a pod reaches itself"},
		{"its node", "a/two", "172.31.0.1", "", "egress from a/two: allowed: a pod and its own node always reach each other; " +
			"ingress to 172.31.0.1: allowed: it is no pod, so that no policy isolates it"},
		{"multicast", "a/web", "224.0.0.251", "", "egress from a/web: allowed: multicast passes, unless weave-npc runs with --allow-mcast=false; " +
			"ingress to 224.0.0.251: allowed: it is no pod, so that no policy isolates it"},
		{"one node's verdict", "a/web", "a/far", "node1", "egress from a/web: denied: no rule allows it; policy a/deny: isolates, and has no rule; " +
			"ingress to a/far: allowed: another node enforces its policies"},
	} {
		f := fixture.Flows(t, w.View(), c.from, c.to, "tcp/80")[0]
		f.Node = c.node
		head, got, _ := strings.Cut(explain.Explain(w.View(), f).String(), "\n")
		if got = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(got), "\n  ", "\n"), "\n", "; "); got != c.want {
			t.Errorf("%s: %s\n%s\nwant %s", c.name, head, got, c.want)
		}
	}
	both := fixture.Flows(t, w.View(), "a/two", "a/two", "tcp/80")
	if got := explain.Text([]explain.Verdict{explain.Explain(w.View(), both[0]), explain.Explain(w.View(), both[1])}); strings.Count(got, "->") != 1 ||
		strings.Contains(got, "10.32.1.5") {
		t.Errorf("the same reasons in both families are there twice, or with addresses:\n%s", got)
	}
}

// TestConflictsAsText shows what an operator reads where a pod's claim to its address is contradicted.
func TestConflictsAsText(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(harness)
		want   string
	}{
		{"stale", func(w harness) { w.SetPod(fixture.Pod("a/web node1 10.32.1.2 app=web StaleAddrs")) },
			`a/web: denied: it is isolated and its address is not known, so that nothing is allowed, unless weave-npc runs with --fail-closed=never
  conflict: 10.32.1.2 of pod a/web was reported before the pod or its node was restarted: the pod counts as waiting for its address
`},
		{"conflicting", func(w harness) {
			w.later("a/web node1 10.32.1.2 app=web")
			w.SetPod(fixture.Pod("a/rival node1 10.32.1.2 app=web"))
		},
			`a/web: denied: an isolated pod of its node claims the same address, so that nothing is allowed
  conflict: 10.32.1.2 of pod a/web, contradicted by pod a/rival: ` +
				`two pods of this node claim one address: nothing is allowed in a direction that either is isolated in
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			c.change(w)
			w.policy("a/p", `{podSelector: {matchLabels: {app: web}}}`)
			w.expect("a/client", c.want)
		})
	}
}

// TestNamedPortsOfTheDestination shows that egress looks a port's name up on the other end.
func TestNamedPortsOfTheDestination(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("a/web node1 10.32.1.2 app=web http:8080"))
	w.policy("a/p", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`)
	for _, c := range []struct {
		to, port string
		want     bool
	}{{"a/web", "tcp/8080", true}, {"a/web", "tcp/80", false}, {"a/web", "udp/8080", false}, {"198.51.100.7", "tcp/8080", false}} {
		if v := explain.Explain(w.View(), fixture.Flows(t, w.View(), "a/client", c.to, c.port)[0]); v.Allowed != c.want {
			t.Errorf("to %s of %s:\n%s", c.port, c.to, v)
		}
	}
}

// TestForwarded shows which flows a node forwards from or to a pod of its own.
func TestForwarded(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("a/two node1@172.31.0.1 10.32.1.5 app=two"))
	w.SetPod(fixture.Pod("a/new node1 app=new"))
	for _, c := range []struct {
		from, to, node string
		want           bool
	}{
		{"a/web", "a/client", "", true}, {"a/web", "198.51.100.7", "", true}, {"a/web", "a/client", "node1", true},
		{"a/web", "a/web", "", false}, {"a/two", "172.31.0.1", "", false}, {"a/web", "a/client", "node2", false},
		{"198.51.100.7", "198.51.100.8", "", false}, {"a/web", "a/new", "", false},
	} {
		f := fixture.Flows(t, w.View(), c.from, c.to, "tcp/80")[0]
		f.Node = c.node
		if got := explain.Explain(w.View(), f).Forwarded(); got != c.want {
			t.Errorf("%s -> %s is forwarded on %q: %t", c.from, c.to, c.node, got)
		}
	}
}

// TestVerdictAsJSON shows the fields that scripts read.
func TestVerdictAsJSON(t *testing.T) {
	w := newHarness(t)
	w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}, {podSelector: {}}],
		ports: [{port: 443}, {port: 8080}]}]}`)
	f := fixture.Flows(w, w.View(), "a/client", "a/web", "tcp/8080")[0]
	got, err := json.MarshalIndent(explain.Explain(w.View(), f).Ingress, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "pod": "a/web",
  "allowed": true,
  "because": "a rule allows it",
  "policies": [
    {
      "policy": "a/p",
      "allows": true,
      "rules": [
        {
          "rule": 1,
          "allows": true,
          "peers": [
            {
              "fits": false,
              "text": "peer wants app=db, a/client has app=client",
              "miss": "pod labels",
              "wants": "app=db",
              "has": "app=client",
              "of": "a/client"
            },
            {
              "fits": true,
              "text": "peer fits a/client",
              "of": "a/client"
            }
          ],
          "ports": [
            {
              "text": "port wants tcp/443, asked for is tcp/8080",
              "fits": false,
              "wants": "tcp/443",
              "asked": "tcp/8080"
            },
            {
              "text": "port fits tcp/8080",
              "fits": true,
              "wants": "tcp/8080",
              "asked": "tcp/8080"
            }
          ]
        }
      ]
    }
  ]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
