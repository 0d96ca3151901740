package tiers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS94_TheKindComesChangesAndGoes installs the kind in a real API server while daemons run, writes a good and a bad
// policy, lets the kind be served in another version alone, and removes it.
func TestS94_TheKindComesChangesAndGoes(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := e2e.NewAPIServer(t, backend)
		c.AssignRanges(t, w)
		c.Write(t, w.Objects(e2e.Base()))
		w.StartAPIDaemons(t, c)
		w.Expect(t, e2e.EveryProtocol(""))

		c.Define(t, c.Definition(t, nil))
		c.WriteClusterPolicy(t, "good", e2e.Admin("0", e2e.WebAlone, e2e.Ingress("Deny", e2e.AllPods)))
		for _, d := range w.Daemons {
			await.Within(t, e2e.KindTimeout, func() bool { return d.Metric(t, "weavenpc_cluster_policies") == 1 },
				func() string { return "it is not counted\n" + w.State() })
			d.AwaitReady(t)
		}
		denied := e2e.EveryProtocol("-pods>web")
		w.Expect(t, denied)
		explainTiers(t, c, w)

		for _, d := range w.Daemons {
			d.Log.Expect(`cluster network policy is invalid.*policy=bad `)
		}
		c.WriteClusterPolicy(t, "bad", e2e.Baseline("1", e2e.DBAlone,
			e2e.Egress("Accept", `{domainNames: [example.com]}`)))
		for _, d := range w.Daemons {
			d.AwaitMetric(t, "weavenpc_invalid_cluster_policies 1")
			d.AwaitMetric(t, "weavenpc_cluster_policies 2")
		}
		w.Expect(t, denied)
		awaitEvent(t, c, w, "bad", "Invalid", "domainNames")
		c.Must(t, c.Tiers.Delete(t.Context(), "bad", metav1.DeleteOptions{}))
		for _, d := range w.Daemons {
			d.AwaitMetric(t, "weavenpc_invalid_cluster_policies 0")
			d.AwaitReady(t)
		}

		unknownVersion(t, c, w, denied)
		name := c.Definition(t, nil).GetName()
		c.Must(t, c.Definitions(t).Delete(t.Context(), name, metav1.DeleteOptions{}))
		for _, d := range w.Daemons {
			await.Within(t, e2e.KindTimeout, func() bool { return d.Metric(t, "weavenpc_cluster_policies") == 0 },
				func() string { return "it is still counted\n" + w.State() })
			d.AwaitReady(t)
		}
		w.Expect(t, e2e.EveryProtocol(""))
		w.AwaitBare(t)
	})
}

// explainTiers asks explain of a server with ClusterNetworkPolicies.
func explainTiers(t *testing.T, c *e2e.APIServer, w *e2e.Cluster) {
	t.Helper()
	out, stderr, _ := e2e.Execute(t, w.Node("node1"), nil, "explain", "--kubeconfig", c.Server.Kubeconfig(), "--from",
		"shop/db", "--to", "shop/web",
		"--port", "tcp/80")
	if !strings.Contains(out, "denied by Admin policy good/rule 1") || stderr != "" {
		t.Errorf("explain:\n%s%s", out, stderr)
	}
}

// serveKind serves the kind in the version that it is stored in, or in an unknown one.
func serveKind(t *testing.T, c *e2e.APIServer, known bool) {
	t.Helper()
	u, err := c.Definitions(t).Get(t.Context(), c.Definition(t, nil).GetName(), metav1.GetOptions{})
	c.Must(t, err)
	spec := u.Object["spec"].(map[string]any)
	version := spec["versions"].([]any)[0].(map[string]any)
	version["served"] = known
	next := map[string]any{"name": "v1alpha9", "served": !known, "storage": false, "schema": version["schema"]}
	spec["versions"] = []any{version, next}
	_, err = c.Definitions(t).Update(t.Context(), u, metav1.UpdateOptions{})
	c.Must(t, err)
	c.AwaitKind(t, known)
}

// unknownVersion has the kind served in an unknown version: what the kernel holds stays.
func unknownVersion(t *testing.T, c *e2e.APIServer, w *e2e.Cluster, denied e2e.Wants) {
	t.Helper()
	for _, d := range w.Daemons {
		d.Log.Expect("only in versions that are not known: v1alpha9")
		d.Log.Expect("watch is broken")
	}
	serveKind(t, c, false)
	for _, d := range w.Daemons {
		d.AwaitUnready(t, "only in versions that are not known: v1alpha9")
	}
	w.Expect(t, denied)
	for _, d := range w.Daemons {
		if n := strings.Count(d.Log.Since(d.Said), "only in versions that are not known"); n != 1 {
			t.Errorf("weave-npc on %s says it %d times\n%s", d.Node, n, d.Log)
		}
	}
	serveKind(t, c, true)
	for _, d := range w.Daemons {
		await.Within(t, e2e.KindTimeout, func() bool { return !strings.Contains(ready(d), "v1alpha9") },
			func() string { return ready(d) + d.Log.String() })
		d.AwaitReady(t)
	}
	w.Expect(t, denied)
}

// ready returns what /readyz says.
func ready(d *e2e.Daemon) string {
	_, text := d.Get("/readyz")
	return text
}

// TestS94_ARestartTakesNothingAwayThatCannotBeRead restarts daemons while the kind is served in an unknown version
// alone.
func TestS94_ARestartTakesNothingAwayThatCannotBeRead(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w, c := e2e.NewAPIServer(t, backend)
		c.AssignRanges(t, w)
		c.Define(t, c.Definition(t, nil))
		o := w.Objects(e2e.Do(e2e.Base(), e2e.ClusterPolicy("a", e2e.Admin("0", e2e.WebAlone,
			e2e.Ingress("Deny", e2e.AllPods))),
			e2e.ClusterPolicy("b", e2e.Baseline("0", e2e.MonAlone, e2e.Egress("Deny", e2e.AllPods)))))
		c.Write(t, o)
		w.StartAPIDaemons(t, c)
		denied := e2e.EveryProtocol("-pods>web -mon>pods")
		w.Expect(t, denied)
		const unknown = "only in versions that are not known: v1alpha9"
		for _, d := range w.Daemons {
			d.Log.Expect(unknown + "|watch is broken")
			d.Kill(t)
		}
		serveKind(t, c, false)
		for _, d := range w.Daemons {
			d.Start(t)
			d.AwaitUnready(t, unknown)
			d.AwaitLine(t, d.Said, "policies are enforced")
		}
		w.Expect(t, denied)
	})
}
