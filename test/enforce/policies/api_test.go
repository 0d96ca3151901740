package policies

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestAPIServer has everything written to a real API server, as controllers, kubelets and users do.
func TestAPIServer(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := e2e.NewAPIServer(t, backend)
		d := e2e.StartDaemon(t, w.Node("node1"), "--iptables-backend", string(backend), "--kubeconfig",
			c.Server.Kubeconfig(), "--node-name", "node9")
		d.Log.Expect("this node is not known")
		d.AwaitUnready(t, `no Node and no pod of the cluster is called "node9".*--node-name`)
		d.Kill(t)
		c.AssignRanges(t, w)
		c.Write(t, w.Objects(e2e.Base()))
		w.StartAPIDaemons(t, c)
		if backend == lab.NFT { // objects come the same way for both
			t.Run("Policies", func(t *testing.T) {
				w.RunCases(t, cases(), `^S(13|14|22|23|26|27|30|31|59|60|66)_`)
			})
			t.Run("RandomStates", func(t *testing.T) { randomStates(t, w, 8) })
			t.Run("Explain", func(t *testing.T) { explain(t, c, w) })
		}
		t.Run("S28_a_terminating_pod_is_enforced_and_is_a_peer", func(t *testing.T) { terminating(t, c, w) })
		t.Run("S61_an_invalid_policy_isolates_and_is_reported", func(t *testing.T) { invalid(t, c, w) })
		t.Run("S64_the_API_server_is_away", func(t *testing.T) { away(t, c, w) })
	})
}

// randomStates compares what arrives with the reference model's verdicts, as TestRandomStates does.
func randomStates(t *testing.T, w *e2e.Cluster, usual uint64) {
	g, seed, steps := random.New(t, w, usual)
	for i := range steps {
		g.Begin()
		g.Changes(t)
		w.Apply(t, g.Objects)
		if random.Compare(t, w, g.Objects); t.Failed() {
			t.Fatalf("seed %d, step %d:\n%s", seed, i, strings.Join(g.Did, "\n"))
		}
	}
}

// explain reads the objects from the API server, found by a flag or as kubectl finds it.
func explain(t *testing.T, c *e2e.APIServer, w *e2e.Cluster) {
	w.Apply(t, w.Objects(e2e.Rich()))
	for _, a := range []struct {
		name   string
		args   []string
		env    []string
		status int
	}{
		{"allowed", []string{"--kubeconfig", c.Server.Kubeconfig(), "--from", "shop/db", "--to", "shop/web"}, nil, 0},
		{"denied", []string{"--kubeconfig", c.Server.Kubeconfig(), "--from", "shop/api", "--to", "shop/web"}, nil, 1},
		{"by_variable", []string{"--from", "shop/db", "--to", "shop/web"},
			[]string{"KUBECONFIG=" + c.Server.Kubeconfig()}, 0},
		{"kernel", []string{"--kubeconfig", c.Server.Kubeconfig(), "--from", "shop/db", "--to", "shop/web", "--kernel",
			"--node-name", "node1",
			"--iptables-backend", "nft"}, nil, 0},
		{"no_such_context", []string{"--kubeconfig", c.Server.Kubeconfig(), "--context", "none", "--from", "shop/db",
			"--to", "shop/web"}, nil, 2},
	} {
		out, stderr, status := e2e.Execute(t, w.Node("node1"), a.env, append([]string{"explain", "--port", "tcp/80"},
			a.args...)...)
		if status != a.status || status < 2 && !strings.Contains(out, "policy shop/p: isolates") ||
			strings.Contains(out, "DIFFERS") {
			t.Errorf("%s: status %d\n%s%s", a.name, status, out, stderr)
		}
	}
}

func terminating(t *testing.T, c *e2e.APIServer, w *e2e.Cluster) {
	o := w.Objects(e2e.Rich())
	w.Apply(t, o)
	w.Expect(t, e2e.RichWants())
	for _, name := range []string{"web", "db"} {
		// There is no kubelet that would end it.
		c.Must(t, c.Client.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	p, err := c.Client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
	c.Must(t, err)
	if p.DeletionTimestamp == nil {
		t.Error("the pod is not terminating")
	}
	w.Apply(t, o)
	w.Expect(t, e2e.RichWants())
	e2e.Pod("shop/db", e2e.Phase(corev1.PodSucceeded))(w, o)
	w.Apply(t, o)
	w.Expect(t, e2e.Wants{"udp 53": "-*>web +out>web -web>* -*>ops +web,copy>ops +web>ops"})
}

func invalid(t *testing.T, c *e2e.APIServer, w *e2e.Cluster) {
	for _, d := range w.Daemons {
		d.Log.Expect("policy is invalid.*shop/broken")
	}
	o := w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/q", `
podSelector: {matchLabels: {app: db}}
ingress: [{from: [{podSelector: {}}]}]`)))
	w.Apply(t, o)
	// What older API servers have stored is still there, though today's would refuse it.
	c.Store(t, "networkpolicies/shop/broken", `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
"metadata": {"name": "broken", "namespace": "shop", "uid": "5f2c7a3e-0000-4000-8000-000000000061",
"creationTimestamp": "2020-01-01T00:00:00Z"},
"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [
{"from": [{"podSelector": {}}]},
{"from": [{"ipBlock": {"cidr": "::ffff:192.0.2.0/120"}}]}]}}`)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web,db +shop>db"})
	var seen string
	await.Within(t, e2e.Timeout, func() bool {
		events, err := c.Client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		c.Must(t, err)
		seen = ""
		for _, e := range events.Items {
			seen += fmt.Sprintf("%s %s %s/%s: %s %s\n", e.Source.Component, e.InvolvedObject.Kind,
				e.InvolvedObject.Namespace,
				e.InvolvedObject.Name, e.Type, e.Message)
			if e.InvolvedObject.Kind == "NetworkPolicy" && e.InvolvedObject.Name == "broken" &&
				e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "spec.ingress[1]") &&
				e.Source.Component == "weave-npc" {
				return true
			}
		}
		return false
	}, func() string { return "no Event on the policy that says what is wrong:\n" + seen + w.State() })
	const repaired = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`
	c.Have.Policies["shop/broken"] = "stored"
	e2e.Policy("shop/broken", repaired)(w, o)
	w.Apply(t, o)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web,db +shop>web,db"})
}

func away(t *testing.T, c *e2e.APIServer, w *e2e.Cluster) {
	o := w.Objects(e2e.Rich())
	w.Apply(t, o)
	w.Expect(t, e2e.RichWants())
	for _, d := range w.Daemons {
		d.Log.Expect("watch is broken|no range of this node's pods is known")
		d.Log.Expect("API server does not answer|fail-closed filter closed for long|this node is not known, trying again")
	}
	c.Must(t, c.Server.StopAPI())
	w.Expect(t, e2e.RichWants())
	// An address of the node's range that belongs to no known pod may be that of an isolated one.
	p := w.AddPod(t, "node1", "late", lab.PodConfig{})
	unknown := e2e.Wants{"tcp 80": e2e.RichWants()["tcp 80"] + " -*>late -late>*"}
	w.Expect(t, unknown)
	restarted := w.Daemons[0]
	restarted.Kill(t)
	said := restarted.Log.Len()
	restarted.Start(t)
	restarted.AwaitLine(t, said, "watch is broken|does not answer")
	w.Expect(t, unknown)

	c.Must(t, c.Server.StartAPI(t.Context()))
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
	e2e.Pod("shop/late", e2e.Labelled("app=db"))(w, o)
	e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]`)(w, o)
	w.Apply(t, o)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web +db,late>web -*>ops +web,copy>ops"})
	e2e.Pod("shop/late", e2e.Phase(corev1.PodSucceeded))(w, o)
	w.Apply(t, o)
	w.ClosePod(t, p)
}

// TestS64_WhatWasMissedIsMadeUp writes objects while no watch works, on nodes that learn their ranges late.
func TestS64_WhatWasMissedIsMadeUp(t *testing.T) {
	t.Parallel()
	w, c := e2e.NewAPIServer(t, lab.Legacy)
	c.Write(t, w.Objects(e2e.Rich()))
	w.StartAPIDaemons(t, c)
	w.Expect(t, e2e.RichWants())
	c.AssignRanges(t, w)
	for _, n := range w.Nodes() {
		for _, r := range n.PodRanges() {
			await.Within(t, e2e.Timeout, func() bool { return e2e.Holds(w.ListSets(t, n), ipset.Net(r)) },
				func() string { return n.Name() + " does not learn its range\n" + w.State() })
		}
	}
	w.Expect(t, e2e.RichWants())
	for _, d := range w.Daemons {
		d.Log.Expect("watch is broken|no range of this node's pods is known")
	}
	// The nodes lose their route to the API server, which gets no packet of that.
	for _, n := range w.Nodes() {
		e2e.Run(t, n.Host, "ip", "route", "add", "blackhole", "192.0.2.20/32")
	}
	o := w.Objects(e2e.Do(e2e.Base(), e2e.Pod("shop/db", e2e.UID("second"), e2e.Labelled("app=other")),
		e2e.Policy("ops/q", `
podSelector: {}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}}]}]`),
		e2e.Namespace("shop", "team=c"), e2e.Namespace("new", "team=a"), e2e.Pod("new/peer", e2e.At("out"))))
	c.Write(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	_, err := c.Client.CoreV1().Pods("shop").Get(ctx, "db", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	for _, n := range w.Nodes() {
		e2e.Run(t, n.Host, "ip", "route", "del", "blackhole", "192.0.2.20/32")
	}
	w.Apply(t, o)
	w.Expect(t, e2e.Wants{"tcp 80": "-ops>* +ops>out"})
}
