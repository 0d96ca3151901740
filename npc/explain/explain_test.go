package explain_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/test/fixture"
)

type world struct {
	*testing.T
	*cluster.Cluster
}

func newWorld(t *testing.T) world {
	w := world{t, cluster.New()}
	w.SetNamespace(npc.Namespace{Name: "a", Labels: map[string]string{"kubernetes.io/metadata.name": "a"}})
	w.pod("a/web", "10.32.1.2", "app=web")
	w.pod("a/client", "10.32.1.3", "app=client")
	return w
}

func (w world) pod(key, addr, label string, change ...func(*npc.Pod)) {
	namespace, name, _ := strings.Cut(key, "/")
	k, v, _ := strings.Cut(label, "=")
	p := npc.Pod{Namespace: namespace, Name: name, Node: "node1", Labels: map[string]string{k: v},
		Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
	for _, f := range change {
		f(&p)
	}
	w.SetPod(p)
}

func (w world) policy(key, spec string) {
	w.Helper()
	w.SetPolicy(fixture.Policy(w, key, spec))
}

// verdict returns the verdict on a flow to TCP port 80.
func (w world) verdict(from, to string) explain.Verdict {
	w.Helper()
	return explain.Explain(w.View(), fixture.Flows(w, w.View(), from, to, "tcp/80")[0])
}

// expect compares the reasons of the ingress of a/web from a pod, or from an address.
func (w world) expect(from, want string) {
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
  policy a/p: isolates, and allows nothing: it is invalid: spec.ingress[0]: peer 0: ipBlock: cidr: "10.0.0.0/33" is no CIDR
`},
		{"unknown_kind_of_peer", `{podSelector: {}, ingress: [{from: [{}]}]}`, "a/client", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer is of a kind that is not known, which matches nobody
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
		{"the_namespace_and_the_pod", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}},
			podSelector: {matchLabels: {app: y}}}], ports: [{port: 80}]}]}`, "b/x", `a/web: denied: no rule allows it
  policy a/p: isolates
    rule 1: no: peer wants namespace with team=b, namespace b has no label team
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.SetNamespace(npc.Namespace{Name: "b", Labels: map[string]string{"kubernetes.io/metadata.name": "b"}})
			w.pod("b/x", "10.32.1.7", "app=x")
			w.pod("late/x", "10.32.1.8", "app=x")
			w.policy("a/p", c.spec)
			w.expect(c.from, c.want)
		})
	}
}

// TestS67_LegacyNetpol shows that an annotation isolates, and policies only allow.
func TestS67_LegacyNetpol(t *testing.T) {
	w := newWorld(t)
	w.LegacyNetpol = true
	w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	w.expect("198.51.100.7", "a/web: allowed: no policy isolates it\n")
	w.SetNamespace(npc.Namespace{Name: "a", DefaultDeny: true})
	if !w.verdict("a/client", "a/web").Allowed || w.verdict("198.51.100.7", "a/web").Allowed {
		t.Error("the policy does not allow its peer, or allows another")
	}
}

// TestS27_EachNodeHasItsOwnView shows that a node takes an address for its own pod's, and other nodes for the later one's.
func TestS27_EachNodeHasItsOwnView(t *testing.T) {
	w := newWorld(t)
	w.pod("a/old", "10.32.1.9", "app=old")
	w.pod("a/later", "10.32.1.9", "app=later", func(p *npc.Pod) { p.Node, p.Started = "node2", time.Unix(9, 0) })
	w.pod("a/far", "10.32.2.2", "app=web", func(p *npc.Pod) { p.Node = "node2" })
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
	w := newWorld(t)
	host := func(node, addr string) func(*npc.Pod) {
		return func(p *npc.Pod) { p.Node, p.HostAddrs = node, []netip.Addr{netip.MustParseAddr(addr)} }
	}
	w.pod("a/web", "10.32.1.2", "app=web", host("node1", "172.31.0.1"))
	w.pod("a/far", "10.32.2.2", "app=far", host("node2", "172.31.0.2"))
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
