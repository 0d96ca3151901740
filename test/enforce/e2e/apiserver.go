package e2e

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

// APIServer writes objects to an API server. It implements ObjectWriter.
type APIServer struct {
	Server *apiserver.Server
	Host   *lab.Host // of the server
	Client kubernetes.Interface
	Tiers  dynamic.ResourceInterface // ClusterNetworkPolicies
	Have   *Objects
	half   bool // that writing was broken off
}

// NewAPIServer returns a cluster whose objects are in a real API server, with a node object for each node.
func NewAPIServer(t *testing.T, backend lab.Backend) (*Cluster, *APIServer) {
	t.Helper()
	w := New(t, backend, lab.Config{})
	host, err := w.AddHost("control-plane", netip.MustParseAddr("192.0.2.20"), netip.MustParseAddr("2001:db8::20"))
	if err != nil {
		t.Fatal(err)
	}
	server := apiserver.Started(t, host, w.Dir())
	c := &APIServer{Server: server, Host: host, Have: w.Objects(Do())}
	if c.Client, err = kubernetes.NewForConfig(server.Client()); err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(server.Client())
	if err != nil {
		t.Fatal(err)
	}
	c.Tiers = objects.Resource(schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies"))
	for _, n := range w.Nodes() {
		node := &corev1.Node{}
		node.Name = n.Name()
		_, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		c.Must(t, err)
	}
	w.Source = c
	return w, c
}

// AssignRanges does what the controller of nodes does.
func (c *APIServer) AssignRanges(t *testing.T, w *Cluster) {
	t.Helper()
	for _, n := range w.Nodes() {
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
		c.Must(t, err)
		node.Spec.PodCIDRs = strings.Split(Ranges(n), ",")
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		_, err = c.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		c.Must(t, err)
	}
}

// StartAPIDaemons starts weave-npc on every node with as few flags as there can be, and those that are given.
func (w *Cluster) StartAPIDaemons(t *testing.T, c *APIServer, args ...string) {
	t.Helper()
	for _, n := range w.Nodes() {
		w.Daemons = append(w.Daemons, StartDaemon(t, n, append([]string{"--kubeconfig", c.Server.Kubeconfig(),
			"--iptables-backend", string(w.Backend)}, args...)...))
	}
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
}

// Write implements ObjectWriter: it makes the API server's objects those that are wanted, by creations, edits and
// deletions.
func (c *APIServer) Write(t *testing.T, want *Objects) {
	t.Helper()
	want = want.Clone()
	if c.half {
		c.wipe(t)
	}
	c.half = true
	for _, name := range Removed(c.Have.Tiers, want.Tiers) {
		c.Must(t, c.Tiers.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range Removed(c.Have.Policies, want.Policies) {
		namespace, own, _ := strings.Cut(name, "/")
		c.Must(t, c.Client.NetworkingV1().NetworkPolicies(namespace).Delete(t.Context(), own, metav1.DeleteOptions{}))
	}
	for _, name := range Removed(c.Have.Pods, want.Pods) {
		c.deletePod(t, name)
	}
	for _, name := range Removed(c.Have.Namespaces, want.Namespaces) {
		c.deleteNamespace(t, name)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Namespaces)) {
		c.writeNamespace(t, want.Namespaces[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.Pods)) {
		c.writePod(t, name, want.Pods[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.Policies)) {
		c.writePolicy(t, name, want.Policies[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.Tiers)) {
		c.WriteClusterPolicy(t, name, want.Tiers[name])
	}
	c.Have, c.half = want, false
}

// wipe removes every object that this test may have made.
func (c *APIServer) wipe(t *testing.T) {
	t.Helper()
	list, err := c.Client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	c.Must(t, err)
	now := int64(0)
	for _, n := range list.Items {
		if strings.HasPrefix(n.Name, "kube-") || n.Name == metav1.NamespaceDefault {
			continue
		}
		c.Must(t, c.Client.NetworkingV1().NetworkPolicies(n.Name).DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{}))
		c.Must(t, c.Client.CoreV1().Pods(n.Name).DeleteCollection(t.Context(),
			metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{}))
		c.deleteNamespace(t, n.Name)
	}
	c.Have = (&Objects{Tiers: c.Have.Tiers}).Clone()
}

// Removed returns the names that are not wanted any more.
func Removed[V any](have, want map[string]V) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// Must fails the test with the logs of the server unless err is nil.
func (c *APIServer) Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Server.Logs())
	}
}

func (c *APIServer) deletePod(t *testing.T, name string) {
	t.Helper()
	namespace, own, _ := strings.Cut(name, "/")
	now := int64(0)
	c.Must(t, c.Client.CoreV1().Pods(namespace).Delete(t.Context(), own,
		metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// deleteNamespace does what the controller of namespaces would when a namespace is empty.
func (c *APIServer) deleteNamespace(t *testing.T, name string) {
	t.Helper()
	namespaces := c.Client.CoreV1().Namespaces()
	c.Must(t, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}))
	n, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	c.Must(t, err)
	n.Spec.Finalizers = nil
	_, err = namespaces.Finalize(t.Context(), n, metav1.UpdateOptions{})
	c.Must(t, err)
}

func (c *APIServer) writeNamespace(t *testing.T, want *corev1.Namespace) {
	t.Helper()
	namespaces := c.Client.CoreV1().Namespaces()
	have := c.Have.Namespaces[want.Name]
	switch {
	case have == nil:
		_, err := namespaces.Create(t.Context(), want, metav1.CreateOptions{})
		c.Must(t, err)
	case !reflect.DeepEqual(have, want):
		n, err := namespaces.Get(t.Context(), want.Name, metav1.GetOptions{})
		c.Must(t, err)
		n.Labels, n.Annotations = want.Labels, want.Annotations
		_, err = namespaces.Update(t.Context(), n, metav1.UpdateOptions{})
		c.Must(t, err)
	}
}

func (c *APIServer) writePod(t *testing.T, name string, want *corev1.Pod) {
	t.Helper()
	pods := c.Client.CoreV1().Pods(want.Namespace)
	have := c.Have.Pods[name]
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
		c.Must(t, err)
	} else {
		p, err = pods.Get(t.Context(), want.Name, metav1.GetOptions{})
		c.Must(t, err)
		if !labels.Equals(p.Labels, want.Labels) {
			p.Labels = want.Labels
			p, err = pods.Update(t.Context(), p, metav1.UpdateOptions{})
			c.Must(t, err)
		}
	}
	p.Status = want.Status
	_, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	c.Must(t, err)
}

func (c *APIServer) writePolicy(t *testing.T, name, spec string) {
	t.Helper()
	have, exists := c.Have.Policies[name]
	if exists && have == spec {
		return
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name, _ = strings.Cut(name, "/")
	c.Must(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	policies := c.Client.NetworkingV1().NetworkPolicies(p.Namespace)
	if !exists {
		_, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
		c.Must(t, err)
		return
	}
	old, err := policies.Get(t.Context(), p.Name, metav1.GetOptions{})
	c.Must(t, err)
	old.Spec = p.Spec
	_, err = policies.Update(t.Context(), old, metav1.UpdateOptions{})
	c.Must(t, err)
}

// WriteClusterPolicy writes a spec as it is: fields that this program does not know stay, if the resource definition
// lets them.
func (c *APIServer) WriteClusterPolicy(t *testing.T, name, spec string) {
	t.Helper()
	have, exists := c.Have.Tiers[name]
	if exists && have == spec {
		return
	}
	p := &unstructured.Unstructured{Object: map[string]any{}}
	if exists {
		var err error
		p, err = c.Tiers.Get(t.Context(), name, metav1.GetOptions{})
		c.Must(t, err)
	}
	var fields map[string]any
	c.Must(t, yaml.Unmarshal([]byte(spec), &fields))
	p.Object["spec"] = fields
	p.SetAPIVersion(v1alpha2.GroupVersion.String())
	p.SetKind("ClusterNetworkPolicy")
	p.SetName(name)
	var err error
	if exists {
		_, err = c.Tiers.Update(t.Context(), p, metav1.UpdateOptions{})
	} else {
		_, err = c.Tiers.Create(t.Context(), p, metav1.CreateOptions{})
	}
	c.Must(t, err)
}

// Store puts an object into etcd, past the API server.
func (c *APIServer) Store(t *testing.T, key, object string) {
	t.Helper()
	body, err := json.Marshal(map[string][]byte{"key": []byte("/registry/" + key), "value": []byte(object)})
	c.Must(t, err)
	transport := &http.Transport{DialContext: c.Host.DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: Timeout}
	response, err := client.Post(c.etcd(t)+"/v3/kv/put", "application/json", bytes.NewReader(body))
	c.Must(t, err)
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("etcd says %s: %s %v", response.Status, text, err)
	}
}

// etcd returns the address that the API server of this cluster was given for its etcd.
func (c *APIServer) etcd(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	c.Must(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), filepath.Dir(c.Server.Kubeconfig())) {
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
