package explain_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// tables has a pod of each kind, and policies of many forms.
func tables(t *testing.T) harness {
	w := newHarness(t)
	w.SetPod(fixture.Pod("a/agent node1 172.31.0.1 app=agent HostNetwork"))
	w.SetPod(fixture.Pod("a/job node1 10.32.1.4 app=job Finished"))
	w.SetPod(fixture.Pod("a/new node1 app=new"))
	w.SetPod(fixture.Pod("a/stale node1 10.32.1.6 app=stale StaleAddrs"))
	w.SetPod(fixture.Pod("a/former node1 10.32.1.2 app=former Deleting"))
	w.SetPod(fixture.Pod("b/x node1 10.32.1.7 app=x"))
	w.policy("a/both", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [
		{from: [{podSelector: {}}, {namespaceSelector: {}, podSelector: {matchLabels: {app: x}}}, {namespaceSelector: {matchLabels: {team: b}}}, {}],
			ports: [{port: 80}, {protocol: UDP}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16, 10.2.0.0/16]}}]}], egress: [{}]}`)
	w.policy("a/broken", `{podSelector: {}, ingress: [{ports: [{port: 0}]}]}`)
	w.policy("b/empty", `{podSelector: {matchLabels: {app: none}}}`)
	return w
}

func TestPods(t *testing.T) {
	w := tables(t)
	table := func(namespace string) []string {
		var got []string
		for _, r := range explain.Pods(w.View(), namespace) {
			got = append(got, fmt.Sprintf("%s %v in %s out %s: %s", r.Pod, r.Addresses, r.Ingress, r.Egress, r.Note))
		}
		return got
	}
	want := []string{
		"a/agent [172.31.0.1] in [] out []: on the network of its node",
		"a/client [10.32.1.3] in [a/broken] out []: ",
		"a/former [10.32.1.2] in [a/broken] out []: 10.32.1.2 belongs to pod a/web",
		"a/job [10.32.1.4] in [] out []: finished",
		"a/new [] in [a/broken] out []: no address yet",
		"a/stale [10.32.1.6] in [a/broken] out []: 10.32.1.6 of pod a/stale was reported before the pod or its node was restarted: " +
			"the pod counts as waiting for its address",
		"a/web [10.32.1.2] in [a/both a/broken] out [a/both]: 10.32.1.2 of pod a/web, contradicted by pod a/former: " +
			"two pods of this node claim one address: nothing is allowed in a direction that either is isolated in",
	}
	if diff := cmp.Diff(want, table("a")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := table(""); len(got) != len(want)+1 || got[len(want)] != "b/x [10.32.1.7] in [] out []: " {
		t.Errorf("all namespaces: %q", got)
	}
	if got := explain.Pods(w.View(), "none"); got == nil || len(got) > 0 {
		t.Errorf("a namespace without pods is null in JSON: %v", got)
	}
}

// TestPodsWithLegacyNetpol shows that a namespace isolates its pods.
func TestPodsWithLegacyNetpol(t *testing.T) {
	w := newHarness(t)
	w.LegacyNetpol = true
	w.SetNamespace(npc.Namespace{Name: "a", DefaultDeny: true})
	w.policy("a/p", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	for _, r := range explain.Pods(w.View(), "") {
		if !slices.Equal(r.Ingress, []string{"namespace a"}) || r.Egress != nil {
			t.Errorf("%s is isolated by %v and %v", r.Pod, r.Ingress, r.Egress)
		}
	}
}

func TestPolicies(t *testing.T) {
	w := tables(t)
	table := func(namespace string) string {
		var b strings.Builder
		for _, r := range explain.Policies(w.View(), namespace) {
			fmt.Fprintf(&b, "%s (%s) %v %v %s\n", r.Policy, r.Selects, r.Types, r.Pods, r.Invalid)
			for _, text := range r.Ingress {
				fmt.Fprintf(&b, "  in: %s\n", text)
			}
			for _, text := range r.Egress {
				fmt.Fprintf(&b, "  out: %s\n", text)
			}
		}
		return b.String()
	}
	const ofA = `a/both (app=web) [Ingress Egress] [a/web] ` + `
  in: tcp/80, udp from pods in a, or pods with app=x in all namespaces, or pods in namespaces with team=b, or no pod
  in: everything from 10.0.0.0/8 except 10.1.0.0/16 10.2.0.0/16
  out: everything to anywhere
a/broken () [Ingress] [a/client a/former a/new a/stale a/web] spec.ingress[0]: ports[0]: 0 to 0 is no range within 1 to 65535
`
	if diff := cmp.Diff(ofA, table("a")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(ofA+"b/empty (app=none) [Ingress] [] \n", table("")); diff != "" {
		t.Errorf("all namespaces: -want +got:\n%s", diff)
	}
}

// TestWhatFits asks for the verdict on one item of a rule, as npc/analysis/internal/reachability does.
func TestWhatFits(t *testing.T) {
	w := newHarness(t)
	w.policy("a/p", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}, {ipBlock: {cidr: 10.32.1.0/30}}]}]}`)
	v := w.View()
	rule := v.Policies[0].Rules[0][0]
	for i, want := range []string{"+..", "++."} { // a/web, a/client, an address
		got := ""
		for _, of := range []struct{ pod, addr string }{{"a/web", "10.32.1.2"}, {"a/client", "10.32.1.3"}, {"", "198.51.100.7"}} {
			sign := "."
			if explain.PeerFits(v, rule.Peers[i], netip.MustParseAddr(of.addr), v.Pods[of.pod]) {
				sign = "+"
			}
			got += sign
		}
		if got != want {
			t.Errorf("peer %d: %s, want %s", i, got, want)
		}
	}
}
