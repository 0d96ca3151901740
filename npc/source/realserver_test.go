package source

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// realCluster is an API server with the rights of its users and its resource definitions.
type realCluster struct {
	t       *testing.T
	config  *rest.Config
	client  kubernetes.Interface
	objects dynamic.Interface
}

func newCluster(t *testing.T) *realCluster {
	t.Helper()
	c := &realCluster{t: t, config: apiserver.Alone(t).Client()}
	var err error
	c.client, err = kubernetes.NewForConfig(c.config)
	c.must(err)
	c.objects, err = dynamic.NewForConfig(c.config)
	c.must(err)
	return c
}

func (c *realCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// install creates the resource definition of ClusterNetworkPolicies, in one version, or one of another kind.
func (c *realCluster) install(version, kind, plural string) {
	c.t.Helper()
	text, err := os.ReadFile("testdata/crd.yaml")
	c.must(err)
	var definition map[string]any
	c.must(yaml.Unmarshal(text, &definition))
	u := &unstructured.Unstructured{Object: definition}
	u.SetName(plural + "." + v1alpha2.GroupName)
	spec := definition["spec"].(map[string]any)
	spec["names"] = map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)}
	spec["versions"].([]any)[0].(map[string]any)["name"] = version
	_, err = c.objects.Resource(definitions).Create(c.t.Context(), u, metav1.CreateOptions{})
	c.must(err)
	sourcetest.Eventually(c.t, "served", func() bool {
		list, err := c.client.Discovery().ServerResourcesForGroupVersion(v1alpha2.GroupName + "/" + version)
		return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
	})
}

// remove deletes a resource definition, and with it the objects.
func (c *realCluster) remove(plural string) {
	c.t.Helper()
	name := plural + "." + v1alpha2.GroupName
	c.must(c.objects.Resource(definitions).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	sourcetest.Eventually(c.t, "removed", func() bool {
		_, err := c.objects.Resource(definitions).Get(c.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (c *realCluster) create(name string) {
	c.t.Helper()
	c.createTo(name, map[string]any{"networks": []any{"192.0.2.0/24"}})
}

// createTo creates a policy with one peer.
func (c *realCluster) createTo(name string, peer map[string]any) {
	c.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha2.GroupVersion.String(), "kind": "ClusterNetworkPolicy",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"tier": "Admin", "priority": int64(3), "subject": map[string]any{"namespaces": map[string]any{}},
			"egress": []any{map[string]any{"action": "Deny", "to": []any{peer}}}}}}
	_, err := c.objects.Resource(policyResource).Create(c.t.Context(), u, metav1.CreateOptions{})
	c.must(err)
}

// grant lets user read namespaces, pods and network policies, and further resources of the policies' group.
func (c *realCluster) grant(user string, resources ...string) {
	c.t.Helper()
	read := []string{"get", "list", "watch"}
	name := user + "-" + strings.Join(resources, "-")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "pods"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: read}}}
	if len(resources) > 0 {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{v1alpha2.GroupName}, Resources: resources, Verbs: read})
	}
	c.bind(user, role)
}

// bind lets user do what a new role allows.
func (c *realCluster) bind(user string, role *rbacv1.ClusterRole) {
	c.t.Helper()
	_, err := c.client.RbacV1().ClusterRoles().Create(c.t.Context(), role, metav1.CreateOptions{})
	c.must(err)
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(c.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}}, metav1.CreateOptions{})
	c.must(err)
}

// watcher follows the cluster as a user.
type watcher struct {
	source Source
	sink   *recorder
	log    *sourcetest.Journal
}

// follow runs a source as a user until the test ends, and waits until it is synced.
func (c *realCluster) follow(user string) *watcher {
	c.t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	client, err := kubernetes.NewForConfig(config)
	c.must(err)
	api, err := apiclient.NewPolicyClient(client, config)
	c.must(err)
	w := &watcher{source: FromAPI(client, api, "")}
	w.source.api.askKinds = time.Second
	var logger *slog.Logger
	w.log, logger = sourcetest.NewJournal()
	w.sink = start(c.t, w.source, logger)
	return w
}

// expect waits until the sink has cluster policies, and the unsynced inputs are named by a text; empty if there are
// none.
func (w *watcher) expect(t *testing.T, names, unsynced string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("has %q, unsynced %q\n%s", w.sink.clusterPolicies(), w.source.WhyUnsynced(), w.log)
		}
	}()
	sourcetest.Eventually(t, fmt.Sprintf("%q, unsynced %q", names, unsynced), func() bool {
		why := w.source.WhyUnsynced()
		return w.sink.clusterPolicies() == names && (unsynced == "") == (why == "") && strings.Contains(why, unsynced)
	})
}

// TestS94_AKindOfARealAPIServer is absent, installed, forbidden to one user, removed, there in another version only,
// and installed again.
func TestS94_AKindOfARealAPIServer(t *testing.T) {
	c := newCluster(t)
	c.grant("plain")
	c.grant("granted", "clusternetworkpolicies", "adminnetworkpolicies")
	granted, plain := c.follow("granted"), c.follow("plain")
	granted.expect(t, "", "")
	plain.expect(t, "", "") // though a list of the kind is forbidden

	c.install("v1alpha2", "ClusterNetworkPolicy", ClusterNetworkPolicies)
	c.create("a")
	c.create("b")
	granted.expect(t, "a b", "")
	p := granted.sink.clusterPolicy("a")
	if p.Spec.Tier != v1alpha2.AdminTier || p.Spec.Priority != 3 || len(p.Spec.Egress[0].To[0].Networks) != 1 || p.UID == "" {
		t.Errorf("delivered %+v", p)
	}
	plain.expect(t, "", "clusternetworkpolicies cannot be listed: ")
	c.must(c.objects.Resource(policyResource).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	granted.expect(t, "a", "")
	late := c.follow("plain") // synced all the same
	late.expect(t, "", "clusternetworkpolicies cannot be listed: ")

	c.remove(ClusterNetworkPolicies)
	granted.expect(t, "", "")
	plain.expect(t, "", "")

	c.install("v1alpha9", "ClusterNetworkPolicy", ClusterNetworkPolicies)
	granted.expect(t, "", "only in versions that are not known: v1alpha9")
	c.remove(ClusterNetworkPolicies)
	granted.expect(t, "", "")

	c.install("v1alpha2", "ClusterNetworkPolicy", ClusterNetworkPolicies)
	c.create("c")
	granted.expect(t, "c", "")
	c.grant("plain", ClusterNetworkPolicies)
	plain.expect(t, "c", "")
	for _, w := range []*watcher{granted, plain, late} {
		if n := w.log.Count("only in versions"); n > 1 {
			t.Errorf("logged %d times:\n%s", n, w.log)
		}
		if n := w.log.Count("watch is broken"); n > 2 || n > 0 && w == granted {
			t.Errorf("logged %d times:\n%s", n, w.log)
		}
	}
}

// TestS84_NodesOfARealAPIServer are there before a policy that names them, unless they are forbidden, and until the
// last such policy is gone.
func TestS84_NodesOfARealAPIServer(t *testing.T) {
	const unsynced = "nodes cannot be listed, which ClusterNetworkPolicies name as peers: "
	c := newCluster(t)
	c.install("v1alpha2", "ClusterNetworkPolicy", ClusterNetworkPolicies)
	for name, address := range map[string]string{"one": "192.0.2.1", "two": "2001:db8::2"} {
		n := apiNode(name, "x", address, name)
		n.ResourceVersion = ""
		_, err := c.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		c.must(err)
	}
	c.grant("plain", ClusterNetworkPolicies)
	c.grant("granted", ClusterNetworkPolicies)
	c.bind("granted", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}}}})
	granted, plain := c.follow("granted"), c.follow("plain")
	c.create("other")
	granted.expect(t, "other", "")
	c.createTo("nodes", map[string]any{"nodes": map[string]any{}})
	granted.expect(t, "nodes other", "")
	if got := granted.sink.nodeNames(); got != "one two" {
		t.Errorf("sink has %s", got)
	}
	granted.sink.mu.Lock()
	if n := granted.sink.nodes["one"]; n.UID == "" || n.Labels["zone"] != "x" || fmt.Sprint(n.Addrs) != "[192.0.2.1]" {
		t.Errorf("node %+v", n)
	}
	granted.sink.mu.Unlock()
	plain.expect(t, "nodes other", unsynced)
	late := c.follow("plain") // synced all the same
	late.expect(t, "nodes other", unsynced)

	c.must(c.client.CoreV1().Nodes().Delete(t.Context(), "two", metav1.DeleteOptions{}))
	sourcetest.Eventually(t, "deleted", func() bool { return granted.sink.nodeNames() == "one" })
	c.must(c.objects.Resource(policyResource).Delete(t.Context(), "nodes", metav1.DeleteOptions{}))
	for _, w := range []*watcher{granted, plain, late} {
		w.expect(t, "other", "")
		sourcetest.Eventually(t, "no nodes", func() bool { return w.sink.nodeNames() == "" })
	}
}

// TestS94_FormerKindsOfARealAPIServer are reported if there are objects of them, in the version that the server has.
func TestS94_FormerKindsOfARealAPIServer(t *testing.T) {
	c := newCluster(t)
	c.grant("granted", "adminnetworkpolicies")
	c.install("v1alpha1", "AdminNetworkPolicy", "adminnetworkpolicies")
	old := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha2.GroupName + "/v1alpha1", "kind": "AdminNetworkPolicy",
		"metadata": map[string]any{"name": "old"},
		"spec":     map[string]any{"tier": "Admin", "priority": int64(3), "subject": map[string]any{"namespaces": map[string]any{}}}}}
	_, err := c.objects.Resource(schema.GroupVersionResource{Group: v1alpha2.GroupName, Version: "v1alpha1", Resource: "adminnetworkpolicies"}).
		Create(t.Context(), old, metav1.CreateOptions{})
	c.must(err)
	w := c.follow("granted")
	sourcetest.Eventually(t, "reported", func() bool {
		return w.log.Count("kind=adminnetworkpolicies.policy.networking.k8s.io version=v1alpha1") == 1
	})
	w.expect(t, "", "")

	client, err := kubernetes.NewForConfig(c.config)
	c.must(err)
	api, err := apiclient.NewPolicyClient(client, c.config)
	c.must(err)
	c.must(api.ConfirmAbsence(t.Context())) // the group is there, without the kind
	c.install("v1alpha2", "ClusterNetworkPolicy", ClusterNetworkPolicies)
	if err := api.ConfirmAbsence(t.Context()); err == nil {
		t.Error("the kind counts as absent")
	}
}

// TestManifestsAreRefusedAsByARealAPIServer compares what reading a manifest refuses with what the resource definition
// refuses.
func TestManifestsAreRefusedAsByARealAPIServer(t *testing.T) {
	c := newCluster(t)
	c.install("v1alpha2", "ClusterNetworkPolicy", ClusterNetworkPolicies)
	for _, spec := range specs() {
		text := "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\n" + spec
		problems := manifest.Parse("m.yaml", []byte(text)).Problems
		var object map[string]any
		c.must(yaml.Unmarshal([]byte(text), &object))
		_, err := c.objects.Resource(policyResource).Create(t.Context(), &unstructured.Unstructured{Object: object},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if (err != nil) != (len(problems) > 0) {
			t.Errorf("%s\nproblems: %v\nAPI server: %v", spec, problems, err)
		}
	}
}
