package input

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

const (
	isolateWeb = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]
`
	isolateDB = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress, Egress]
`
	brokenFile = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\nspec: [broken\n"
)

func TestS74_ARestartWithABrokenFileTakesNothingAway(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		dir := w.Source.(*e2e.Manifests).Dir
		file := func(name, text string) {
			t.Helper()
			e2e.WriteFile(t, filepath.Join(dir, name), text)
		}
		file("web.yaml", isolateWeb)
		isolated := e2e.Wants{"tcp 80": "-*>web +api>web", "udp 53": "-*>web +api>web"}
		w.Expect(t, isolated)

		for _, d := range w.Daemons {
			d.Kill(t)
			d.Log.Expect(`web\.yaml:\d+: `)
		}
		file("web.yaml", brokenFile)
		for _, d := range w.Daemons {
			d.Start(t)
			d.AwaitUnready(t, `never read: .*/web\.yaml:\d+: .*what the kernel holds stays`)
			d.AwaitMetric(t, "weavenpc_unsynced_inputs 1")
			d.AwaitMetric(t, "weavenpc_manifest_errors 1")
		}
		w.Expect(t, isolated)

		// Changes of other files are enforced meanwhile, and undone again.
		file("db.yaml", isolateDB)
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web +api>web -*>db -db>*", "udp 53": "-*>web +api>web -*>db -db>*"})
		if err := os.Remove(filepath.Join(dir, "db.yaml")); err != nil {
			t.Fatal(err)
		}
		w.Expect(t, isolated)

		// Once the file is valid again, it counts as it is now, and what was kept from before is removed.
		file("web.yaml", strings.ReplaceAll(isolateWeb, "app: api", "app: db"))
		for _, d := range w.Daemons {
			d.AwaitReady(t)
			d.AwaitMetric(t, "weavenpc_unsynced_inputs 0")
		}
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web +db>web"})
		if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
			t.Fatal(err)
		}
		w.Expect(t, e2e.Wants{"tcp 80": ""})
	})
}

func TestS74_AWrongNodeNameTakesNothingAway(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		dir := w.Source.(*e2e.Manifests).Dir
		e2e.WriteFile(t, filepath.Join(dir, "web.yaml"), isolateWeb)
		isolated := e2e.Wants{"tcp 80": "-*>web +api>web"}
		w.Expect(t, isolated)

		d := w.Daemons[0]
		d.Kill(t)
		right := d.Args
		d.Args = append([]string{"--node-name", "elsewhere"}, right[2:]...)
		d.Start(t)
		d.AwaitUnready(t, `no Node in the manifests is called "elsewhere" and no pod has it as spec\.nodeName.*--node-name`)
		d.AwaitLine(t, d.Said, "policies are enforced")
		w.Expect(t, isolated)

		// A Node of that name makes it an empty node, whose pods these are not.
		e2e.WriteNode(t, dir, "elsewhere")
		d.AwaitReady(t)
		if err := os.Remove(filepath.Join(dir, "node.yaml")); err != nil {
			t.Fatal(err)
		}
		d.Kill(t)
		d.Args = right
		d.Start(t)
		d.AwaitReady(t)
		w.Expect(t, isolated)

		// A directory without manifests is no empty cluster either.
		d.Kill(t)
		d.Log.Expect("no manifest is read")
		empty := e2e.NewManifests(t, w)
		d.Args = slices.Concat(right[:len(right)-1], []string{empty.Dir})
		d.Start(t)
		d.AwaitUnready(t, "there is no manifest below .*--node-name")
		d.AwaitLine(t, d.Said, "policies are enforced")
		w.Expect(t, isolated)
	})
}
