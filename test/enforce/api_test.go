package enforce

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestAPIServer has everything written to a real API server, as controllers, kubelets and users do.
func TestAPIServer(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := newCluster(t, backend)
		d := startDaemon(t, w.Node("node1"), "--iptables-backend", string(backend), "--kubeconfig", c.server.Kubeconfig(), "--node-name", "node9")
		d.log.expect("this node is not known")
		d.awaitUnready(t, `no Node and no pod of the cluster is called "node9".*--node-name`)
		d.kill(t)
		c.assignRanges(t, w)
		c.write(t, w.objects(base()))
		w.startAPIDaemons(t, c)
		if backend == lab.NFT { // objects come the same way for both
			t.Run("Policies", func(t *testing.T) {
				w.runCases(t, `^S(13|14|22|23|24|26|27|30|31|46|59|60|66)_`)
			})
			t.Run("RandomStates", func(t *testing.T) { w.randomStates(t, 8) })
			t.Run("Explain", func(t *testing.T) { c.explain(t, w) })
		}
		t.Run("S28_a_terminating_pod_is_enforced_and_is_a_peer", func(t *testing.T) { c.terminating(t, w) })
		t.Run("S61_an_invalid_policy_isolates_and_is_reported", func(t *testing.T) { c.invalid(t, w) })
		t.Run("S64_the_API_server_is_away", func(t *testing.T) { c.away(t, w) })
	})
}

// randomStates compares what arrives with the reference model's verdicts, as TestRandomStates does.
func (w *harness) randomStates(t *testing.T, usual uint64) {
	g, seed, steps := newGenerator(t, w, usual)
	for i := range steps {
		g.begin()
		g.changes(t)
		w.apply(t, g.objects)
		if w.compare(t, g.objects); t.Failed() {
			t.Fatalf("seed %d, step %d:\n%s", seed, i, strings.Join(g.did, "\n"))
		}
	}
}

// explain reads the objects from the API server, found by a flag or as kubectl finds it.
func (c *cluster) explain(t *testing.T, w *harness) {
	w.apply(t, w.objects(rich()))
	for _, a := range []struct {
		name   string
		args   []string
		env    []string
		status int
	}{
		{"allowed", []string{"--kubeconfig", c.server.Kubeconfig(), "--from", "shop/db", "--to", "shop/web"}, nil, 0},
		{"denied", []string{"--kubeconfig", c.server.Kubeconfig(), "--from", "shop/api", "--to", "shop/web"}, nil, 1},
		{"by_variable", []string{"--from", "shop/db", "--to", "shop/web"}, []string{"KUBECONFIG=" + c.server.Kubeconfig()}, 0},
		{"kernel", []string{"--kubeconfig", c.server.Kubeconfig(), "--from", "shop/db", "--to", "shop/web", "--kernel", "--node-name", "node1",
			"--iptables-backend", "nft"}, nil, 0},
		{"no_such_context", []string{"--kubeconfig", c.server.Kubeconfig(), "--context", "none", "--from", "shop/db", "--to", "shop/web"}, nil, 2},
	} {
		out, stderr, status := execute(t, w.Node("node1"), a.env, append([]string{"explain", "--port", "tcp/80"}, a.args...)...)
		if status != a.status || status < 2 && !strings.Contains(out, "policy shop/p: isolates") || strings.Contains(out, "DIFFERS") {
			t.Errorf("%s: status %d\n%s%s", a.name, status, out, stderr)
		}
	}
}

func (c *cluster) terminating(t *testing.T, w *harness) {
	o := w.objects(rich())
	w.apply(t, o)
	w.expect(t, richWants())
	for _, name := range []string{"web", "db"} {
		// There is no kubelet that would end it.
		c.must(t, c.client.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	p, err := c.client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
	c.must(t, err)
	if p.DeletionTimestamp == nil {
		t.Error("the pod is not terminating")
	}
	w.apply(t, o)
	w.expect(t, richWants())
	pod("shop/db", phase(corev1.PodSucceeded))(w, o)
	w.apply(t, o)
	w.expect(t, wants{"udp 53": "-*>web +out>web -web>* -*>ops +web,copy>ops +web>ops"})
}

func (c *cluster) invalid(t *testing.T, w *harness) {
	for _, d := range w.daemons {
		d.log.expect("policy is invalid.*shop/broken")
	}
	o := w.objects(do(base(), policy("shop/q", `
podSelector: {matchLabels: {app: db}}
ingress: [{from: [{podSelector: {}}]}]`)))
	w.apply(t, o)
	// What older API servers have stored is still there, though today's would refuse it.
	c.store(t, "networkpolicies/shop/broken", `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
"metadata": {"name": "broken", "namespace": "shop", "uid": "5f2c7a3e-0000-4000-8000-000000000061",
"creationTimestamp": "2020-01-01T00:00:00Z"},
"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [
{"from": [{"podSelector": {}}]},
{"from": [{"ipBlock": {"cidr": "::ffff:192.0.2.0/120"}}]}]}}`)
	w.expect(t, wants{"tcp 80": "-*>web,db +shop>db"})
	var seen string
	await.Within(t, timeout, func() bool {
		events, err := c.client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		c.must(t, err)
		seen = ""
		for _, e := range events.Items {
			seen += fmt.Sprintf("%s %s %s/%s: %s %s\n", e.Source.Component, e.InvolvedObject.Kind, e.InvolvedObject.Namespace,
				e.InvolvedObject.Name, e.Type, e.Message)
			if e.InvolvedObject.Kind == "NetworkPolicy" && e.InvolvedObject.Name == "broken" &&
				e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "spec.ingress[1]") &&
				e.Source.Component == "weave-npc" {
				return true
			}
		}
		return false
	}, func() string { return "no Event on the policy that says what is wrong:\n" + seen + w.state() })
	const repaired = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`
	c.have.policies["shop/broken"] = "stored"
	policy("shop/broken", repaired)(w, o)
	w.apply(t, o)
	w.expect(t, wants{"tcp 80": "-*>web,db +shop>web,db"})
}

func (c *cluster) away(t *testing.T, w *harness) {
	o := w.objects(rich())
	w.apply(t, o)
	w.expect(t, richWants())
	for _, d := range w.daemons {
		d.log.expect("watch is broken|no range of this node's pods is known")
		d.log.expect("API server does not answer|fail-closed filter closed for long|this node is not known, trying again")
	}
	c.must(t, c.server.StopAPI())
	w.expect(t, richWants())
	// An address of the node's range that belongs to no known pod may be that of an isolated one.
	p := w.addPod(t, "node1", "late", lab.PodConfig{})
	unknown := wants{"tcp 80": richWants()["tcp 80"] + " -*>late -late>*"}
	w.expect(t, unknown)
	restarted := w.daemons[0]
	restarted.kill(t)
	said := restarted.log.len()
	restarted.start(t)
	restarted.awaitLine(t, said, "watch is broken|does not answer")
	w.expect(t, unknown)

	c.must(t, c.server.StartAPI(t.Context()))
	for _, d := range w.daemons {
		d.awaitReady(t)
	}
	pod("shop/late", labelled("app=db"))(w, o)
	policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]`)(w, o)
	w.apply(t, o)
	w.expect(t, wants{"tcp 80": "-*>web +db,late>web -*>ops +web,copy>ops"})
	pod("shop/late", phase(corev1.PodSucceeded))(w, o)
	w.apply(t, o)
	w.closePod(t, p)
}

// TestS64_WhatWasMissedIsMadeUp writes objects while no watch works, on nodes that learn their ranges late.
func TestS64_WhatWasMissedIsMadeUp(t *testing.T) {
	t.Parallel()
	w, c := newCluster(t, lab.Legacy)
	c.write(t, w.objects(rich()))
	w.startAPIDaemons(t, c)
	w.expect(t, richWants())
	c.assignRanges(t, w)
	for _, n := range w.Nodes() {
		for _, r := range n.PodRanges() {
			await.Within(t, timeout, func() bool { return holds(w.listSets(t, n), ipset.Net(r)) },
				func() string { return n.Name() + " does not learn its range\n" + w.state() })
		}
	}
	w.expect(t, richWants())
	for _, d := range w.daemons {
		d.log.expect("watch is broken|no range of this node's pods is known")
	}
	// The nodes lose their route to the API server, which gets no packet of that.
	for _, n := range w.Nodes() {
		run(t, n.Host, "ip", "route", "add", "blackhole", "192.0.2.20/32")
	}
	o := w.objects(do(base(), pod("shop/db", uid("second"), labelled("app=other")), policy("ops/q", `
podSelector: {}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}}]}]`),
		namespace("shop", "team=c"), namespace("new", "team=a"), pod("new/peer", at("out"))))
	c.write(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.client.CoreV1().Pods("shop").Get(ctx, "db", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	for _, n := range w.Nodes() {
		run(t, n.Host, "ip", "route", "del", "blackhole", "192.0.2.20/32")
	}
	w.apply(t, o)
	w.expect(t, wants{"tcp 80": "-ops>* +ops>out"})
}
