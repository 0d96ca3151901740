package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// stagedPolicies are a default deny with what db accepts, in the group true, and a cluster network policy in the group
// fence.
const stagedPolicies = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny, namespace: shop, annotations: {weave-npc/staged: "true"}}
spec: {podSelector: {}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: open, namespace: shop, annotations: {weave-npc/staged: "true", weave-npc/replaces: db}}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: fence, annotations: {weave-npc/staged: fence}}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: shop}}}
  ingress:
  - {name: no-ops, action: Deny, from: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: ops}}}]}
`

// inKernel is a metric of a daemon whose kernel has everything.
const inKernel = "\nweavenpc_waiting_seconds 0\n"

// stage has the daemons of a cluster read some policies, and waits until as many are staged and the kernels have the
// others.
func stage(t *testing.T, w *e2e.Cluster, dir, text string, number int) {
	t.Helper()
	e2e.WriteFile(t, filepath.Join(dir, "staged.yaml"), text)
	for _, d := range w.Daemons {
		want := fmt.Sprintf("\nweavenpc_staged_policies %d\n", number)
		await.Within(t, e2e.Timeout, func() bool {
			_, metrics := d.Get("/metrics")
			return strings.Contains(metrics, want) && strings.Contains(metrics, inKernel)
		}, func() string { return d.Node.Name() + " has not" + want + d.Log.String() })
	}
}

// stagedFlows returns what the groups of staged policies would do with the connections that a node has recorded.
func stagedFlows(t *testing.T, d *e2e.Daemon, args ...string) (out []string) {
	t.Helper()
	for _, r := range flowsOf(t, d, append([]string{"--staged-group"}, args...)...) {
		for _, s := range r.Staged {
			line := fmt.Sprintf("%s to %s %s: %d %s in %s by %s", r.From.Workload, r.To.Workload, r.Port, s.Count,
				s.Verdict, s.Group, s.Policy)
			if s.By != nil {
				line += fmt.Sprintf(" (%s)", s.By)
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// TestS100_StagedPoliciesChangeNoPacket, and what they would change is recorded and logged for just these connections.
func TestS100_StagedPoliciesChangeNoPacket(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startRecording(t, backend, recorded(), "--staged", "all")
		dir := flag(w.Daemons[0], "manifests")
		stage(t, w, dir, stagedPolicies, 3)
		web, db := w.Hosts["web"], w.Hosts["db"]
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 80}, lab.Allowed)
		w.Probe(t, "api", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Dropped)
		w.Probe(t, "mon", lab.Packet{Proto: "udp", To: db.Addr6(), Port: 53}, lab.Dropped)
		w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: web.Addr4(), Port: 80}, lab.Allowed)
		w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: web.Addr6(), Port: 80}, lab.Allowed)
		w.Probe(t, "out", lab.Packet{Proto: "tcp", To: web.Addr4(), Port: 80}, lab.Allowed)
		w.Probe(t, "db", lab.Packet{Proto: "tcp", To: w.Hosts["api"].Addr4(), Port: 80}, lab.Allowed)
		const fence = "ingress rule 1 of Admin policy fence"
		for i, want := range [][]string{{
			" to Deployment/web tcp/80: 1 denied in true by shop/deny",
			"Pod/api to Pod/db udp/53: 1 allowed in true by shop/open (ingress rule 1 of policy shop/open)",
			"Pod/mon to Deployment/web tcp/80: 2 denied in fence by fence (" + fence + ")",
			"Pod/mon to Deployment/web tcp/80: 2 denied in true by shop/deny",
		}, {
			"Pod/db to Pod/api tcp/80: 1 denied in true by shop/deny",
		}} {
			var got []string
			await.Within(t, e2e.Timeout, func() bool {
				got = stagedFlows(t, w.Daemons[i])
				return slices.Equal(got, want)
			}, func() string { return cmp.Diff(want, got) })
		}
		if got := stagedFlows(t, w.Daemons[0], "--staged-group=fence"); len(got) != 2 { // of the same record, which has both groups
			t.Errorf("%q", got)
		}
		w.Daemons[0].AwaitLine(t, 0, `msg=staged group=fence would=drop policy=fence from="ops/Pod/mon .*port=tcp/80 by="`+fence+`"`)
		w.Daemons[0].AwaitLine(t, 0, `msg=staged group=true would=allow policy=shop/open from="shop/Pod/api .*by="ingress rule 1 of policy shop/open"`)
		_, metrics := w.Daemons[0].Get("/metrics")
		if want := "\nweavenpc_staged_connections_total{group=\"fence\",outcome=\"would_drop\",policy=\"fence\"} 2\n"; !strings.Contains(metrics, want) {
			t.Error("no", want)
		}
	})
}

// TestS102_TheAnnotationDecides what is enforced, as it comes and goes, and is reported where --staged does not cover
// the kind.
func TestS102_TheAnnotationDecides(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startRecording(t, backend, recorded(), "--staged", "namespaces")
		dir := flag(w.Daemons[0], "manifests")
		web := lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}
		for _, d := range w.Daemons {
			d.Log.Expect("a policy is not staged as it asks for")
		}
		stage(t, w, dir, stagedPolicies, 2)
		w.Probe(t, "out", web, lab.Allowed)
		w.Probe(t, "mon", web, lab.Dropped)
		w.Daemons[0].AwaitLine(t, 0, `msg="a policy is not staged as it asks for" policy=fence what="it is enforced: weave-npc runs with --staged=namespaces"`)

		stage(t, w, dir, strings.Replace(stagedPolicies, `weave-npc/staged: "true"`, "", 1), 1) // deny
		w.Probe(t, "out", web, lab.Dropped)
		n := w.Daemons[0].Log.Len()
		stage(t, w, dir, stagedPolicies, 2)
		w.Probe(t, "out", web, lab.Allowed)
		w.Daemons[0].AwaitLine(t, n, `msg="a policy is staged" policy=shop/deny what="it is staged: it is not enforced any more"`)
		n = w.Daemons[0].Log.Len()
		stage(t, w, dir, strings.Replace(stagedPolicies, `weave-npc/staged: "true"`, `weave-npc/staged: "yes, please"`,
			1), 1)
		w.Probe(t, "out", web, lab.Dropped)
		w.Daemons[0].AwaitLine(t, n, `policy=shop/deny what="it is enforced: weave-npc/staged is .*yes, please`)
		stage(t, w, dir, "---\n", 0)
		w.Probe(t, "out", web, lab.Allowed)
		w.Probe(t, "mon", web, lab.Allowed)
	})
}

// TestS102_WithoutTheFlagAnnotatedPoliciesAreEnforced, and that is said.
func TestS102_WithoutTheFlagAnnotatedPoliciesAreEnforced(t *testing.T) {
	t.Parallel()
	w := startRecording(t, lab.NFT, recorded())
	for _, d := range w.Daemons {
		d.Log.Expect("a policy is not staged as it asks for")
	}
	n := w.Daemons[0].Log.Len()
	e2e.WriteFile(t, filepath.Join(flag(w.Daemons[0], "manifests"), "staged.yaml"), stagedPolicies)
	for _, policy := range []string{"shop/deny", "shop/open", "fence"} {
		w.Daemons[0].AwaitLine(t, n, `msg="a policy is not staged as it asks for" policy=`+policy+` what="it is enforced: weave-npc runs with --staged=off"`)
	}
	await.Within(t, e2e.Timeout, func() bool { // the cluster network policy has a transaction of its own
		_, metrics := w.Daemons[0].Get("/metrics")
		return strings.Contains(metrics, inKernel)
	}, w.Daemons[0].Log.String)
	w.Probe(t, "out", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}, lab.Dropped)
	w.Probe(t, "api", lab.Packet{Proto: "udp", To: w.Hosts["db"].Addr4(), Port: 53}, lab.Allowed)
}

// TestS101_StagedManifests are tried out though no object is annotated: each takes the place of the policy of its name.
func TestS101_StagedManifests(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		dir := t.TempDir()
		e2e.WriteFile(t, filepath.Join(dir, "db.yaml"), `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}
`)
		w := startRecording(t, backend, recorded(), "--staged", "all", "--staged-manifests", dir)
		for _, d := range w.Daemons {
			d.Log.Expect("no manifest is read") // when there is none any more
		}
		d := w.Daemons[0]
		db := w.Hosts["db"].Addr4()
		await.Within(t, e2e.Timeout, func() bool {
			_, metrics := d.Get("/metrics")
			return strings.Contains(metrics, "\nweavenpc_staged_policies 1\n")
		}, d.Log.String)
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: db, Port: 80}, lab.Allowed)
		w.Probe(t, "api", lab.Packet{Proto: "udp", To: db, Port: 53}, lab.Dropped)
		want := []string{"Deployment/web to Pod/db tcp/80: 1 denied in true by shop/db",
			"Pod/api to Pod/db udp/53: 1 allowed in true by shop/db (ingress rule 1 of policy shop/db)"}
		var got []string
		await.Within(t, e2e.Timeout, func() bool {
			got = stagedFlows(t, d)
			return slices.Equal(got, want)
		}, func() string { return cmp.Diff(want, got) })
		if err := os.Remove(filepath.Join(dir, "db.yaml")); err != nil {
			t.Fatal(err)
		}
		await.Within(t, e2e.Timeout, func() bool { return len(stagedFlows(t, d)) == 0 },
			func() string { return "the verdicts of a deleted policy are still reported" })
	})
}
