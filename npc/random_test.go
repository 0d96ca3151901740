package npc_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/judge"
	"github.com/weave-npc/weave-npc/test/paper"
)

// history is a random world that changes, as the judge knows it and as the model is told.
type history struct {
	*world
	t        *rapid.T
	spaces   map[string]map[string]string // name -> labels
	running  map[string]npc.Pod           // namespace/name -> pod
	policies map[string]*networkingv1.NetworkPolicy
	made     int
}

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

func pick[T any](h *history, from []T, label string) T {
	return rapid.SampledFrom(from).Draw(h.t, label)
}

func (h *history) chance(percent int, label string) bool {
	return rapid.IntRange(0, 99).Draw(h.t, label) < percent
}

func (h *history) selector() *metav1.LabelSelector {
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

func (h *history) peer() networkingv1.NetworkPolicyPeer {
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

func (h *history) port() networkingv1.NetworkPolicyPort {
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

func (h *history) setPolicy() {
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = pick(h, someNamespaces, "namespace"), pick(h, []string{"p", "q", "r"}, "name")
	key := p.Namespace + "/" + p.Name
	p.UID = types.UID(key)
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
	h.policies[key] = p
	h.model.SetPolicy(p.DeepCopy())
}

func (h *history) setPod() {
	key := pick(h, someNamespaces, "namespace") + "/" + pick(h, []string{"m", "n"}, "name")
	p, known := h.running[key]
	if !known || h.chance(20, "new uid") {
		h.made++
		p = npc.Pod{Namespace: key[:1], Name: key[2:], UID: types.UID(strconv.Itoa(h.made)), Started: time.Unix(int64(h.made), 0),
			Node: pick(h, []string{node, node, "node2"}, "node")}
	}
	p.Labels = pick(h, someLabels, "labels")
	// Two pods may say that an address is theirs: it belongs to a local one, then to the later one.
	last := strconv.Itoa(rapid.IntRange(1, 6).Draw(h.t, "address"))
	p.Addrs = nil
	if h.chance(90, "IPv4") {
		p.Addrs = append(p.Addrs, netip.MustParseAddr("10.32.1."+last))
	}
	if h.chance(50, "IPv6") {
		p.Addrs = append(p.Addrs, netip.MustParseAddr("fd32:1::"+last))
	}
	p.Finished = h.chance(10, "finished")
	p.HostNetwork = h.chance(5, "host network")
	p.Ports = nil
	if h.chance(60, "named port") {
		c := pick(h, somePorts, "port")
		p.Ports = []npc.NamedPort{{Name: c.Name, Protocol: protocolNumbers[map[corev1.Protocol]string{"TCP": "tcp", "UDP": "udp"}[c.Protocol]],
			Port: uint16(c.ContainerPort)}}
	}
	h.running[key] = p
	h.model.SetPod(p)
}

func (h *history) step() {
	switch n := rapid.IntRange(0, 19).Draw(h.t, "step"); {
	case n < 7:
		h.setPod()
	case n < 13:
		h.setPolicy()
	case n < 15:
		if len(h.running) > 0 {
			key := pick(h, slices.Sorted(maps.Keys(h.running)), "pod to delete")
			p := h.running[key]
			delete(h.running, key)
			h.model.DeletePod(p.Namespace, p.Name, p.UID)
		}
	case n < 17:
		if len(h.policies) > 0 {
			key := pick(h, slices.Sorted(maps.Keys(h.policies)), "policy to delete")
			p := h.policies[key]
			delete(h.policies, key)
			h.model.DeletePolicy(p.Namespace, p.Name, p.UID)
		}
	case n < 19:
		name := pick(h, someNamespaces, "namespace")
		h.spaces[name] = pick(h, someLabels, "labels")
		h.model.SetNamespace(npc.Namespace{Name: name, UID: types.UID(name), Labels: h.spaces[name]})
	default:
		name := pick(h, someNamespaces, "namespace")
		delete(h.spaces, name)
		h.model.DeleteNamespace(name, types.UID(name))
	}
}

// judgeWorld is the world as it now is, with each address given to the pod that it belongs to.
func (h *history) judgeWorld() judge.World {
	j := judge.World{Namespaces: h.spaces}
	owners := map[netip.Addr]npc.Pod{}
	for _, p := range h.running {
		if p.Finished || p.HostNetwork {
			continue
		}
		for _, a := range p.Addrs {
			if q, ok := owners[a]; !ok || (p.Node == node) != (q.Node == node) && p.Node == node ||
				(p.Node == node) == (q.Node == node) && p.Started.After(q.Started) {
				owners[a] = p
			}
		}
	}
	for a, p := range owners {
		k := judge.Pod{Namespace: p.Namespace, Name: p.Name, Node: p.Node, Labels: p.Labels, Addrs: []netip.Addr{a}}
		for _, port := range p.Ports {
			k.Ports = append(k.Ports, corev1.ContainerPort{Name: port.Name, ContainerPort: int32(port.Port),
				Protocol: map[uint8]corev1.Protocol{6: "TCP", 17: "UDP"}[port.Protocol]})
		}
		j.Pods = append(j.Pods, k)
	}
	for _, p := range h.policies {
		j.Policies = append(j.Policies, *p)
	}
	return j
}

// cells calls f with every packet that concerns a pod.
func (h *history) cells(j judge.World, f func(judge.Packet)) {
	var addrs []netip.Addr
	for i := 1; i <= 6; i++ {
		addrs = append(addrs, netip.MustParseAddr(fmt.Sprintf("10.32.1.%d", i)), netip.MustParseAddr(fmt.Sprintf("fd32:1::%d", i)))
	}
	addrs = append(addrs, h.addrs["outside"]...)
	owned := map[netip.Addr]bool{}
	for _, p := range j.Pods {
		owned[p.Addrs[0]] = true
	}
	for _, src := range addrs {
		for _, dst := range addrs {
			if src.Is4() != dst.Is4() || src == dst || !owned[src] && !owned[dst] {
				continue
			}
			for _, protocol := range []corev1.Protocol{"TCP", "UDP", "SCTP", "ICMP"} {
				for _, port := range []int32{79, 80, 81} {
					f(judge.Packet{Src: src, Dst: dst, Protocol: protocol, Port: port})
				}
			}
		}
	}
}

// onPaper is the verdict of the kernel on paper.
func (h *history) onPaper(p judge.Packet) paper.Verdict {
	return h.judge(paper.Packet{Src: p.Src, Dst: p.Dst, DstPort: uint16(p.Port), In: "cni0", Out: "cni0",
		Protocol: map[corev1.Protocol]uint8{"TCP": 6, "UDP": 17, "SCTP": 132, "ICMP": 1}[p.Protocol]})
}

// check compares every cell with the judge's.
func (h *history) check() {
	j := h.judgeWorld()
	h.cells(j, func(p judge.Packet) {
		if got, want := h.onPaper(p), j.Allowed(node, p); got.Accepted != want {
			h.t.Fatalf("%v: accepted = %t, by %q; must be %t", p, got.Accepted, got.By, want)
		}
	})
}

// editPolicies changes policies alone, and checks after every step of every transaction that what both versions allow passes, and that
// nothing passes a direction that both deny (S62).
func (h *history) editPolicies() {
	before := h.judgeWorld()
	before.Policies = slices.Clone(before.Policies)
	for range rapid.IntRange(1, 2).Draw(h.t, "edits") {
		h.setPolicy()
	}
	after := h.judgeWorld()
	for _, k := range h.kernels {
		k.AfterStep = func() {
			h.cells(after, func(p judge.Packet) {
				if p.Src.Is4() != (k.Family == npc.IPv4) {
					return
				}
				out, in := before.Judge(node, p)
				outNow, inNow := after.Judge(node, p)
				switch got := h.onPaper(p); {
				case out && in && outNow && inNow && !got.Accepted:
					h.t.Fatalf("%v: dropped in between, by %q", p, got.By)
				case got.Accepted && (!out && !outNow || !in && !inNow):
					h.t.Fatalf("%v: let through in between, by %q", p, got.By)
				}
			})
		}
	}
	h.again(h.chance(20, "tidy"))
	for _, k := range h.kernels {
		k.AfterStep = nil
	}
}

// TestRandomHistories compares the verdicts of random worlds, after each step of random histories, with the judge's. Unknown
// addresses are let through (--gate open), for the judge knows nothing of them. -rapid.checks says how many.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{world: newWorld(t, func(c *npc.Config) { c.Gate = npc.GateOpen }), t: rt, spaces: map[string]map[string]string{},
			running: map[string]npc.Pod{}, policies: map[string]*networkingv1.NetworkPolicy{}}
		for range rapid.IntRange(0, 12).Draw(rt, "before") {
			h.step()
		}
		h.sync()
		h.check()
		for range rapid.IntRange(1, 10).Draw(rt, "rounds") {
			if h.chance(30, "policies alone") {
				h.editPolicies()
				h.check()
				continue
			}
			for range rapid.IntRange(1, 3).Draw(rt, "steps") {
				h.step()
			}
			h.again(h.chance(20, "tidy"))
			h.check()
		}
		h.end()
	})
}

// end removes everything and looks for what is left.
func (h *history) end() {
	for _, p := range h.running {
		h.model.DeletePod(p.Namespace, p.Name, p.UID)
	}
	for _, p := range h.policies {
		h.model.DeletePolicy(p.Namespace, p.Name, p.UID)
	}
	for name := range h.spaces {
		h.model.DeleteNamespace(name, types.UID(name))
	}
	h.again(false)
	h.tidyUp()
	for name, s := range h.kernels[0].Sets {
		if len(name) == 31 { // the length of the names that are hashes
			h.t.Fatalf("left: set %s of %d", name, len(s.Members))
		}
	}
	for _, k := range h.kernels {
		for name := range k.Chains {
			if len(name) > 24 {
				h.t.Fatalf("left: chain %s", name)
			}
		}
	}
}
