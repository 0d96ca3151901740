package snapshot

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// policyManifest is a policy that a kustomization changes.
const policyManifest = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web}\nspec: {podSelector: {}}\n"

// kustomizations are files by their paths.
var kustomizations = map[string]string{
	"base/kustomization.yaml": "resources: [web.yaml]\n",
	"base/web.yaml":           policyManifest,
	"prod/kustomization.yaml": "namespace: shop\nnamePrefix: prod-\nresources:\n- ../base\n",
	"prod/notes.yaml":         "just: notes\n",
}

// write writes files below a temporary directory, which is made the working directory.
func write(t *testing.T, files ...map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, all := range files {
		for _, path := range slices.Sorted(maps.Keys(all)) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(all[path]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestKustomizationsAreBuilt(t *testing.T) {
	write(t, kustomizations)
	for name, open := range map[string]func() (*Manifests, error){
		"a directory that has one": func() (*Manifests, error) { return Open("prod", nil) },
		"asked for":                func() (*Manifests, error) { return OpenKustomization("prod") },
	} {
		m, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		o, err := m.WithWorkloads()
		if err != nil || len(o.Policies) != 1 || o.Policies[0].Namespace+"/"+o.Policies[0].Name != "shop/prod-web" ||
			len(o.Policies[0].Annotations) > 0 {
			t.Fatalf("%s: %v, %+v", name, err, o.Policies)
		}
		path, line := o.Positions.Of("NetworkPolicy", "shop", "prod-web", "spec")
		if path != filepath.Join("base", "web.yaml") || line != 1 {
			t.Errorf("%s: it is in %s:%d", name, path, line)
		}
	}
}

// TestKustomizationsOfADaemonAreNotBuilt: it reads what is in its directory.
func TestKustomizationsOfADaemonAreNotBuilt(t *testing.T) {
	write(t, kustomizations)
	m, err := Open("base", nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := m.Objects()
	if path, line := o.Positions.Of("NetworkPolicy", "default", "web", "spec"); err != nil || line != 4 {
		t.Errorf("%v, %s:%d", err, path, line)
	}
}

// TestKustomizationsOfRevisions are built from files that are not on disk.
func TestKustomizationsOfRevisions(t *testing.T) {
	o, err := OfFiles("main:base", []File{{"main:base/kustomization.yaml", []byte("resources: [web.yaml]\nnamespace: shop\n")},
		{"main:base/web.yaml", []byte(policyManifest)}}).WithWorkloads()
	if err != nil || len(o.Policies) != 1 || o.Policies[0].Namespace != "shop" {
		t.Errorf("%v, %+v", err, o.Policies)
	}
}

func TestKustomizationsThatCannotBeBuilt(t *testing.T) {
	for _, c := range []struct{ name, kustomization, want string }{
		{"file by HTTP", "resources:\n- https://example.com/a.yaml\n",
			"odd/kustomization.yaml:2: https://example.com/a.yaml is remote, and nothing is fetched: copy it, and name the copy"},
		{"repository", "resources:\n- ../base\ncomponents:\n- github.com/owner/name//dir?ref=v1\n",
			"odd/kustomization.yaml:4: github.com/owner/name//dir?ref=v1 is remote"},
		{"repository by SSH", "bases: ['git@example.com:owner/name']\n", "odd/kustomization.yaml:1: git@example.com:owner/name is remote"},
		{"patch by HTTP", "resources: [../base]\npatches:\n- path: HTTPS://example.com/p.yaml\n", "odd/kustomization.yaml:3: HTTPS://"},
		{"file of a map by HTTP", "configMapGenerator:\n- name: c\n  files: [a=https://example.com/a]\n", "odd/kustomization.yaml:3: a=https://"},
		{"plug-in in a file", "generators: [plugin.yaml]\n", "odd/plugin.yaml:4: https://example.com/b is remote"},
		{"plug-in in place", "transformers:\n- |\n  apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: p}\n  path: https://example.com/c\n",
			"odd/kustomization.yaml:6: https://example.com/c is remote"},
		{"below another", "resources: [../remote]\n", "remote/kustomization.yaml:1: ssh://example.com/a is remote"},
		{"missing", "resources:\n- ../base\n- nothing.yaml\n", "odd/kustomization.yaml:3: nothing.yaml does not exist"},
		{"chart", "resources: [../base]\nhelmCharts: [{name: c}]\n", "odd/kustomization.yaml:2: helmCharts is not rendered: remove it"},
		{"unknown field", "resource: [a]\n", `odd: invalid Kustomization: unknown field "resource"`},
		{"file outside", "resources: [../base/web.yaml]\n",
			"odd: ../base/web.yaml is a file outside of odd: copy it, or name a directory with a kustomization"},
		{"invalid object", "resources: [../base]\npatches:\n- target: {kind: NetworkPolicy}\n  patch: |\n    - {op: add, path: /spec/ingress, value: [{ports: [{port: 0}]}]}\n",
			"base/web.yaml: NetworkPolicy default/web: spec.ingress[0].ports[0].port: Invalid value: 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, kustomizations, map[string]string{"odd/kustomization.yaml": c.kustomization,
				"odd/plugin.yaml":           "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: c}\nfiles: [https://example.com/b]\n",
				"remote/kustomization.yaml": "resources: ['ssh://example.com/a']\n"})
			m, err := OpenKustomization("odd")
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.WithWorkloads()
			if err == nil || !strings.HasPrefix(filepath.ToSlash(err.Error()), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := OpenKustomization("nowhere"); err == nil ||
		err.Error() != "nowhere has none of kustomization.yaml, kustomization.yml and Kustomization" {
		t.Error(err)
	}
}
