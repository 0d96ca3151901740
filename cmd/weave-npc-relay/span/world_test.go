package span_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/span"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/random"
)

// object is what a pod is set with.
type object struct {
	key     string
	version int
}

// world is a cluster, and what the agents of some nodes have been told of it.
type world struct {
	*testing.T
	*rand.Rand
	spans      *span.Spans
	version    int
	namespaces map[string]npc.Namespace
	pods       map[string]npc.Pod
	versions   map[string]int
	policies   map[string]*networkingv1.NetworkPolicy
	cluster    map[string]*v1alpha2.ClusterNetworkPolicy
	told       map[string]map[string]int // node -> pod -> version
	last       string                    // what was changed last
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, Rand: rand.New(rand.NewPCG(seed, 3)), spans: span.New(), namespaces: map[string]npc.Namespace{}, pods: map[string]npc.Pod{},
		versions: map[string]int{}, policies: map[string]*networkingv1.NetworkPolicy{}, cluster: map[string]*v1alpha2.ClusterNetworkPolicy{},
		told: map[string]map[string]int{}}
	for i := range seed % 3 * 70 { // so that nodes have numbers in several words
		w.spans.Watch(fmt.Sprint("empty", i))
	}
	return w
}

func nodes() []string { return []string{"node1", "node2", "node3"} }

// change changes something, and checks what the agents are told of it.
func (w *world) change() {
	w.version++
	space := random.Pick(w.Rand, "a", "b", "c")
	var changes []span.Change
	own := ""
	switch n := w.IntN(100); {
	case n < 45:
		p := w.pod(space)
		own = p.Namespace + "/" + p.Name
		w.last = fmt.Sprintf("set pod %+v", p)
		w.pods[own], w.versions[own] = p, w.version
		changes = w.spans.SetPod(p, object{own, w.version})
	case n < 55:
		own = fmt.Sprintf("%s/p%d", space, w.IntN(14))
		w.last = "delete pod " + own
		if _, known := w.pods[own]; known {
			delete(w.pods, own)
			changes = w.spans.DeletePod(space, own[len(space)+1:], object{own, w.version})
		}
	case n < 65:
		ns := npc.Namespace{Name: space, Labels: map[string]string{"team": random.Pick(w.Rand, "x", "y")}}
		w.last = fmt.Sprintf("set namespace %+v", ns)
		w.namespaces[space] = ns
		changes = w.spans.SetNamespace(ns)
	case n < 68:
		w.last = "delete namespace " + space
		delete(w.namespaces, space)
		changes = w.spans.DeleteNamespace(space)
	case n < 80:
		key := fmt.Sprintf("%s/q%d", space, w.IntN(3))
		p := fixture.Policy(w, key, random.Spec(w.Rand))
		if w.IntN(4) == 0 {
			p.Annotations = map[string]string{"weave-npc/staged": "true"}
		}
		w.last = "set policy " + key
		w.policies[key] = p
		changes = w.spans.SetPolicy(p)
	case n < 86:
		key := fmt.Sprintf("%s/q%d", space, w.IntN(3))
		w.last = "delete policy " + key
		delete(w.policies, key)
		changes = w.spans.DeletePolicy(space, key[len(space)+1:])
	case n < 92:
		p := random.ClusterPolicy(w.Rand)
		w.last = "set cluster policy " + p.Name
		w.cluster[p.Name] = p
		changes = w.spans.SetClusterPolicy(p)
	case n < 96:
		name := random.Pick(w.Rand, "p", "q", "r", "s")
		w.last = "delete cluster policy " + name
		delete(w.cluster, name)
		changes = w.spans.DeleteClusterPolicy(name)
	default:
		w.watch(random.Pick(w.Rand, nodes()...))
	}
	w.tell(own, changes)
}

// watch has a node watched that was not, or no longer.
func (w *world) watch(node string) {
	if w.last = "watch " + node; w.told[node] != nil {
		w.spans.Unwatch(node)
		delete(w.told, node)
		return
	}
	w.spans.Watch(node)
	w.told[node] = w.snapshot(node)
}

func (w *world) snapshot(node string) map[string]int {
	all := map[string]int{}
	for _, o := range w.spans.Snapshot(node) {
		o := o.(object)
		if _, twice := all[o.key]; twice {
			w.Fatalf("%s is twice in the span of %s", o.key, node)
		}
		all[o.key] = o.version
	}
	return all
}

// pod returns a random pod, which claims one of few addresses.
func (w *world) pod(space string) npc.Pod {
	node := w.IntN(5)
	p := npc.Pod{Namespace: space, Name: fmt.Sprintf("p%d", w.IntN(14)), UID: "u", Labels: map[string]string{"app": random.Pick(w.Rand, "web", "db")}}
	if node > 0 {
		p.Node, p.HostAddrs = fmt.Sprint("node", node), []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 0, byte(node)})}
	}
	if w.IntN(3) > 0 {
		p.Labels["tier"] = random.Pick(w.Rand, "1", "2")
	}
	for range w.IntN(3) {
		if a := netip.AddrFrom4([4]byte{10, 32, 0, byte(w.IntN(30))}); !slices.Contains(p.Addrs, a) {
			p.Addrs = append(p.Addrs, a)
		}
	}
	if w.IntN(2) == 0 {
		p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: random.Pick[uint16](w.Rand, 80, 8080)}}
	}
	p.StaleAddrs, p.Finished, p.HostNetwork = w.IntN(20) == 0, w.IntN(15) == 0, w.IntN(15) == 0
	return p
}

// tell tells the agents what has changed, in an order that has nothing missing on the way.
func (w *world) tell(own string, changes []span.Change) {
	w.Helper()
	stage := 0 // others enter, the pod itself, others leave
	for _, c := range changes {
		o, nodes := c.Object.(object), slices.Collect(w.spans.Nodes(c))
		now := map[bool]int{true: 1, false: map[span.Event]int{span.Enters: 0, span.Leaves: 2}[c.Event]}[o.key == own]
		if o.key == own && c.Event == span.Leaves {
			now = 2
		}
		if now < stage {
			w.Errorf("%s: event %d of %s comes too late: %v", w.last, c.Event, o.key, changes)
		}
		stage = now
		for _, node := range nodes {
			told := w.told[node]
			before, knew := told[o.key]
			switch c.Event {
			case span.Enters, span.Changes:
				if knew != (c.Event == span.Changes) || before == o.version {
					w.Errorf("%s: %s is told event %d of %s, which it knew: %t", w.last, node, c.Event, o.key, knew)
				}
				told[o.key] = o.version
			default:
				if _, is := w.pods[o.key]; !knew || is != (c.Event == span.Leaves) {
					w.Errorf("%s: %s is told event %d of %s, which it knew: %t, and which is there: %t", w.last, node, c.Event, o.key, knew, is)
				}
				delete(told, o.key)
			}
		}
	}
}

// check compares what the agents have been told with the definition of spans.
func (w *world) check() {
	w.Helper()
	for node, told := range w.told {
		want := w.naive(node)
		if !maps.Equal(told, want) {
			w.Fatalf("after %s, %s has been told\n%v, want\n%v", w.last, node, told, want)
		}
		if got := w.snapshot(node); !maps.Equal(got, want) {
			w.Fatalf("after %s, the snapshot of %s is\n%v, want\n%v", w.last, node, got, want)
		}
	}
	if w.spans.Pods() != len(w.pods) {
		w.Fatalf("%d pods, want %d", w.spans.Pods(), len(w.pods))
	}
}

// naive returns the span of a node, from its definition.
func (w *world) naive(node string) map[string]int {
	base := map[string]npc.Pod{}
	for key, p := range w.pods {
		if p.Node == node || w.named(node, p) {
			base[key] = p
		}
	}
	out := map[string]int{}
	for key, q := range w.pods {
		_, in := base[key]
		for _, p := range base {
			for _, a := range p.Claims() {
				in = in || slices.Contains(q.Claims(), a) || slices.Contains(q.HostAddrs, a)
			}
		}
		if in {
			out[key] = w.versions[key]
		}
	}
	return out
}

// named reports whether a policy that selects a pod of a node names a pod.
func (w *world) named(node string, p npc.Pod) bool {
	type side [len(traffic.Directions)][]policy.Rule
	names := func(rules side) bool {
		for _, d := range traffic.Directions {
			if slices.ContainsFunc(rules[d], func(r policy.Rule) bool { return w.rule(d, r, p) }) {
				return true
			}
		}
		return false
	}
	selects := func(chooses func(npc.Pod) bool) bool {
		for _, q := range w.pods {
			if q.Node == node && !q.Finished && !q.HostNetwork && chooses(q) {
				return true
			}
		}
		return false
	}
	for _, o := range w.policies {
		c := policy.Compile(o, budget.Default())
		if selects(func(q npc.Pod) bool { return q.Namespace == o.Namespace && c.Target.Matches(q.Labels) }) && names(c.Rules) {
			return true
		}
	}
	for _, o := range w.cluster {
		c := policy.CompileCluster(o)
		var rules side
		for _, d := range traffic.Directions {
			for _, r := range c.Written[d] {
				if r.Invalid == nil {
					rules[d] = append(rules[d], r.Rule)
				}
			}
		}
		chooses := func(q npc.Pod) bool { return w.in(q.Namespace, c.Namespaces) && c.Pods.Matches(q.Labels) }
		if !c.Inert && selects(chooses) && names(rules) {
			return true
		}
	}
	return false
}

func (w *world) in(space string, s policy.Selector) bool {
	ns, known := w.namespaces[space]
	return known && s.Matches(ns.Labels)
}

// rule reports whether a rule names a pod.
func (w *world) rule(d traffic.Direction, r policy.Rule, p npc.Pod) bool {
	others := len(r.Peers) == 0
	for _, peer := range r.Peers {
		switch {
		case peer.Block != nil || peer.Nodes != nil:
			others = true
		case peer.IsUnknown():
		case (peer.Namespaces == nil && peer.Namespace == p.Namespace || peer.Namespaces != nil && w.in(p.Namespace, *peer.Namespaces)) &&
			(peer.Pods == nil || peer.Pods.Matches(p.Labels)):
			return true
		}
	}
	return others && d == traffic.Egress && slices.ContainsFunc(r.Ports, func(port policy.Port) bool {
		return port.Name != "" && slices.ContainsFunc(p.Ports, func(has npc.NamedPort) bool {
			return has.Name == port.Name && port.HasProtocol(has.Protocol)
		})
	})
}
