package enforce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS70_ManifestsAreReadAsTheAPIServerWould(t *testing.T) {
	eachBackend(t, manifestsAreRead)
}

func manifestsAreRead(t *testing.T, backend lab.Backend) {
	w := start(t, backend, base())
	dir := w.source.(*manifests).dir
	d := w.daemons[0]
	write := func(name, text string) { writeFile(t, filepath.Join(dir, name), w.replacer().Replace(text)) }

	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: named-only}}}]
    ports: [{port: 80}]
`)
	w.expect(t, wants{"tcp 80": "-*>web"})
	write("pod.json", `{"apiVersion": "v1", "kind": "PodList", "items": [
		{"metadata": {"name": "peer", "namespace": "named-only"},
		"status": {"podIPs": [{"ip": "$out4"}, {"ip": "$out6"}]}}]}`)
	w.expect(t, wants{"tcp 80": "-*>web +out>web", "tcp 81": "-*>web"})

	for _, daemon := range w.daemons {
		daemon.log.expect("policy.yaml:")
	}
	said := d.log.len()
	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: [broken
`)
	d.awaitLine(t, said, `level=ERROR msg=".*/policy.yaml:\d+: `)
	w.expect(t, wants{"tcp 80": "-*>web +out>web"})

	said = d.log.len()
	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - ports:
    - port: 80
    - port: 70000
`)
	d.awaitLine(t, said, `level=ERROR msg=".*/policy.yaml:9: .*70000`)
	w.expect(t, wants{"tcp 80": "-*>web +out>web"})

	write("policy.yaml", `# valid again, and two more documents
kind: List
apiVersion: v1
items:
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: p, namespace: shop}
  spec: {podSelector: {matchLabels: {app: web}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: ops}
spec: {podSelector: {}, policyTypes: [Egress]}
---
`)
	w.expect(t, wants{"tcp 80": "-*>web -ops>*"})
	run(t, w.hosts["n1"], "rm", filepath.Join(dir, "policy.yaml"))
	w.expect(t, wants{"tcp 80": ""})
}

// manifests is a directory that holds all objects in one file.
type manifests struct{ dir string }

func newManifests(t *testing.T, w *harness) *manifests {
	t.Helper()
	dir, err := os.MkdirTemp(w.Dir(), "manifests-")
	if err != nil {
		t.Fatal(err)
	}
	return &manifests{dir}
}

// fromManifests makes manifests with the objects of a state the source of a harness.
func (w *harness) fromManifests(t *testing.T, state change) *manifests {
	t.Helper()
	m := newManifests(t, w)
	w.source = m
	m.write(t, w.objects(state))
	return m
}

// write implements objectWriter. The file is replaced as a whole.
func (m *manifests) write(t *testing.T, o *objects) {
	t.Helper()
	text, err := o.manifest()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(m.dir, "cluster.yaml"), text)
}

// writeNode adds a node object to manifests.
func writeNode(t *testing.T, dir, name string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "node.yaml"), "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(hidden, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, path); err != nil {
		t.Fatal(err)
	}
}
