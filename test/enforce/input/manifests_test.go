package input

import (
	"path/filepath"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS70_ManifestsAreReadAsTheAPIServerWould(t *testing.T) {
	e2e.EachBackend(t, manifestsAreRead)
}

func manifestsAreRead(t *testing.T, backend lab.Backend) {
	w := e2e.Start(t, backend, e2e.Base())
	dir := w.Source.(*e2e.Manifests).Dir
	d := w.Daemons[0]
	write := func(name, text string) { e2e.WriteFile(t, filepath.Join(dir, name), w.Replacer().Replace(text)) }

	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: named-only}}}]
    ports: [{port: 80}]
`)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web"})
	write("pod.json", `{"apiVersion": "v1", "kind": "PodList", "items": [
		{"metadata": {"name": "peer", "namespace": "named-only"},
		"status": {"podIPs": [{"ip": "$out4"}, {"ip": "$out6"}]}}]}`)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web +out>web", "tcp 81": "-*>web"})

	for _, daemon := range w.Daemons {
		daemon.Log.Expect("policy.yaml:")
	}
	said := d.Log.Len()
	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: [broken
`)
	d.AwaitLine(t, said, `level=ERROR msg=".*/policy.yaml:\d+: `)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web +out>web"})

	said = d.Log.Len()
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
	d.AwaitLine(t, said, `level=ERROR msg=".*/policy.yaml:9: .*70000`)
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web +out>web"})

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
	w.Expect(t, e2e.Wants{"tcp 80": "-*>web -ops>*"})
	e2e.Run(t, w.Hosts["n1"], "rm", filepath.Join(dir, "policy.yaml"))
	w.Expect(t, e2e.Wants{"tcp 80": ""})
}
