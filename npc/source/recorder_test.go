package source

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// recorder is a sink that records the calls, and fails the test if calls of one kind overlap.
type recorder struct {
	t    *testing.T
	busy [5]atomic.Bool

	mu         sync.Mutex
	namespaces map[string]npc.Namespace
	pods       map[string]npc.Pod
	policies   map[string]*networkingv1.NetworkPolicy
	clusters   map[string]*v1alpha2.ClusterNetworkPolicy
	nodes      map[string]npc.Node
	calls      []string
	synced     int
	missing    npc.Missing
	connected  []string
	ended      bool
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, namespaces: map[string]npc.Namespace{}, pods: map[string]npc.Pod{},
		policies: map[string]*networkingv1.NetworkPolicy{}, clusters: map[string]*v1alpha2.ClusterNetworkPolicy{}, nodes: map[string]npc.Node{}}
}

// call records one call of a kind.
func (r *recorder) call(kind string, do func(), format string, args ...any) {
	busy := &r.busy[slices.Index([]string{Namespaces, Pods, NetworkPolicies, ClusterNetworkPolicies, Nodes}, kind)]
	if !busy.CompareAndSwap(false, true) {
		r.t.Errorf("two calls for %s at once", kind)
	}
	defer busy.Store(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		r.t.Errorf("call after Run has returned: "+format, args...)
	}
	do()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) SetNamespace(n npc.Namespace) {
	r.call(Namespaces, func() { r.namespaces[n.Name] = n }, "set namespace %s", n.Name)
}

func (r *recorder) DeleteNamespace(name string, uid types.UID) {
	r.call(Namespaces, func() {
		if r.namespaces[name].UID == uid {
			delete(r.namespaces, name)
		}
	}, "delete namespace %s", name)
}

func (r *recorder) SetPod(p npc.Pod) {
	r.call(Pods, func() { r.pods[p.Namespace+"/"+p.Name] = p }, "set pod %s/%s", p.Namespace, p.Name)
}

func (r *recorder) DeletePod(namespace, name string, uid types.UID) {
	r.call(Pods, func() {
		if r.pods[namespace+"/"+name].UID == uid {
			delete(r.pods, namespace+"/"+name)
		}
	}, "delete pod %s/%s", namespace, name)
}

func (r *recorder) SetPolicy(p *networkingv1.NetworkPolicy) {
	r.call(NetworkPolicies, func() { r.policies[p.Namespace+"/"+p.Name] = p }, "set policy %s/%s", p.Namespace, p.Name)
}

func (r *recorder) DeletePolicy(namespace, name string, uid types.UID) {
	r.call(NetworkPolicies, func() {
		if p := r.policies[namespace+"/"+name]; p != nil && p.UID == uid {
			delete(r.policies, namespace+"/"+name)
		}
	}, "delete policy %s/%s", namespace, name)
}

func (r *recorder) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	r.call(ClusterNetworkPolicies, func() { r.clusters[p.Name] = p }, "set cluster policy %s", p.Name)
}

func (r *recorder) DeleteClusterPolicy(name string, uid types.UID) {
	r.call(ClusterNetworkPolicies, func() {
		if p := r.clusters[name]; p != nil && p.UID == uid {
			delete(r.clusters, name)
		}
	}, "delete cluster policy %s", name)
}

func (r *recorder) SetNode(n npc.Node) {
	r.call(Nodes, func() { r.nodes[n.Name] = n }, "set node %s", n.Name)
}

func (r *recorder) DeleteNode(name string, uid types.UID) {
	r.call(Nodes, func() {
		if r.nodes[name].UID == uid {
			delete(r.nodes, name)
		}
	}, "delete node %s", name)
}

// clusterPolicy returns a ClusterNetworkPolicy as the sink knows it; nil if it does not.
func (r *recorder) clusterPolicy(name string) *v1alpha2.ClusterNetworkPolicy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusters[name]
}

func (r *recorder) SetSynced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced++
	r.calls = append(r.calls, "synced")
}

func (r *recorder) SetMissing(what npc.Missing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = what
	r.calls = append(r.calls, fmt.Sprintf("missing %d", what))
}

// isMissing returns the argument of the last SetMissing.
func (r *recorder) isMissing() npc.Missing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing
}

func (r *recorder) SetConnected(kind string, ok bool) {
	r.call(kind, func() { r.connected = append(r.connected, fmt.Sprintf("%s %v", kind, ok)) }, "%s connected %v", kind, ok)
}

// clusterPolicies returns the names of the sink's ClusterNetworkPolicies.
func (r *recorder) clusterPolicies() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.clusters)), " ")
}

// nodeNames returns the names of the sink's Nodes.
func (r *recorder) nodeNames() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.nodes)), " ")
}

// names returns the objects of the sink: "ns shop", "pod shop/web", "policy shop/deny", "cluster policy deny", "node
// a".
func (r *recorder) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name := range r.namespaces {
		names = append(names, "ns "+name)
	}
	for name := range r.pods {
		names = append(names, "pod "+name)
	}
	for name := range r.policies {
		names = append(names, "policy "+name)
	}
	for name := range r.clusters {
		names = append(names, "cluster policy "+name)
	}
	for name := range r.nodes {
		names = append(names, "node "+name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (r *recorder) pod(name string) npc.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[name]
}

func (r *recorder) podNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.pods))
}

func (r *recorder) isSynced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced > 0
}

func (r *recorder) connections(kind string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, c := range r.connected {
		if name, ok, _ := strings.Cut(c, " "); name == kind {
			found = append(found, ok)
		}
	}
	return found
}

// mark forgets the calls so far.
func (r *recorder) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

func (r *recorder) made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// start runs s until the test ends, and waits until the sink is synced.
func start(t *testing.T, s Source, log *slog.Logger) *recorder {
	t.Helper()
	r := newRecorder(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, r, log) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		r.mu.Lock()
		r.ended = true
		if r.synced > 1 {
			t.Errorf("SetSynced was called %d times", r.synced)
		}
		r.mu.Unlock()
	})
	sourcetest.Eventually(t, "synced", r.isSynced)
	return r
}
