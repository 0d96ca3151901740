package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// TestList reads the objects of an API server, and names the kind that it refuses to list.
func TestList(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}})
	o, err := List(context.Background(), client, nil)
	if err != nil || len(o.Pods) != 1 || len(o.Policies) != 1 || o.Pods[0].Name != "web" {
		t.Fatalf("%+v, %v", o, err)
	}
	for kind, want := range map[string]string{"namespaces": "listing namespaces", "pods": "listing pods",
		"networkpolicies": "listing network policies"} {
		client := fake.NewClientset()
		client.PrependReactor("list", kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		if _, err := List(context.Background(), client, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestListsClusterPolicies, if the API server has the kind and shows it; what cannot be read is said, and nothing else
// is missing for it.
func TestListsClusterPolicies(t *testing.T) {
	const path = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
	const kind = `{"name":"clusternetworkpolicies"}`
	there := sourcetest.Group(map[string]string{"v1alpha2": kind})
	there[path] = `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicyList","metadata":{},"items":[
		{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"deny"},"spec":{"tier":"Admin"}}]}`
	forbidden := sourcetest.Group(map[string]string{"v1alpha2": kind})
	forbidden[path] = ""
	for _, c := range []struct {
		name              string
		answers           map[string]string
		names, unreadable string
	}{
		{"absent", map[string]string{"/apis": `{"kind":"APIGroupList","groups":[{"name":"apps"}]}`}, "", ""},
		{"absent_says_a_proxy", nil, "", "asking for the groups of kinds"},
		{"null", map[string]string{"/apis/policy.networking.k8s.io": "null"}, "", "the answer names none"},
		{"there", there, "deny", ""},
		{"forbidden", forbidden, "", "listing cluster network policies"},
		{"other_version", sourcetest.Group(map[string]string{"v1": kind}), "", "only in versions that are not known: v1"},
		{"discovery_forbidden", map[string]string{"/apis/policy.networking.k8s.io": ""}, "", "asking for the versions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policies, err := apiclient.NewPolicyClient(sourcetest.Answers(t, c.answers))
			if err != nil {
				t.Fatal(err)
			}
			o, err := List(t.Context(), fake.NewClientset(), policies)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range o.ClusterPolicies {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != c.names || !strings.Contains(o.ClusterPoliciesUnreadable, c.unreadable) || c.unreadable == "" && o.ClusterPoliciesUnreadable != "" {
				t.Errorf("listed %q, unreadable: %q", got, o.ClusterPoliciesUnreadable)
			}
		})
	}
}

// TestListsNodesThatPoliciesName, and no others. Without the right to, all else is there.
func TestListsNodesThatPoliciesName(t *testing.T) {
	const path = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
	for _, c := range []struct {
		name, peer string
		forbidden  bool
		nodes      int
		unreadable string
	}{
		{"named", `{"nodes":{}}`, false, 1, ""},
		{"not_named", `{"namespaces":{}}`, true, 0, ""},
		{"forbidden", `{"nodes":{}}`, true, 0, "listing nodes: forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := sourcetest.Group(map[string]string{"v1alpha2": `{"name":"clusternetworkpolicies"}`})
			answers[path] = `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicyList","metadata":{},"items":[
				{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"p"},"spec":{"egress":[{"to":[` + c.peer + `]}]}}]}`
			policies, err := apiclient.NewPolicyClient(sourcetest.Answers(t, answers))
			if err != nil {
				t.Fatal(err)
			}
			client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			if c.forbidden {
				client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("forbidden")
				})
			}
			o, err := List(t.Context(), client, policies)
			if err != nil || len(o.ClusterPolicies) != 1 || len(o.Nodes) != c.nodes || o.NodesUnreadable != c.unreadable {
				t.Errorf("%v: %d policies, %d nodes, unreadable: %q", err, len(o.ClusterPolicies), len(o.Nodes), o.NodesUnreadable)
			}
		})
	}
}

// recorder is a sink that records the calls.
type recorder struct {
	source.Sink
	calls []string
}

func (r *recorder) SetNamespace(n npc.Namespace) { r.calls = append(r.calls, "ns "+n.Name) }

func (r *recorder) SetPod(p npc.Pod) { r.calls = append(r.calls, "pod "+p.Namespace+"/"+p.Name) }

func (r *recorder) SetNode(n npc.Node) {
	r.calls = append(r.calls, fmt.Sprintf("node %s %v", n.Name, n.Addrs))
}

func (r *recorder) SetPolicy(p *networkingv1.NetworkPolicy) {
	r.calls = append(r.calls, "policy "+p.Namespace+"/"+p.Name)
}

func (r *recorder) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	r.calls = append(r.calls, "cluster policy "+p.Name)
}

func (r *recorder) SetConnected(kind string, ok bool) {
	r.calls = append(r.calls, fmt.Sprintf("%s %v", kind, ok))
}

func (r *recorder) SetSynced() { r.calls = append(r.calls, "synced") }

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	sourcetest.WriteFile(t, filepath.Join(dir, "b.yaml"), sourcetest.Pod("web", "")+"---\n"+sourcetest.Policy("deny"))
	sourcetest.WriteFile(t, filepath.Join(dir, "a.yaml"), sourcetest.Pod("db", "")+"---\n"+
		"apiVersion: v1\nkind: Node\nmetadata: {name: here}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n---\n"+
		"apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: pass}\n"+
		"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n")
	objects, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects.Namespaces) != 1 || len(objects.Pods) != 2 || len(objects.Policies) != 1 ||
		objects.Pods[0].Name != "db" || objects.Pods[0].CreationTimestamp.IsZero() {
		t.Errorf("%+v", objects)
	}
	r := &recorder{}
	objects.Deliver(r)
	want := []string{"namespaces true", "pods true", "networkpolicies true", "clusternetworkpolicies true", "nodes true", "ns shop", "pod shop/db",
		"pod shop/web", "node here [192.0.2.1]", "policy shop/deny", "cluster policy pass", "synced"}
	if diff := cmp.Diff(want, r.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	sourcetest.WriteFile(t, filepath.Join(dir, "c.yaml"), "{")
	sourcetest.WriteFile(t, filepath.Join(dir, "d.yaml"), sourcetest.Pod("web", ""))
	objects, err = load(dir)
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 || len(objects.Pods) != 2 {
		t.Errorf("%v, %d pods", err, len(objects.Pods))
	}
	if _, err := load(filepath.Join(dir, "absent")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}

func load(dir string) (Objects, error) {
	m, err := Open(dir, nil)
	if err != nil {
		return Objects{}, err
	}
	return m.Objects()
}
