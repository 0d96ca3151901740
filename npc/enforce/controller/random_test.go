package controller_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
	"github.com/weave-npc/weave-npc/test/tiers"
)

// history is a cluster that changes, for the reference model and for the controller.
type history struct {
	*harness
	state
	t tester
	// past are the states that were checked.
	past []state
	// evaluated is how many packets were evaluated.
	evaluated int
	// plain is set if no rule has a protocol or a port, or too many packets were to be evaluated: one stands for all.
	plain    bool
	sharding networkpolicy.Sharding
}

// tester is a test, or one of the many tries of a random one.
type tester interface {
	Fatalf(format string, args ...any)
}

// newHistory begins with nothing. Unknown addresses are let through (--fail-closed never), because the reference model
// does not cover them.
func newHistory(t *testing.T, tt tester) *history {
	h := &history{harness: newHarness(t, func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever }), t: tt, state: newState()}
	h.Learn([]string{"*.example.com", "example.com", "www.example.com"}, h.names)
	h.shard(networkpolicy.Sharding{MaxLeaves: 0, Targets: 1, MaxRules: 1}) // a node at every chance, and as many shards in every namespace as there can be
	return h
}

// zone returns what resolvers say.
func zone() cluster.Zone {
	return cluster.Zone{"example.com": fixture.Addrs("198.51.100.7 fd32:1::3"),
		"www.example.com": fixture.Addrs("10.32.1.3 2001:db8::7"), "a.www.example.com": fixture.Addrs("10.32.1.6 fd32:1::5")}
}

// maybeEdit has short lists of cluster network policies edited in place too, as long ones are, or not.
func (h *generator) maybeEdit() {
	if h.chance(50, "short lists are edited") {
		h.Model.Edit()
	}
}

// maybeDivide has namespaces divided as much as they can be, or as little as those of real clusters, and as many rules
// united.
func (h *generator) maybeDivide() {
	s := h.sharding
	if h.chance(50, "namespaces are whole") {
		s = networkpolicy.DefaultSharding()
	}
	if s.MaxRules = networkpolicy.DefaultSharding().MaxRules; h.chance(50, "rules are united") {
		s.MaxRules = 1
	}
	h.shard(s)
}

// shard divides namespaces.
func (h *history) shard(s networkpolicy.Sharding) {
	h.sharding = s
	h.Model.Shard(s)
}

func (h *history) setNamespace(name string, labels map[string]string) {
	h.spaces[name] = labels
	h.Model.SetNamespace(npc.Namespace{Name: name, UID: types.UID(name), Labels: labels})
}

func (h *history) setNodeAddrs(addrs []netip.Addr) {
	h.node = addrs
	h.Model.SetNodeAddrs(addrs)
}

func (h *history) setNode(n npc.Node) {
	h.nodes[n.Name] = n
	h.Model.SetNode(n)
}

func (h *history) deleteNode(name string) {
	n := h.nodes[name]
	delete(h.nodes, name)
	h.Model.DeleteNode(name, n.UID)
}

func (h *history) setPod(p npc.Pod) {
	h.pods[p.Namespace+"/"+p.Name] = p
	h.Model.SetPod(p)
}

func (h *history) setPolicy(p *networkingv1.NetworkPolicy) {
	h.policies[p.Namespace+"/"+p.Name] = p
	h.Model.SetPolicy(p.DeepCopy())
}

func (h *history) setClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	h.cluster[p.Name] = p
	h.Model.SetClusterPolicy(p.DeepCopy())
}

func (h *history) deleteClusterPolicy(name string) {
	p := h.cluster[name]
	delete(h.cluster, name)
	h.Model.DeleteClusterPolicy(name, p.UID)
}

func (h *history) deleteNamespace(name string) {
	delete(h.spaces, name)
	h.Model.DeleteNamespace(name, types.UID(name))
}

func (h *history) deletePod(key string) {
	p := h.pods[key]
	delete(h.pods, key)
	h.Model.DeletePod(p.Namespace, p.Name, p.UID)
}

func (h *history) deletePolicy(key string) {
	p := h.policies[key]
	delete(h.policies, key)
	h.Model.DeletePolicy(p.Namespace, p.Name, p.UID)
}

// generator changes a cluster at random.
type generator struct {
	*history
	t    *rapid.T
	made int
	// drawn are the policies of namespaces, each as it was set once.
	drawn []*networkingv1.NetworkPolicy
	// tiers is moreSteps if there are cluster network policies, else 0.
	tiers int
}

// moreSteps is how many more kinds of steps there are with cluster network policies.
const moreSteps = 10

var (
	someNamespaces = []string{"a", "b", "c"}
	someLabels     = []map[string]string{nil, {"x": "1"}, {"x": "2"}, {"y": "1"}, {"x": "1", "y": "1"}}
	someBlocks     = []string{"10.32.0.0/16", "10.32.1.0/30", "10.32.1.2/32", "0.0.0.0/0", "198.51.100.0/24", "::/0", "fd32:1::/64", "fd32::/16"}
	someExcepts    = map[string][]string{
		"10.32.0.0/16": {"10.32.1.0/30", "10.32.1.2/32"}, "0.0.0.0/0": {"0.0.0.0/1", "10.32.1.0/24"}, "::/0": {"fd32:1::2/128", "8000::/1"},
	}
	someProtocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	somePorts     = []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP},
		{Name: "http", ContainerPort: 81, Protocol: corev1.ProtocolTCP}, {Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolUDP}}
)

func pick[T any](h *generator, from []T, label string) T {
	return rapid.SampledFrom(from).Draw(h.t, label)
}

func (h *generator) chance(percent int, label string) bool {
	return rapid.IntRange(0, 99).Draw(h.t, label) < percent
}

func (h *generator) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: maps.Clone(pick(h, someLabels, "labels"))}
	if h.chance(25, "expression") {
		op := pick(h, []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
			metav1.LabelSelectorOpDoesNotExist}, "operator")
		e := metav1.LabelSelectorRequirement{Key: pick(h, []string{"x", "y"}, "key"), Operator: op}
		if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
			e.Values = pick(h, [][]string{{"1"}, {"2", "1"}}, "values")
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (h *generator) peer() networkingv1.NetworkPolicyPeer {
	switch rapid.IntRange(0, 3).Draw(h.t, "kind of peer") {
	case 0:
		return networkingv1.NetworkPolicyPeer{PodSelector: h.selector()}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: h.selector()}
	case 2:
		return networkingv1.NetworkPolicyPeer{PodSelector: h.selector(), NamespaceSelector: h.selector()}
	}
	b := &networkingv1.IPBlock{CIDR: pick(h, someBlocks, "cidr")}
	for _, e := range someExcepts[b.CIDR] {
		if h.chance(40, "except") {
			b.Except = append(b.Except, e)
		}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: b}
}

func (h *generator) port() networkingv1.NetworkPolicyPort {
	var p networkingv1.NetworkPolicyPort
	if h.chance(70, "protocol") {
		protocol := pick(h, someProtocols, "protocol")
		p.Protocol = &protocol
	}
	set := func(v intstr.IntOrString) { p.Port = &v }
	switch rapid.IntRange(0, 3).Draw(h.t, "kind of port") {
	case 0:
		set(intstr.FromInt32(pick(h, []int32{80, 81, 82}, "port")))
	case 1:
		set(intstr.FromString(pick(h, []string{"http", "none"}, "name")))
	case 2:
		end := pick(h, []int32{80, 81, 82}, "last")
		set(intstr.FromInt32(rapid.Int32Range(79, end).Draw(h.t, "first")))
		p.EndPort = &end
	}
	return p
}

func (h *generator) somePolicy() {
	if len(h.drawn) > 0 && h.chance(30, "a policy is again what it was") {
		h.setPolicy(pick(h, h.drawn, "policy"))
		return
	}
	p := h.drawPolicy([]string{"p", "q", "r"})
	h.drawn = append(h.drawn, p)
	h.setPolicy(p)
}

// drawPolicy draws a policy with one of some names.
func (h *generator) drawPolicy(names []string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = pick(h, someNamespaces, "namespace"), pick(h, names, "name")
	p.UID = types.UID(p.Namespace + "/" + p.Name)
	p.Spec.PodSelector = *h.selector()
	p.Spec.PolicyTypes = pick(h, [][]networkingv1.PolicyType{nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}, "types")
	rule := func() (peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		for range rapid.IntRange(0, 2).Draw(h.t, "peers") {
			peers = append(peers, h.peer())
		}
		for range rapid.IntRange(0, 2).Draw(h.t, "ports") {
			ports = append(ports, h.port())
		}
		return peers, ports
	}
	for range rapid.IntRange(0, 2).Draw(h.t, "ingress rules") {
		peers, ports := rule()
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
	}
	for range rapid.IntRange(0, 2).Draw(h.t, "egress rules") {
		peers, ports := rule()
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
	}
	return p
}

func (h *generator) somePod() {
	key := pick(h, someNamespaces, "namespace") + "/" + pick(h, []string{"m", "n"}, "name")
	p, known := h.pods[key]
	if !known || h.chance(20, "new uid") {
		h.made++
		p = npc.Pod{Namespace: key[:1], Name: key[2:], UID: types.UID(strconv.Itoa(h.made)), Started: time.Unix(int64(h.made), 0),
			Node: pick(h, []string{cluster.Node, cluster.Node, "node2"}, "cluster.Node")}
	}
	p.Labels = pick(h, someLabels, "labels")
	// Two pods may claim one address: it belongs to a local one, then to the later one.
	last := strconv.Itoa(rapid.IntRange(1, 6).Draw(h.t, "address"))
	p.Addrs = nil
	if h.chance(90, "IPv4") {
		p.Addrs = append(p.Addrs, netip.MustParseAddr("10.32.1."+last))
	}
	if h.chance(50, "IPv6") {
		p.Addrs = append(p.Addrs, netip.MustParseAddr("fd32:1::"+last))
	}
	p.Finished = h.chance(10, "finished")
	p.StaleAddrs = h.chance(10, "stale addresses")
	p.Deleting = h.chance(10, "deleting")
	p.HostNetwork = h.chance(5, "host network")
	p.HostAddrs = nil
	if h.chance(10, "the node's address is in the pods' range") {
		p.HostAddrs = hostAddrs()
	}
	p.Ports = nil
	if h.chance(60, "named port") {
		c := pick(h, somePorts, "port")
		p.Ports = []npc.NamedPort{{Name: c.Name, Protocol: cluster.ProtocolNumbers[map[corev1.Protocol]string{"TCP": "tcp", "UDP": "udp"}[c.Protocol]],
			Port: uint16(c.ContainerPort)}}
	}
	h.setPod(p)
}

// step is an event: one that changes something, or one that is late or comes twice.
func (h *generator) step() {
	switch n := rapid.IntRange(0, 24+h.tiers).Draw(h.t, "step"); {
	case n < 7:
		h.somePod()
	case n < 13:
		h.somePolicy()
	case n < 15:
		if len(h.pods) > 0 {
			h.deletePod(pick(h, slices.Sorted(maps.Keys(h.pods)), "pod to delete"))
		}
	case n < 17:
		if len(h.policies) > 0 {
			h.deletePolicy(pick(h, slices.Sorted(maps.Keys(h.policies)), "policy to delete"))
		}
	case n < 19:
		h.setNamespace(pick(h, someNamespaces, "namespace"), pick(h, someLabels, "labels"))
	case n < 20:
		h.deleteNamespace(pick(h, someNamespaces, "namespace"))
	case n < 22:
		h.swap()
	case n > 24 && n < 31:
		h.someClusterPolicy()
	case n > 32:
		h.someNode()
	case n > 30:
		if len(h.cluster) > 0 {
			h.deleteClusterPolicy(pick(h, slices.Sorted(maps.Keys(h.cluster)), "cluster policy to delete"))
		}
	case n < 23:
		h.ownNode()
	default:
		h.repeat()
	}
	if h.Model.WronglyFresh() {
		h.t.Fatalf("the fail-closed filter changes, although a plan was said to have nothing to do")
	}
}

// hostAddrs are addresses that a node may have, though they are in the pods' range.
func hostAddrs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.32.1.6"), netip.MustParseAddr("fd32:1::6")}
}

// ownNode sets the addresses of the node, which its object has too.
func (h *generator) ownNode() {
	addrs := pick(h, [][]netip.Addr{nil, hostAddrs(), hostAddrs()[:1]}, "addresses of the node")
	h.setNodeAddrs(addrs)
	h.setNode(npc.Node{Name: cluster.Node, UID: "own", Labels: someLabels[1], Addrs: addrs})
}

// someClusterPolicy sets a cluster network policy.
func (h *generator) someClusterPolicy() {
	h.setClusterPolicy(h.drawClusterPolicy([]string{"p", "q", "r"}))
}

// drawClusterPolicy draws a cluster network policy with one of some names.
func (h *generator) drawClusterPolicy(names []string) *v1alpha2.ClusterNetworkPolicy {
	p := tiers.Draw(h.t, tiers.Universe{Names: names, Namespaces: someLabels[1:], Pods: someLabels[1:], Nodes: someLabels[1:],
		CIDRs: []v1alpha2.CIDR{"10.32.0.0/16", "10.32.1.0/30", "10.32.1.2/32", "0.0.0.0/0", "198.51.100.0/24", "::/0", "fd32:1::/64", "fd32:1::2/127"},
		Ports: []int32{80, 81, 82}, PortNames: []string{"http", "none"},
		DomainNames: []v1alpha2.DomainName{"*.example.com", "example.com", "www.example.com"}})
	p.UID = types.UID(p.Name)
	return p
}

// someNode sets or deletes another node. Its addresses may be another's, or pods'.
func (h *generator) someNode() {
	name := pick(h, []string{"node2", "node3"}, "node")
	if _, known := h.nodes[name]; known && h.chance(20, "delete") {
		h.deleteNode(name)
		return
	}
	outside := h.Addrs["outside"]
	h.setNode(npc.Node{Name: name, UID: types.UID(name), Labels: pick(h, someLabels, "labels"), Addrs: pick(h, [][]netip.Addr{nil, outside, outside[:1],
		hostAddrs(), {netip.MustParseAddr("10.32.1.5"), netip.MustParseAddr("fd32:1::4")}}, "addresses")})
}

// swap gives two pods each other's addresses; for a moment both claim the same.
func (h *generator) swap() {
	if len(h.pods) < 2 {
		return
	}
	keys := slices.Sorted(maps.Keys(h.pods))
	a, b := h.pods[pick(h, keys, "one pod")], h.pods[pick(h, keys, "and the other")]
	if a.Name == b.Name && a.Namespace == b.Namespace {
		return
	}
	a.Addrs, b.Addrs = b.Addrs, a.Addrs
	h.setPod(a)
	h.setPod(b)
}

// repeat passes the model what it has, and deletes of objects that went long ago.
func (h *generator) repeat() {
	for _, key := range slices.Sorted(maps.Keys(h.pods)) {
		p := h.pods[key]
		h.Model.SetPod(p)
		h.Model.DeletePod(p.Namespace, p.Name, p.UID+"-before")
	}
	for _, key := range slices.Sorted(maps.Keys(h.policies)) {
		p := h.policies[key]
		h.Model.SetPolicy(p.DeepCopy())
		h.Model.DeletePolicy(p.Namespace, p.Name, p.UID+"-before")
	}
	for name, labels := range h.spaces {
		h.Model.SetNamespace(npc.Namespace{Name: name, UID: types.UID(name), Labels: labels})
		h.Model.DeleteNamespace(name, types.UID(name+"-before"))
	}
	for name, n := range h.nodes {
		h.Model.SetNode(n)
		h.Model.DeleteNode(name, n.UID+"-before")
	}
}

// cells calls f with every packet that concerns a pod.
func (h *history) cells(j refmodel.State, f func(refmodel.Packet)) {
	var addrs []netip.Addr
	for i := 1; i <= 6; i++ {
		addrs = append(addrs, netip.MustParseAddr(fmt.Sprintf("10.32.1.%d", i)), netip.MustParseAddr(fmt.Sprintf("fd32:1::%d", i)))
	}
	addrs = append(addrs, h.Addrs["outside"]...)
	owned := map[netip.Addr]bool{}
	for _, p := range j.Pods {
		owned[p.Addrs[0]] = true
	}
	for _, src := range addrs {
		for _, dst := range addrs {
			if src.Is4() != dst.Is4() || src == dst || !owned[src] && !owned[dst] || slices.Contains(h.node, src) {
				continue
			}
			if h.plain {
				f(refmodel.Packet{Src: src, Dst: dst, Protocol: corev1.ProtocolTCP, Port: 80})
				continue
			}
			for _, protocol := range []corev1.Protocol{"TCP", "UDP", "SCTP", "ICMP"} {
				for _, port := range []int32{79, 80, 81} {
					f(refmodel.Packet{Src: src, Dst: dst, Protocol: protocol, Port: port})
				}
			}
		}
	}
}

// inMemory is the verdict of the kernel in memory.
func (h *history) inMemory(p refmodel.Packet) simulate.PacketTrace {
	return h.Evaluate(simulate.Packet{Src: p.Src, Dst: p.Dst, DstPort: uint16(p.Port), In: "cni0", Out: "cni0",
		Protocol: packetProtocols[p.Protocol], ToNode: slices.Contains(h.node, p.Dst)})
}

// check compares every cell with the reference model's.
func (h *history) check() {
	h.past = append(h.past, h.clone())
	h.Remember()
	j := h.state.evaluated()
	h.cells(j, func(p refmodel.Packet) {
		h.evaluated++
		if got, want := h.inMemory(p), j.Allowed(cluster.Node, p); got.Accepted != want {
			h.t.Fatalf("%v: accepted = %t, by %q; must be %t", p, got.Accepted, got.By, want)
		}
		h.checkExplained(p, j)
		h.checkLookup(p, j)
	})
}

// checkLookup compares the controller's own verdict on a packet with the reference model. It skips addresses that
// several local pods claim.
func (h *history) checkLookup(p refmodel.Packet, j refmodel.State) {
	if p.Src == p.Dst && !p.ThroughService || conflicting(p, j) {
		return
	}
	f := verdict.Flow{From: p.Src, To: p.Dst, Service: flow.Service{Protocol: packetProtocols[p.Protocol], Port: uint16(p.Port)}}
	got, _ := h.Model.Evaluate(verdict.NoBound, f)
	if want := j.Allowed(cluster.Node, p); got.Allowed != want {
		h.t.Fatalf("%v: must be allowed = %t, and is evaluated as: %+v", p, want, got)
	}
}

// conflicting reports whether several local pods claim an end of a packet.
func conflicting(p refmodel.Packet, j refmodel.State) bool {
	return slices.ContainsFunc(j.Pods, func(pod refmodel.Pod) bool {
		return len(pod.ConflictingPods) > 0 && (slices.Contains(pod.Addrs, p.Src) || slices.Contains(pod.Addrs, p.Dst))
	})
}

// checkExplained compares the explanation of a packet with the reference model, direction by direction. It leaves pods
// that wait for an address to the fail-closed filter.
func (h *history) checkExplained(p refmodel.Packet, j refmodel.State) {
	const waits = "waiting for its address"
	got := h.Explain(p.Src, p.Dst, packetProtocols[p.Protocol], uint16(p.Port))
	if got.Egress.Reason == waits || got.Ingress.Reason == waits {
		return
	}
	if out, in := j.Evaluate(cluster.Node, p); got.Egress.Allowed != out || got.Ingress.Allowed != in {
		h.t.Fatalf("%v: must be let out = %t, let in = %t, and is explained as:\n%s", p, out, in, got)
	}
	if p.Src == p.Dst || conflicting(p, j) {
		return
	}
	f := verdict.Flow{From: p.Src, To: p.Dst, Service: flow.Service{Protocol: packetProtocols[p.Protocol], Port: uint16(p.Port)}}
	for _, side := range []explain.Side{got.Egress, got.Ingress} {
		want := ""
		if !side.Allowed && side.By != nil {
			want = side.By.String()
		}
		if by := h.Model.DeniedBy(f, side.Direction); by != want {
			h.t.Fatalf("%v, %s: denied by %q, and is explained as:\n%s", p, side.Direction, by, got)
		}
	}
}

var packetProtocols = map[corev1.Protocol]uint8{"TCP": 6, "UDP": 17, "SCTP": 132, "ICMP": 1}

// stepwise changes policies alone, or the labels of one pod, and checks after every step of every transaction that what
// both versions allow passes, and that nothing passes a direction that both deny (S62).
func (h *history) stepwise(edit func(), tidy bool) {
	was := h.begin(edit)
	h.evaluateSteps(transition{before: was.evaluated(), after: h.state.evaluated()}, was.node, tidy,
		func(p refmodel.Packet, by string) {
			h.t.Fatalf("%v: dropped in between, by %q\n%s", p, by, h.Applied())
		})
}

// begin has an event happen, which the kernel is yet to follow, and returns the state before it.
func (h *history) begin(event func()) state {
	was := h.clone()
	h.Applied()
	event()
	return was
}

// evaluateSteps has the kernel follow an event, and evaluates every packet after each step of that. Nothing may pass a
// direction that is denied before the event and after it; dropped is called with each packet that is dropped though it
// is allowed before and after. The addresses that the node had send nothing.
func (h *history) evaluateSteps(tr transition, node []netip.Addr, tidy bool, dropped func(p refmodel.Packet, by string)) {
	for _, k := range h.Kernels {
		k.AfterStep = func() {
			h.cells(tr.after, func(p refmodel.Packet) {
				if p.Src.Is4() != (k.Family == npc.IPv4) || slices.Contains(node, p.Src) {
					return
				}
				h.evaluated++
				out, in := tr.before.Evaluate(cluster.Node, p)
				outNow, inNow := tr.after.Evaluate(cluster.Node, p)
				switch got := h.inMemory(p); {
				case got.Accepted && (!out && !outNow || !in && !inNow):
					h.t.Fatalf("%s: %v: let through in between, by %q\n%s", tr.kind, p, got.By, h.Applied())
				case !got.Accepted && out && outNow && in && inNow:
					dropped(p, got.By)
				}
			})
		}
	}
	h.Again(tidy)
	for _, k := range h.Kernels {
		k.AfterStep = nil
	}
}

// TestRandomHistories compares the verdicts of random states of a cluster, after each round of random histories, with
// those of the reference model. -rapid.checks sets how many histories.
func TestRandomHistories(t *testing.T) { randomHistories(t, 0) }

// TestRandomHistoriesWithTiers does the same with cluster network policies mixed in.
func TestRandomHistoriesWithTiers(t *testing.T) { randomHistories(t, moreSteps) }

func randomHistories(t *testing.T, tiers int) {
	var histories, states, packets int
	var broken []state
	t.Cleanup(func() {
		t.Logf("%d histories of %d states, %d packets", histories, states, packets)
		if t.Failed() {
			keep(t, broken)
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		g := &generator{history: newHistory(t, rt), t: rt, tiers: tiers}
		g.maybeEdit()
		g.maybeDivide()
		defer func() {
			histories, states, packets = histories+1, states+len(g.past), packets+g.evaluated
			if rt.Failed() {
				broken = slices.Concat(g.past, []state{g.state}) // that of the smallest history comes last
			}
		}()
		g.live()
		g.anotherWay()
		g.end()
	})
}

// live goes through a history.
func (h *generator) live() {
	for range h.tiers { // a namespace without an object is no subject
		h.setNamespace(pick(h, someNamespaces, "namespace"), pick(h, someLabels, "labels"))
	}
	for range rapid.IntRange(0, 12).Draw(h.t, "before") {
		h.step()
	}
	h.Sync()
	h.check()
	for range rapid.IntRange(1, 10).Draw(h.t, "rounds") {
		tidy := h.chance(20, "tidy")
		if h.tiers == 0 && h.chance(30, "policies alone") {
			h.stepwise(func() {
				for range rapid.IntRange(1, 2).Draw(h.t, "edits") {
					h.somePolicy()
				}
			}, tidy)
			h.check()
			continue
		}
		if h.chance(20, "a pod alone") && len(h.pods) > 0 {
			p := h.pods[pick(h, slices.Sorted(maps.Keys(h.pods)), "pod to relabel")]
			p.Labels = pick(h, someLabels, "labels")
			if h.tiers > 0 {
				h.between("relabel", func() { h.setPod(p) }, func(string) {})
			} else {
				h.stepwise(func() { h.setPod(p) }, tidy)
			}
			h.check()
			continue
		}
		for range rapid.IntRange(1, 3).Draw(h.t, "steps") {
			h.step()
		}
		h.Again(tidy)
		h.check()
	}
}

// anotherWay gives another controller the present state, in another order, and expects the same in its kernel.
func (h *generator) anotherWay() {
	other := newHistory(h.T, h.t)
	other.shard(h.sharding)
	notify := []func(){func() { other.setNodeAddrs(h.node) }}
	for name, labels := range h.spaces {
		notify = append(notify, func() { other.setNamespace(name, labels) })
	}
	for _, p := range h.pods {
		notify = append(notify, func() { other.setPod(p) })
	}
	for _, p := range h.policies {
		notify = append(notify, func() { other.setPolicy(p) })
	}
	for _, p := range h.cluster {
		notify = append(notify, func() { other.setClusterPolicy(p) })
	}
	for _, n := range h.nodes {
		notify = append(notify, func() { other.setNode(n) })
	}
	rand.New(rand.NewPCG(rapid.Uint64().Draw(h.t, "order"), 0)).Shuffle(len(notify), func(i, j int) { notify[i], notify[j] = notify[j], notify[i] })
	if h.chance(50, "synced before") {
		other.Sync()
	}
	for _, f := range notify {
		f()
	}
	other.Sync()
	other.CollectGarbage()
	h.CollectGarbage()
	for f, k := range other.Kernels {
		if len(k.Chains) == 0 || !other.concerns(npc.Family(f)) {
			continue // what a family had once stays until the next start
		}
		if diff := cmp.Diff(h.Kernels[f].Lines(), k.Lines()); diff != "" {
			h.t.Fatalf("the same objects in another order make something else:\n%s", diff)
		}
	}
}

// concerns reports whether a local pod has an address of the family.
func (h *history) concerns(f npc.Family) bool {
	for _, p := range h.state.evaluated().Pods {
		if p.Node == cluster.Node && p.Addrs[0].Is4() == (f == npc.IPv4) {
			return true
		}
	}
	return false
}

// end removes everything and looks for what is left.
func (h *history) end() {
	h.become(newState())
	h.Again(false)
	h.CollectGarbage()
	for name, s := range h.Kernels[0].Sets {
		if len(name) == 31 { // the length of the names that are hashes
			h.t.Fatalf("left: set %s of %d", name, len(s.Members))
		}
	}
	for _, k := range h.Kernels {
		for name := range k.Chains {
			if len(name) > 24 {
				h.t.Fatalf("left: chain %s", name)
			}
		}
	}
}

// TestS62_PodsMoveBetweenParts has many policies of one namespace choose its pods by one label each, and changes one
// pod or one policy at a time: what both states allow passes at any moment, whichever part of the namespace's rules a
// pod is sent to.
func TestS62_PodsMoveBetweenParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &generator{history: newHistory(t, rt), t: rt}
		h.plain = true
		keys := []string{"w", "x", "y", "z"}
		relabelled := func(i int) npc.Pod {
			p := npc.Pod{Namespace: "a", Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), Node: cluster.Node, Labels: map[string]string{},
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 1, byte(i)})}}
			for _, key := range keys {
				if h.chance(40, key) {
					p.Labels[key] = ""
				}
			}
			return p
		}
		policy := func(i int) *networkingv1.NetworkPolicy {
			p := &networkingv1.NetworkPolicy{}
			p.Namespace, p.Name, p.UID = "a", fmt.Sprint("p", i), types.UID(fmt.Sprint(i))
			p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: pick(h, keys, "target"), Operator: metav1.LabelSelectorOpExists}}
			var peers []networkingv1.NetworkPolicyPeer
			if h.chance(50, "from pods") {
				peers = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: pick(h, keys, "peer"), Operator: metav1.LabelSelectorOpExists}}}}}
			}
			if h.chance(50, "ingress") {
				p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}}
			} else {
				p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers}}
				p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
			}
			return p
		}
		h.setNamespace("a", nil)
		for i := range 4 {
			h.setPod(relabelled(i + 1))
		}
		for i := range rapid.IntRange(1, 5).Draw(rt, "policies") {
			h.setPolicy(policy(i))
		}
		h.Sync()
		h.check()
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			change := func() { h.setPolicy(policy(rapid.IntRange(0, 4).Draw(rt, "policy"))) }
			if h.chance(60, "a pod") {
				change = func() { h.setPod(relabelled(rapid.IntRange(1, 4).Draw(rt, "pod"))) }
			}
			h.stepwise(change, h.chance(30, "tidy"))
			h.check()
		}
		h.anotherWay()
		h.end()
	})
}
