package enforce

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

// cluster writes objects to an API server. It implements objectWriter.
type cluster struct {
	server *apiserver.Server
	host   *lab.Host // of the server
	client kubernetes.Interface
	tiers  dynamic.ResourceInterface // ClusterNetworkPolicies
	have   *objects
	half   bool // that writing was broken off
}

// newCluster returns a harness whose objects are in a real API server, with a node object for each node.
func newCluster(t *testing.T, backend lab.Backend) (*harness, *cluster) {
	t.Helper()
	w := newHarness(t, backend, lab.Config{})
	host, err := w.AddHost("control-plane", netip.MustParseAddr("192.0.2.20"), netip.MustParseAddr("2001:db8::20"))
	if err != nil {
		t.Fatal(err)
	}
	server := apiserver.Started(t, host, w.Dir())
	c := &cluster{server: server, host: host, have: w.objects(do())}
	if c.client, err = kubernetes.NewForConfig(server.Client()); err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(server.Client())
	if err != nil {
		t.Fatal(err)
	}
	c.tiers = objects.Resource(schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies"))
	for _, n := range w.Nodes() {
		node := &corev1.Node{}
		node.Name = n.Name()
		_, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		c.must(t, err)
	}
	w.source = c
	return w, c
}

// assignRanges does what the controller of nodes does.
func (c *cluster) assignRanges(t *testing.T, w *harness) {
	t.Helper()
	for _, n := range w.Nodes() {
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
		c.must(t, err)
		node.Spec.PodCIDRs = strings.Split(ranges(n), ",")
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		_, err = c.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		c.must(t, err)
	}
}

// startAPIDaemons starts weave-npc on every node with as few flags as there can be, and those that are given.
func (w *harness) startAPIDaemons(t *testing.T, c *cluster, args ...string) {
	t.Helper()
	for _, n := range w.Nodes() {
		w.daemons = append(w.daemons, startDaemon(t, n, append([]string{"--kubeconfig", c.server.Kubeconfig(),
			"--iptables-backend", string(w.backend)}, args...)...))
	}
	for _, d := range w.daemons {
		d.awaitReady(t)
	}
}

// write implements objectWriter: it makes the API server's objects those that are wanted, by creations, edits and
// deletions.
func (c *cluster) write(t *testing.T, want *objects) {
	t.Helper()
	want = want.clone()
	if c.half {
		c.wipe(t)
	}
	c.half = true
	for _, name := range removed(c.have.tiers, want.tiers) {
		c.must(t, c.tiers.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range removed(c.have.policies, want.policies) {
		namespace, own, _ := strings.Cut(name, "/")
		c.must(t, c.client.NetworkingV1().NetworkPolicies(namespace).Delete(t.Context(), own, metav1.DeleteOptions{}))
	}
	for _, name := range removed(c.have.pods, want.pods) {
		c.deletePod(t, name)
	}
	for _, name := range removed(c.have.namespaces, want.namespaces) {
		c.deleteNamespace(t, name)
	}
	for _, name := range slices.Sorted(maps.Keys(want.namespaces)) {
		c.writeNamespace(t, want.namespaces[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.pods)) {
		c.writePod(t, name, want.pods[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.policies)) {
		c.writePolicy(t, name, want.policies[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.tiers)) {
		c.writeClusterPolicy(t, name, want.tiers[name])
	}
	c.have, c.half = want, false
}

// wipe removes every object that this test may have made.
func (c *cluster) wipe(t *testing.T) {
	t.Helper()
	list, err := c.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	c.must(t, err)
	now := int64(0)
	for _, n := range list.Items {
		if strings.HasPrefix(n.Name, "kube-") || n.Name == metav1.NamespaceDefault {
			continue
		}
		c.must(t, c.client.NetworkingV1().NetworkPolicies(n.Name).DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{}))
		c.must(t, c.client.CoreV1().Pods(n.Name).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{}))
		c.deleteNamespace(t, n.Name)
	}
	c.have = (&objects{tiers: c.have.tiers}).clone()
}

// removed returns the names that are not wanted any more.
func removed[V any](have, want map[string]V) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

func (c *cluster) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, c.server.Logs())
	}
}

func (c *cluster) deletePod(t *testing.T, name string) {
	t.Helper()
	namespace, own, _ := strings.Cut(name, "/")
	now := int64(0)
	c.must(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), own, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// deleteNamespace does what the controller of namespaces would when a namespace is empty.
func (c *cluster) deleteNamespace(t *testing.T, name string) {
	t.Helper()
	namespaces := c.client.CoreV1().Namespaces()
	c.must(t, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}))
	n, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	c.must(t, err)
	n.Spec.Finalizers = nil
	_, err = namespaces.Finalize(t.Context(), n, metav1.UpdateOptions{})
	c.must(t, err)
}

func (c *cluster) writeNamespace(t *testing.T, want *corev1.Namespace) {
	t.Helper()
	namespaces := c.client.CoreV1().Namespaces()
	have := c.have.namespaces[want.Name]
	switch {
	case have == nil:
		_, err := namespaces.Create(t.Context(), want, metav1.CreateOptions{})
		c.must(t, err)
	case !reflect.DeepEqual(have, want):
		n, err := namespaces.Get(t.Context(), want.Name, metav1.GetOptions{})
		c.must(t, err)
		n.Labels, n.Annotations = want.Labels, want.Annotations
		_, err = namespaces.Update(t.Context(), n, metav1.UpdateOptions{})
		c.must(t, err)
	}
}

func (c *cluster) writePod(t *testing.T, name string, want *corev1.Pod) {
	t.Helper()
	pods := c.client.CoreV1().Pods(want.Namespace)
	have := c.have.pods[name]
	if have != nil && (have.UID != want.UID || !reflect.DeepEqual(have.Spec, want.Spec)) {
		c.deletePod(t, name)
		have = nil
	}
	if reflect.DeepEqual(have, want) {
		return
	}
	var p *corev1.Pod
	var err error
	if have == nil {
		p = want.DeepCopy()
		p.UID, p.Status = "", corev1.PodStatus{}
		p, err = pods.Create(t.Context(), p, metav1.CreateOptions{})
		c.must(t, err)
	} else {
		p, err = pods.Get(t.Context(), want.Name, metav1.GetOptions{})
		c.must(t, err)
		if !labels.Equals(p.Labels, want.Labels) {
			p.Labels = want.Labels
			p, err = pods.Update(t.Context(), p, metav1.UpdateOptions{})
			c.must(t, err)
		}
	}
	p.Status = want.Status
	_, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	c.must(t, err)
}

func (c *cluster) writePolicy(t *testing.T, name, spec string) {
	t.Helper()
	have, exists := c.have.policies[name]
	if exists && have == spec {
		return
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name, _ = strings.Cut(name, "/")
	c.must(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	policies := c.client.NetworkingV1().NetworkPolicies(p.Namespace)
	if !exists {
		_, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
		c.must(t, err)
		return
	}
	old, err := policies.Get(t.Context(), p.Name, metav1.GetOptions{})
	c.must(t, err)
	old.Spec = p.Spec
	_, err = policies.Update(t.Context(), old, metav1.UpdateOptions{})
	c.must(t, err)
}

// writeClusterPolicy writes a spec as it is: fields that this program does not know stay, if the resource definition
// lets them.
func (c *cluster) writeClusterPolicy(t *testing.T, name, spec string) {
	t.Helper()
	have, exists := c.have.tiers[name]
	if exists && have == spec {
		return
	}
	p := &unstructured.Unstructured{Object: map[string]any{}}
	if exists {
		var err error
		p, err = c.tiers.Get(t.Context(), name, metav1.GetOptions{})
		c.must(t, err)
	}
	var fields map[string]any
	c.must(t, yaml.Unmarshal([]byte(spec), &fields))
	p.Object["spec"] = fields
	p.SetAPIVersion(v1alpha2.GroupVersion.String())
	p.SetKind("ClusterNetworkPolicy")
	p.SetName(name)
	var err error
	if exists {
		_, err = c.tiers.Update(t.Context(), p, metav1.UpdateOptions{})
	} else {
		_, err = c.tiers.Create(t.Context(), p, metav1.CreateOptions{})
	}
	c.must(t, err)
}

// store puts an object into etcd, past the API server.
func (c *cluster) store(t *testing.T, key, object string) {
	t.Helper()
	body, err := json.Marshal(map[string][]byte{"key": []byte("/registry/" + key), "value": []byte(object)})
	c.must(t, err)
	transport := &http.Transport{DialContext: c.host.DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: timeout}
	response, err := client.Post(c.etcd(t)+"/v3/kv/put", "application/json", bytes.NewReader(body))
	c.must(t, err)
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("etcd says %s: %s %v", response.Status, text, err)
	}
}

// etcd returns the address that the API server of this cluster was given for its etcd.
func (c *cluster) etcd(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	c.must(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), filepath.Dir(c.server.Kubeconfig())) {
			continue
		}
		for arg := range strings.SplitSeq(string(text), "\x00") {
			if url, ok := strings.CutPrefix(arg, "--etcd-servers="); ok {
				return url
			}
		}
	}
	t.Fatal("the API server's etcd cannot be found")
	return ""
}
