package enforce

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// awaitUnready waits until /readyz gives a reason that matches.
func (d *daemon) awaitUnready(t *testing.T, pattern string) {
	t.Helper()
	wanted, last := regexp.MustCompile(pattern), ""
	await.Within(t, timeout, func() bool {
		if !d.running() {
			t.Fatalf("weave-npc on %s has ended: %v\n%s", d.node, d.end.err, d.log)
		}
		var status int
		status, last = d.get("/readyz")
		return status == http.StatusServiceUnavailable && wanted.MatchString(last)
	}, func() string {
		return "readiness of weave-npc on " + d.node.Name() + " does not say " + pattern + ": " + last + "\n" + d.log.String()
	})
}

// awaitMetric waits until a line of /metrics matches.
func (d *daemon) awaitMetric(t *testing.T, pattern string) {
	t.Helper()
	wanted, last := regexp.MustCompile("(?m)^"+pattern+"$"), ""
	await.Within(t, timeout, func() bool {
		_, last = d.get("/metrics")
		return wanted.MatchString(last)
	}, func() string { return "no metric " + pattern + "\n" + last })
}

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
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base())
		dir := w.source.(*manifests).dir
		file := func(name, text string) {
			t.Helper()
			writeFile(t, filepath.Join(dir, name), text)
		}
		file("web.yaml", isolateWeb)
		isolated := wants{"tcp 80": "-*>web +api>web", "udp 53": "-*>web +api>web"}
		w.expect(t, isolated)

		for _, d := range w.daemons {
			d.kill(t)
			d.log.expect(`web\.yaml:\d+: `)
		}
		file("web.yaml", brokenFile)
		for _, d := range w.daemons {
			d.start(t)
			d.awaitUnready(t, `never read: .*/web\.yaml:\d+: .*what the kernel holds stays`)
			d.awaitMetric(t, "weavenpc_unsynced_inputs 1")
			d.awaitMetric(t, "weavenpc_manifest_errors 1")
		}
		w.expect(t, isolated)

		// Changes of other files are enforced meanwhile, and undone again.
		file("db.yaml", isolateDB)
		w.expect(t, wants{"tcp 80": "-*>web +api>web -*>db -db>*", "udp 53": "-*>web +api>web -*>db -db>*"})
		if err := os.Remove(filepath.Join(dir, "db.yaml")); err != nil {
			t.Fatal(err)
		}
		w.expect(t, isolated)

		// Once the file is valid again, it counts as it is now, and what was kept from before is removed.
		file("web.yaml", strings.ReplaceAll(isolateWeb, "app: api", "app: db"))
		for _, d := range w.daemons {
			d.awaitReady(t)
			d.awaitMetric(t, "weavenpc_unsynced_inputs 0")
		}
		w.expect(t, wants{"tcp 80": "-*>web +db>web"})
		if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
			t.Fatal(err)
		}
		w.expect(t, wants{"tcp 80": ""})
	})
}

func TestS74_AWrongNodeNameTakesNothingAway(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base())
		dir := w.source.(*manifests).dir
		writeFile(t, filepath.Join(dir, "web.yaml"), isolateWeb)
		isolated := wants{"tcp 80": "-*>web +api>web"}
		w.expect(t, isolated)

		d := w.daemons[0]
		d.kill(t)
		right := d.args
		d.args = append([]string{"--node-name", "elsewhere"}, right[2:]...)
		d.start(t)
		d.awaitUnready(t, `no Node in the manifests is called "elsewhere" and no pod has it as spec\.nodeName.*--node-name`)
		d.awaitLine(t, d.said, "policies are enforced")
		w.expect(t, isolated)

		// A Node of that name makes it an empty node, whose pods these are not.
		writeNode(t, dir, "elsewhere")
		d.awaitReady(t)
		if err := os.Remove(filepath.Join(dir, "node.yaml")); err != nil {
			t.Fatal(err)
		}
		d.kill(t)
		d.args = right
		d.start(t)
		d.awaitReady(t)
		w.expect(t, isolated)

		// A directory without manifests is no empty cluster either.
		d.kill(t)
		d.log.expect("no manifest is read")
		empty := newManifests(t, w)
		d.args = slices.Concat(right[:len(right)-1], []string{empty.dir})
		d.start(t)
		d.awaitUnready(t, "there is no manifest below .*--node-name")
		d.awaitLine(t, d.said, "policies are enforced")
		w.expect(t, isolated)
	})
}
