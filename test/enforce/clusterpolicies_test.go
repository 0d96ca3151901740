package enforce

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// kindTimeout is how long a daemon may take to find a kind that was installed while it ran: it asks every 30 to 45 s.
const kindTimeout = 90 * time.Second

// TestS94_TheKindComesChangesAndGoes installs the kind in a real API server while daemons run, writes a good and a bad
// policy, lets the kind be served in another version alone, and removes it.
func TestS94_TheKindComesChangesAndGoes(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := newCluster(t, backend)
		c.assignRanges(t, w)
		c.write(t, w.objects(base()))
		w.startAPIDaemons(t, c)
		w.expect(t, everyProtocol(""))

		c.define(t, c.definition(t, nil))
		c.writeClusterPolicy(t, "good", admin("0", webAlone, ingress("Deny", allPods)))
		for _, d := range w.daemons {
			await.Within(t, kindTimeout, func() bool { return d.metric(t, "weavenpc_cluster_policies") == 1 },
				func() string { return "it is not counted\n" + w.state() })
			d.awaitReady(t)
		}
		denied := everyProtocol("-pods>web")
		w.expect(t, denied)
		c.explainTiers(t, w)

		for _, d := range w.daemons {
			d.log.expect(`cluster network policy is invalid.*policy=bad `)
		}
		c.writeClusterPolicy(t, "bad", admin("1", dbAlone, egress("Accept", `{domainNames: [example.com]}`)))
		for _, d := range w.daemons {
			d.awaitMetric(t, "weavenpc_invalid_cluster_policies 1")
			d.awaitMetric(t, "weavenpc_cluster_policies 2")
		}
		w.expect(t, denied)
		c.awaitEvent(t, w, "bad", "Invalid", "domainNames")
		c.must(t, c.tiers.Delete(t.Context(), "bad", metav1.DeleteOptions{}))
		for _, d := range w.daemons {
			d.awaitMetric(t, "weavenpc_invalid_cluster_policies 0")
			d.awaitReady(t)
		}

		c.unknownVersion(t, w, denied)
		name := c.definition(t, nil).GetName()
		c.must(t, c.definitions(t).Delete(t.Context(), name, metav1.DeleteOptions{}))
		for _, d := range w.daemons {
			await.Within(t, kindTimeout, func() bool { return d.metric(t, "weavenpc_cluster_policies") == 0 },
				func() string { return "it is still counted\n" + w.state() })
			d.awaitReady(t)
		}
		w.expect(t, everyProtocol(""))
		w.awaitBare(t)
	})
}

// explainTiers asks explain of a server with ClusterNetworkPolicies.
func (c *cluster) explainTiers(t *testing.T, w *harness) {
	t.Helper()
	out, stderr, _ := execute(t, w.Node("node1"), nil, "explain", "--kubeconfig", c.server.Kubeconfig(), "--from", "shop/db", "--to", "shop/web",
		"--port", "tcp/80")
	if !strings.Contains(out, "denied by Admin policy good/rule 1") || stderr != "" {
		t.Errorf("explain:\n%s%s", out, stderr)
	}
}

// serveKind serves the kind in the version that it is stored in, or in an unknown one.
func (c *cluster) serveKind(t *testing.T, known bool) {
	t.Helper()
	u, err := c.definitions(t).Get(t.Context(), c.definition(t, nil).GetName(), metav1.GetOptions{})
	c.must(t, err)
	spec := u.Object["spec"].(map[string]any)
	version := spec["versions"].([]any)[0].(map[string]any)
	version["served"] = known
	next := map[string]any{"name": "v1alpha9", "served": !known, "storage": false, "schema": version["schema"]}
	spec["versions"] = []any{version, next}
	_, err = c.definitions(t).Update(t.Context(), u, metav1.UpdateOptions{})
	c.must(t, err)
	c.awaitKind(t, known)
}

// unknownVersion has the kind served in an unknown version: what the kernel holds stays.
func (c *cluster) unknownVersion(t *testing.T, w *harness, denied wants) {
	t.Helper()
	for _, d := range w.daemons {
		d.log.expect("only in versions that are not known: v1alpha9")
		d.log.expect("watch is broken")
	}
	c.serveKind(t, false)
	for _, d := range w.daemons {
		d.awaitUnready(t, "only in versions that are not known: v1alpha9")
	}
	w.expect(t, denied)
	for _, d := range w.daemons {
		if n := strings.Count(d.log.since(d.said), "only in versions that are not known"); n != 1 {
			t.Errorf("weave-npc on %s says it %d times\n%s", d.node, n, d.log)
		}
	}
	c.serveKind(t, true)
	for _, d := range w.daemons {
		await.Within(t, kindTimeout, func() bool { return !strings.Contains(d.ready(), "v1alpha9") }, func() string { return d.ready() + d.log.String() })
		d.awaitReady(t)
	}
	w.expect(t, denied)
}

// ready returns what /readyz says.
func (d *daemon) ready() string {
	_, text := d.get("/readyz")
	return text
}

// TestS94_ARestartTakesNothingAwayThatCannotBeRead restarts daemons while the kind is served in an unknown version
// alone.
func TestS94_ARestartTakesNothingAwayThatCannotBeRead(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := newCluster(t, backend)
		c.assignRanges(t, w)
		c.define(t, c.definition(t, nil))
		o := w.objects(do(base(), clusterPolicy("a", admin("0", webAlone, ingress("Deny", allPods))),
			clusterPolicy("b", baseline("0", monAlone, egress("Deny", allPods)))))
		c.write(t, o)
		w.startAPIDaemons(t, c)
		denied := everyProtocol("-pods>web -mon>pods")
		w.expect(t, denied)
		const unknown = "only in versions that are not known: v1alpha9"
		for _, d := range w.daemons {
			d.log.expect(unknown + "|watch is broken")
			d.kill(t)
		}
		c.serveKind(t, false)
		for _, d := range w.daemons {
			d.start(t)
			d.awaitUnready(t, unknown)
			d.awaitLine(t, d.said, "policies are enforced")
		}
		w.expect(t, denied)
	})
}
