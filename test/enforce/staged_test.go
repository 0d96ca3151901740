package enforce

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/test/await"
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

// stage has the daemons of a harness read some policies, and waits until as many are staged and the kernels have the
// others.
func (w *harness) stage(t *testing.T, dir, text string, number int) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "staged.yaml"), text)
	for _, d := range w.daemons {
		want := fmt.Sprintf("\nweavenpc_staged_policies %d\n", number)
		await.Within(t, timeout, func() bool {
			_, metrics := d.get("/metrics")
			return strings.Contains(metrics, want) && strings.Contains(metrics, inKernel)
		}, func() string { return d.node.Name() + " has not" + want + d.log.String() })
	}
}

// stagedFlows returns what the groups of staged policies would do with the connections that a node has recorded.
func (d *daemon) stagedFlows(t *testing.T, args ...string) (out []string) {
	t.Helper()
	for _, r := range d.flows(t, append([]string{"--staged-group"}, args...)...) {
		for _, s := range r.Staged {
			line := fmt.Sprintf("%s to %s %s: %d %s in %s by %s", r.From.Workload, r.To.Workload, r.Port, s.Count, s.Verdict, s.Group, s.Policy)
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
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startRecording(t, backend, recorded(), "--staged", "all")
		dir := w.daemons[0].flag("manifests")
		w.stage(t, dir, stagedPolicies, 3)
		web, db := w.hosts["web"], w.hosts["db"]
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "api", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Dropped)
		w.probe(t, "mon", lab.Packet{Proto: "udp", To: db.Addr6(), Port: 53}, lab.Dropped)
		w.probe(t, "mon", lab.Packet{Proto: "tcp", To: web.Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "mon", lab.Packet{Proto: "tcp", To: web.Addr6(), Port: 80}, lab.Allowed)
		w.probe(t, "out", lab.Packet{Proto: "tcp", To: web.Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "db", lab.Packet{Proto: "tcp", To: w.hosts["api"].Addr4(), Port: 80}, lab.Allowed)
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
			await.Within(t, timeout, func() bool {
				got = w.daemons[i].stagedFlows(t)
				return slices.Equal(got, want)
			}, func() string { return cmp.Diff(want, got) })
		}
		if got := w.daemons[0].stagedFlows(t, "--staged-group=fence"); len(got) != 2 { // of the same record, which has both groups
			t.Errorf("%q", got)
		}
		w.daemons[0].awaitLine(t, 0, `msg=staged group=fence would=drop policy=fence from="ops/Pod/mon .*port=tcp/80 by="`+fence+`"`)
		w.daemons[0].awaitLine(t, 0, `msg=staged group=true would=allow policy=shop/open from="shop/Pod/api .*by="ingress rule 1 of policy shop/open"`)
		_, metrics := w.daemons[0].get("/metrics")
		if want := "\nweavenpc_staged_connections_total{group=\"fence\",outcome=\"would_drop\",policy=\"fence\"} 2\n"; !strings.Contains(metrics, want) {
			t.Error("no", want)
		}
	})
}

// TestS102_TheAnnotationDecides what is enforced, as it comes and goes, and is reported where --staged does not cover
// the kind.
func TestS102_TheAnnotationDecides(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startRecording(t, backend, recorded(), "--staged", "namespaces")
		dir := w.daemons[0].flag("manifests")
		web := lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}
		for _, d := range w.daemons {
			d.log.expect("a policy is not staged as it asks for")
		}
		w.stage(t, dir, stagedPolicies, 2)
		w.probe(t, "out", web, lab.Allowed)
		w.probe(t, "mon", web, lab.Dropped)
		w.daemons[0].awaitLine(t, 0, `msg="a policy is not staged as it asks for" policy=fence what="it is enforced: weave-npc runs with --staged=namespaces"`)

		w.stage(t, dir, strings.Replace(stagedPolicies, `weave-npc/staged: "true"`, "", 1), 1) // deny
		w.probe(t, "out", web, lab.Dropped)
		n := w.daemons[0].log.len()
		w.stage(t, dir, stagedPolicies, 2)
		w.probe(t, "out", web, lab.Allowed)
		w.daemons[0].awaitLine(t, n, `msg="a policy is staged" policy=shop/deny what="it is staged: it is not enforced any more"`)
		n = w.daemons[0].log.len()
		w.stage(t, dir, strings.Replace(stagedPolicies, `weave-npc/staged: "true"`, `weave-npc/staged: "yes, please"`, 1), 1)
		w.probe(t, "out", web, lab.Dropped)
		w.daemons[0].awaitLine(t, n, `policy=shop/deny what="it is enforced: weave-npc/staged is .*yes, please`)
		w.stage(t, dir, "---\n", 0)
		w.probe(t, "out", web, lab.Allowed)
		w.probe(t, "mon", web, lab.Allowed)
	})
}

// TestS102_WithoutTheFlagAnnotatedPoliciesAreEnforced, and that is said.
func TestS102_WithoutTheFlagAnnotatedPoliciesAreEnforced(t *testing.T) {
	w := startRecording(t, lab.NFT, recorded())
	for _, d := range w.daemons {
		d.log.expect("a policy is not staged as it asks for")
	}
	n := w.daemons[0].log.len()
	writeFile(t, filepath.Join(w.daemons[0].flag("manifests"), "staged.yaml"), stagedPolicies)
	for _, policy := range []string{"shop/deny", "shop/open", "fence"} {
		w.daemons[0].awaitLine(t, n, `msg="a policy is not staged as it asks for" policy=`+policy+` what="it is enforced: weave-npc runs with --staged=off"`)
	}
	await.Within(t, timeout, func() bool { // the cluster network policy has a transaction of its own
		_, metrics := w.daemons[0].get("/metrics")
		return strings.Contains(metrics, inKernel)
	}, w.daemons[0].log.String)
	w.probe(t, "out", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Dropped)
	w.probe(t, "api", lab.Packet{Proto: "udp", To: w.hosts["db"].Addr4(), Port: 53}, lab.Allowed)
}

// TestS101_StagedManifests are tried out though no object is annotated: each takes the place of the policy of its name.
func TestS101_StagedManifests(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "db.yaml"), `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}
`)
		w := startRecording(t, backend, recorded(), "--staged", "all", "--staged-manifests", dir)
		for _, d := range w.daemons {
			d.log.expect("no manifest is read") // when there is none any more
		}
		d := w.daemons[0]
		db := w.hosts["db"].Addr4()
		await.Within(t, timeout, func() bool {
			_, metrics := d.get("/metrics")
			return strings.Contains(metrics, "\nweavenpc_staged_policies 1\n")
		}, d.log.String)
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: db, Port: 80}, lab.Allowed)
		w.probe(t, "api", lab.Packet{Proto: "udp", To: db, Port: 53}, lab.Dropped)
		want := []string{"Deployment/web to Pod/db tcp/80: 1 denied in true by shop/db",
			"Pod/api to Pod/db udp/53: 1 allowed in true by shop/db (ingress rule 1 of policy shop/db)"}
		var got []string
		await.Within(t, timeout, func() bool {
			got = d.stagedFlows(t)
			return slices.Equal(got, want)
		}, func() string { return cmp.Diff(want, got) })
		if err := os.Remove(filepath.Join(dir, "db.yaml")); err != nil {
			t.Fatal(err)
		}
		await.Within(t, timeout, func() bool { return len(d.stagedFlows(t)) == 0 }, func() string { return "the verdicts of a deleted policy are still reported" })
	})
}
