package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// TestListNetwork shows that a right that is missing costs what needs it, and is named.
func TestListNetwork(t *testing.T) {
	client := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	if n := ListNetwork(context.Background(), client); len(n.Services) != 1 || len(n.Nodes) != 1 || len(n.Unreadable) != 0 {
		t.Errorf("%+v", n)
	}
	for _, kind := range []string{"services", "endpointslices", "nodes"} {
		db := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
		n := ListNetwork(context.Background(), forbidden("list", kind, db))
		if len(n.Unreadable) != 1 || n.Unreadable[0] != kind+" cannot be listed: forbidden" || len(n.Services) == 0 && kind != "services" {
			t.Errorf("%s: %+v", kind, n)
		}
	}
}

// TestLoadNetwork reads single objects and lists, in directories and behind links, and passes over the rest.
func TestLoadNetwork(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere.yaml")
	sourcetest.WriteFile(t, filepath.Join(dir, "h.txt"), "apiVersion: v1\nkind: Service\nmetadata: {name: h}\n")
	service := func(name string) string { return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n" }
	sourcetest.WriteFile(t, filepath.Join(dir, "a.yaml"), "# none\n---\n"+service("a")+"---\napiVersion: v1\nkind: Pod\nmetadata: {name: Service}\n")
	sourcetest.WriteFile(t, filepath.Join(dir, "deep/b.yml"), "apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(service("b"), "\n", "\n  ")+"\n")
	sourcetest.WriteFile(t, filepath.Join(dir, "c.json"), `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "node1"}}]}`)
	sourcetest.WriteFile(t, filepath.Join(dir, ".hidden/d.yaml"), service("d"))
	sourcetest.WriteFile(t, filepath.Join(dir, "e.txt"), service("e"))
	sourcetest.WriteFile(t, filepath.Join(dir, "f.yaml"), "kind: Service\n  broken: [\n---\n"+service("f"))
	sourcetest.WriteFile(t, filepath.Join(dir, "g.yaml"), "apiVersion: v1\nkind: Service\nspec: {ports: none}\n")
	sourcetest.WriteFile(t, filepath.Join(dir, "i.yaml"), "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
		"metadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\naddressType: IPv4\n")
	sourcetest.WriteFile(t, elsewhere, service("j"))
	for link, target := range map[string]string{"h.yaml": "h.txt", "j.yaml": elsewhere, "deep/again": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	n, err := (&Manifests{path: dir}).Network()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range n.Services {
		names[s.Namespace+"/"+s.Name] = true
	}
	for _, want := range []string{"default/a", "default/b", "default/f", "default/h"} {
		if !names[want] {
			t.Errorf("%s was not read: %v", want, names)
		}
	}
	if len(names) != 4 || len(n.Nodes) == 0 || n.Nodes[0].Name != "node1" {
		t.Errorf("read %v and %d nodes", names, len(n.Nodes))
	}
	if len(n.Slices) == 0 || n.Slices[0].Namespace+"/"+n.Slices[0].Name != "default/a-1" {
		t.Errorf("the slices are %v", n.Slices)
	}
	if len(n.Unreadable) == 0 || !strings.Contains(n.Unreadable[0], "g.yaml") {
		t.Errorf("the files that cannot be read are %v", n.Unreadable)
	}
}

// TestLoadNetworkOfNothing shows that a directory that cannot be read is an error, and not an empty network.
func TestLoadNetworkOfNothing(t *testing.T) {
	_, err := (&Manifests{path: filepath.Join(t.TempDir(), "absent")}).Network()
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
}

// TestEntrances of manifests and of an API server: the Services that Ingresses and HTTPRoutes lead to.
func TestEntrances(t *testing.T) {
	const ingress = `"metadata": {"name": "web", "namespace": "shop"}, "spec": {"defaultBackend": {"service": {"name": "web", "port": {"name": "http"}}},
		"rules": [{"host": "a"}, {"http": {"paths": [{"backend": {"service": {"name": "api", "port": {"number": 80}}}},
		{"backend": {"service": {"name": "api", "port": {"number": 80}}}}, {"backend": {"resource": {"kind": "Bucket", "name": "b"}}}]}}]}`
	const route = `"metadata": {"name": "route", "namespace": "edge"}, "spec": {"rules": [{"backendRefs": [{"name": "web", "port": 8080},
		{"group": "", "kind": "Service", "name": "db", "namespace": "shop", "port": 5432}, {"group": "example.com", "kind": "Bucket", "name": "b"}]}, {}]}`
	const resources = `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "gateway.networking.k8s.io/v1",
		"resources": [{"name": "httproutes", "kind": "HTTPRoute"}]}`
	const inShop, inEdge = "Ingress shop/web [{shop web http} {shop api tcp/80}]", "HTTPRoute edge/route [{edge web tcp/8080} {shop db tcp/5432}]"
	const ingresses, version, routes = "/apis/networking.k8s.io/v1/ingresses", "/apis/gateway.networking.k8s.io/v1", "/apis/gateway.networking.k8s.io/v1/httproutes"
	list := func(item string) string {
		return `{"kind": "IngressList", "apiVersion": "networking.k8s.io/v1", "items": [{` + item + `}]}`
	}
	for _, c := range []struct {
		name    string
		answers map[string]string
		want    string
	}{
		{"both", map[string]string{ingresses: list(ingress), version: resources, routes: list(route)}, inShop + "; " + inEdge},
		{"no_routes", map[string]string{ingresses: list(ingress)}, inShop},
		{"another_kind_of_route", map[string]string{ingresses: list(ingress), version: strings.ReplaceAll(resources, "HTTP", "GRPC")}, inShop},
		{"forbidden", map[string]string{ingresses: "", version: resources, routes: ""},
			"ingresses cannot be listed; httproutes cannot be listed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, _ := sourcetest.Answers(t, c.answers)
			var n Network
			n.ListEntrances(t.Context(), client)
			if got := entrances(n); got != c.want {
				t.Errorf("%s, want\n%s", got, c.want)
			}
		})
	}
	t.Run("manifests", func(t *testing.T) {
		text := "# none\n---\n" + `{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", ` + strings.Replace(ingress, `, "namespace": "shop"`, "", 1) +
			"}\n---\n" + `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", ` + route + "}]}"
		m := &Manifests{path: "-", text: []byte(text), Namespace: "shop"}
		n, err := m.Network()
		if got := entrances(n); err != nil || got != inShop+"; "+inEdge {
			t.Errorf("%s, %v", got, err)
		}
		if a, b := n.Entrances[0], n.Entrances[1]; a.Path != "-" || a.Line != 3 || b.Line != 7 {
			t.Errorf("%s:%d and %d", a.Path, a.Line, b.Line)
		}
	})
}

// entrances returns the entrances of a network, and what could not be read, as a text.
func entrances(n Network) string {
	var all []string
	for _, e := range n.Entrances {
		all = append(all, fmt.Sprint(e.Kind, " ", e.Namespace, "/", e.Name, " ", e.Backends))
	}
	for _, u := range n.Unreadable {
		what, _, _ := strings.Cut(u, ": ")
		all = append(all, what)
	}
	return strings.Join(all, "; ")
}
