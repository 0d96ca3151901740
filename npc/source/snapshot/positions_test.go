package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const positioned = `# a comment
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: web, namespace: shop}
  spec:
    podSelector: {}
    ingress:
    - from:
      - podSelector: {matchLabels: {app: x}}
---

apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  selector: {matchLabels: {app: api}}
  template: {metadata: {labels: {app: api}}}
`

// TestPositions finds objects and fields in a file of several documents and a list, in a directory and in standard
// input.
func TestPositions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(positioned, "\n", "\r\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, prefix := range map[string]string{dir: file, file: file, "-": "-"} {
		m, err := Open(path, strings.NewReader(positioned))
		if err != nil {
			t.Fatal(err)
		}
		o, err := m.WithWorkloads()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			kind, namespace, name, field string
			want                         int
		}{
			{"Namespace", "", "shop", "", 5},
			{"NetworkPolicy", "shop", "web", "", 6},
			{"NetworkPolicy", "shop", "web", "spec.podSelector", 10},
			{"NetworkPolicy", "shop", "web", "spec.ingress[0].from[0].podSelector.matchLabels", 13},
			{"NetworkPolicy", "shop", "web", "spec.ingress[0].ports[3]", 12},
			{"Deployment", "shop", "api", "", 16},
			{"Deployment", "shop", "api", "spec.template", 21},
		} {
			got, line := o.Positions.Of(c.kind, c.namespace, c.name, c.field)
			if got != prefix || line != c.want {
				t.Errorf("%s: %s %s/%s %s is at %s:%d, want %s:%d", path, c.kind, c.namespace, c.name, c.field, got, line, prefix, c.want)
			}
		}
		for _, unknown := range []*Positions{o.Positions, nil} {
			if got, line := unknown.Of("Namespace", "", "default", ""); got != "" || line != 0 {
				t.Errorf("%s: what is in no file is at %s:%d", path, got, line)
			}
		}
	}
}
