package source

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestListNetwork shows that a right that is missing costs what needs it, and is named.
func TestListNetwork(t *testing.T) {
	client := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	if n := ListNetwork(context.Background(), client); len(n.Services) != 1 || len(n.Nodes) != 1 || len(n.Unread) != 0 {
		t.Errorf("%+v", n)
	}
	for _, kind := range []string{"services", "endpointslices", "nodes"} {
		client := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}})
		client.PrependReactor("list", kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		n := ListNetwork(context.Background(), client)
		if len(n.Unread) != 1 || n.Unread[0] != kind+" cannot be listed: forbidden" || len(n.Services) == 0 && kind != "services" {
			t.Errorf("%s: %+v", kind, n)
		}
	}
}

// TestLoadNetwork reads single objects and lists, in directories and behind links, and passes over the rest.
func TestLoadNetwork(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	service := func(name string) string { return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n" }
	write(filepath.Join(dir, "a.yaml"), "# none\n---\n"+service("a")+"---\napiVersion: v1\nkind: Pod\nmetadata: {name: Service}\n")
	write(filepath.Join(dir, "deep/b.yml"), "apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(service("b"), "\n", "\n  ")+"\n")
	write(filepath.Join(dir, "c.json"), `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "node1"}}]}`)
	write(filepath.Join(dir, ".hidden/d.yaml"), service("d"))
	write(filepath.Join(dir, "e.txt"), service("e"))
	write(filepath.Join(dir, "f.yaml"), "kind: Service\n  broken: [\n---\n"+service("f"))
	write(filepath.Join(dir, "g.yaml"), "apiVersion: v1\nkind: Service\nspec: {ports: none}\n")
	write(elsewhere, service("h"))
	if err := os.Symlink(elsewhere, filepath.Join(dir, "h.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "deep", "again")); err != nil {
		t.Fatal(err)
	}
	n, err := LoadNetwork(dir)
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
	if len(n.Unread) == 0 || !strings.Contains(n.Unread[0], "g.yaml") {
		t.Errorf("of what cannot be read, it is said: %v", n.Unread)
	}
}

// TestShortenedPods shows that what is left of a pod has the same facts and owners.
func TestShortenedPods(t *testing.T) {
	always, controller := corev1.ContainerRestartPolicyAlways, true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"long": "text"}, CreationTimestamp: metav1.Unix(7, 0), DeletionTimestamp: &metav1.Time{Time: metav1.Unix(9, 0).Time},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-7d4", Controller: &controller}}}}
	p.Spec = corev1.PodSpec{NodeName: "node1", HostNetwork: true, Volumes: []corev1.Volume{{Name: "data"}},
		InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "s", ContainerPort: 1}}}},
		Containers:     []corev1.Container{{Name: "main", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}}}
	start := metav1.Unix(8, 0)
	p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: &start, PodIPs: []corev1.PodIP{{IP: "10.32.1.2"}},
		HostIPs: []corev1.HostIP{{IP: "172.31.0.1"}}}
	want, _ := podFacts(p)
	short := shortened(p)
	got, _ := podFacts(short)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if owner := metav1.GetControllerOf(short); owner == nil || owner.Name != "web-7d4" {
		t.Errorf("its owner is %v", owner)
	}
	if short.Annotations != nil || short.Spec.Volumes != nil || short.Spec.Containers[0].Image != "" {
		t.Errorf("%+v", short)
	}
}
