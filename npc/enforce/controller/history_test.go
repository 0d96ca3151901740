package controller_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/convert"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// kept is where histories are that went wrong once: a directory each, with a manifest for each state of the cluster, in
// the order of their names. TestRandomHistories puts there what it finds.
const kept = "testdata/histories"

// TestKeptHistories goes through the histories that went wrong once.
func TestKeptHistories(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(kept, "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there is nothing in %s: %v", kept, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
			if err != nil || len(files) == 0 {
				t.Fatalf("there is no manifest: %v", err)
			}
			h := newHistory(t, t)
			for i, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				next := parseState(t, string(text))
				switch {
				case i == 0:
					h.become(next)
					h.Sync()
				case next.sameButForPolicies(h.state):
					h.stepwise(func() { h.become(next) }, false)
				default:
					h.become(next)
					h.Again(false)
				}
				h.check()
			}
			h.end()
		})
	}
}

// state is a state of a cluster, as facts.
type state struct {
	spaces   map[string]map[string]string // name -> labels
	pods     map[string]npc.Pod           // namespace/name -> pod
	policies map[string]*networkingv1.NetworkPolicy
	cluster  map[string]*v1alpha2.ClusterNetworkPolicy // name -> policy
	// node are the addresses that the node has itself, and nodes the other Nodes of the cluster, by name.
	node  []netip.Addr
	nodes map[string]npc.Node
	// names are what resolvers say.
	names cluster.Zone
}

func newState() state {
	return state{map[string]map[string]string{}, map[string]npc.Pod{}, map[string]*networkingv1.NetworkPolicy{},
		map[string]*v1alpha2.ClusterNetworkPolicy{}, nil, map[string]npc.Node{}, zone()}
}

// clone shares what is never changed in place.
func (s state) clone() state {
	return state{maps.Clone(s.spaces), maps.Clone(s.pods), maps.Clone(s.policies), maps.Clone(s.cluster), s.node, maps.Clone(s.nodes), s.names}
}

func (s state) sameButForPolicies(o state) bool {
	return slices.Equal(s.node, o.node) && fmt.Sprint(s.nodes) == fmt.Sprint(o.nodes) && maps.EqualFunc(s.spaces, o.spaces, maps.Equal) &&
		maps.EqualFunc(s.pods, o.pods, func(a, b npc.Pod) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
}

// evaluated is the state for the reference model, with each address given to the pod that it belongs to.
func (s state) evaluated() refmodel.State {
	j := refmodel.State{Namespaces: s.spaces, Names: s.names}
	hosts := map[netip.Addr]bool{}
	for _, p := range s.pods {
		for _, a := range p.HostAddrs {
			hosts[a] = true
		}
	}
	owners, claiming := map[netip.Addr]npc.Pod{}, map[netip.Addr][]npc.Pod{}
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		p := s.pods[key]
		if p.Finished || p.HostNetwork || p.StaleAddrs {
			continue
		}
		for _, a := range p.Addrs {
			if slices.Contains(s.node, a) || p.Node != cluster.Node && hosts[a] {
				continue // no pod has an address of a node; other objects take none from a pod of this node
			}
			claiming[a] = append(claiming[a], p)
			if q, ok := owners[a]; !ok || rank(p) > rank(q) {
				owners[a] = p
			}
		}
	}
	for a, p := range owners {
		k := fixture.ModelPod(p)
		k.Addrs = []netip.Addr{a}
		for _, q := range claiming[a] {
			if q.Node == cluster.Node && p.Node == cluster.Node && q.UID != p.UID {
				k.ConflictingPods = append(k.ConflictingPods, refmodel.Pod{Namespace: q.Namespace, Name: q.Name, Node: q.Node, Labels: q.Labels})
			}
		}
		j.Pods = append(j.Pods, k)
	}
	for _, p := range s.policies {
		j.Policies = append(j.Policies, *p)
	}
	for _, p := range s.cluster {
		j.ClusterPolicies = append(j.ClusterPolicies, *p)
	}
	for _, n := range s.nodes {
		j.Nodes = append(j.Nodes, fixture.ModelNode(n))
	}
	return j
}

// rank orders those that claim an address: a pod of this node, one that is not being deleted, the one that started
// last.
func rank(p npc.Pod) string {
	return fmt.Sprintf("%t %t %020d %020d %s", p.Node == cluster.Node, !p.Deleting, p.Started.Unix(), p.Created.Unix(), p.UID)
}

// manifest is the state as an operator would write it.
func (s state) manifest() (string, error) {
	var objects []any
	for _, name := range slices.Sorted(maps.Keys(s.spaces)) {
		n := npc.Namespace{Name: name, UID: types.UID(name), Labels: s.spaces[name]}
		objects = append(objects, fixture.NamespaceObject(n))
	}
	if len(s.node) > 0 {
		objects = append(objects, fixture.NodeObject(npc.Node{Name: cluster.Node, Addrs: s.node}))
	}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		objects = append(objects, fixture.NodeObject(s.nodes[name]))
	}
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		objects = append(objects, fixture.PodObject(s.pods[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(s.policies)) {
		p := s.policies[key].DeepCopy()
		p.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
		objects = append(objects, p)
	}
	for _, name := range slices.Sorted(maps.Keys(s.cluster)) {
		p := s.cluster[name].DeepCopy()
		p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha2.GroupVersion.String(), Kind: "ClusterNetworkPolicy"}
		objects = append(objects, p)
	}
	var b strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "---\n%s", text)
	}
	return b.String(), nil
}

// parseState reads what manifest wrote, and fills nothing in: a namespace that is not there has not arrived.
func parseState(t *testing.T, text string) state {
	t.Helper()
	s := newState()
	for _, document := range strings.Split(text, "---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		switch kind.Kind {
		case "Namespace":
			n := fixture.Object[corev1.Namespace](t, document)
			s.spaces[n.Name] = n.Labels
		case "Node":
			n := convert.OfNode(fixture.Object[corev1.Node](t, document))
			if n.Name == cluster.Node {
				s.node = n.Addrs
				continue
			}
			s.nodes[n.Name] = n
		case "Pod":
			p, _ := convert.OfPod(fixture.Object[corev1.Pod](t, document))
			s.pods[p.Namespace+"/"+p.Name] = p
		case "NetworkPolicy":
			p := fixture.Object[networkingv1.NetworkPolicy](t, document)
			s.policies[p.Namespace+"/"+p.Name] = p
		case "ClusterNetworkPolicy":
			p := fixture.Object[v1alpha2.ClusterNetworkPolicy](t, document)
			s.cluster[p.Name] = p
		case "":
		default:
			t.Fatalf("what is a %s?", kind.Kind)
		}
	}
	return s
}

// deleteGone deletes the objects that are not among the next ones.
func deleteGone[T any](objects, next map[string]T, deleteObject func(key string)) {
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if _, stays := next[key]; !stays {
			deleteObject(key)
		}
	}
}

// become reports to the controller all that is different in the next state.
func (h *history) become(next state) {
	deleteGone(h.spaces, next.spaces, h.deleteNamespace)
	deleteGone(h.pods, next.pods, h.deletePod)
	deleteGone(h.policies, next.policies, h.deletePolicy)
	deleteGone(h.cluster, next.cluster, h.deleteClusterPolicy)
	deleteGone(h.nodes, next.nodes, h.deleteNode)
	h.setNodeAddrs(next.node)
	for _, name := range slices.Sorted(maps.Keys(next.nodes)) {
		h.setNode(next.nodes[name])
	}
	for _, key := range slices.Sorted(maps.Keys(next.spaces)) {
		h.setNamespace(key, next.spaces[key])
	}
	for _, key := range slices.Sorted(maps.Keys(next.pods)) {
		h.setPod(next.pods[key])
	}
	for _, key := range slices.Sorted(maps.Keys(next.policies)) {
		h.setPolicy(next.policies[key])
	}
	for _, key := range slices.Sorted(maps.Keys(next.cluster)) {
		h.setClusterPolicy(next.cluster[key])
	}
}

// keep writes the states of a history that went wrong to where TestKeptHistories finds them.
func keep(t *testing.T, states []state) {
	t.Helper()
	dir := filepath.Join(kept, "found-"+time.Now().UTC().Format("20060102-150405"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Error(err)
		return
	}
	for i, s := range states {
		text, err := s.manifest()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), []byte(text), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("the history is in %s: give it a name that says what broke, and keep it", dir)
}
