package span_test

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/judge"
)

var (
	worlds = flag.Int("worlds", 20, "how many random worlds are tried")
	seed   = flag.Uint64("seed", 1, "seed of the first world")
)

// TestSpansAreAsDefined changes random worlds, and has agents know at each moment just the pods of their node, those that policies of these can name,
// and those that tell whose the addresses of all of them are.
func TestSpansAreAsDefined(t *testing.T) {
	t.Parallel()
	known, all := 0, 0
	for n := range uint64(*worlds) {
		w := newWorld(t, *seed+n)
		for range 150 {
			w.change()
			w.check()
			for _, told := range w.told {
				known, all = known+len(told), all+len(w.pods)
			}
		}
	}
	if known == 0 || 10*known > 9*all {
		t.Errorf("agents know %d of %d pods: that tells nothing", known, all)
	}
}

// TestVerdictsWithASpanAreThoseWithAllPods has the judge decide about all flows from and to the pods of a node, once with all pods and once with those
// that the node's agent has been told.
func TestVerdictsWithASpanAreThoseWithAllPods(t *testing.T) {
	t.Parallel()
	allowed, denied := 0, 0
	for n := range uint64(*worlds) {
		w := newWorld(t, *seed+1_000+n)
		for _, node := range nodes() {
			w.watch(node)
		}
		for range 12 {
			for range 12 {
				w.change()
			}
			for node, told := range w.told {
				some := map[string]npc.Pod{}
				for key := range told {
					some[key] = w.pods[key]
				}
				whole, part := w.judged(node, w.pods), w.judged(node, some)
				for _, p := range w.packets(node, whole) {
					out, in := whole.Judge(node, p)
					if o, i := part.Judge(node, p); o != out || i != in {
						t.Fatalf("seed %d, %s, %+v: with all pods out %t in %t, with the span out %t in %t\nall %v\nspan %v", *seed+1_000+n, node, p,
							out, in, o, i, slices.Sorted(maps.Keys(w.pods)), slices.Sorted(maps.Keys(some)))
					}
					if out && in {
						allowed++
					} else {
						denied++
					}
				}
			}
		}
	}
	if t.Logf("%d flows allowed, %d denied", allowed, denied); allowed < 1000 || denied < 1000 {
		t.Error("these are too few to tell anything")
	}
}

// judged returns the world for the judge, with each address given to the pod that a node takes for its owner if it knows some pods.
func (w *world) judged(node string, pods map[string]npc.Pod) judge.World {
	j := judge.World{Namespaces: map[string]map[string]string{}}
	for name, ns := range w.namespaces {
		j.Namespaces[name] = ns.Labels
	}
	hosts := map[netip.Addr]bool{}
	for _, p := range pods {
		for _, a := range p.HostAddrs {
			hosts[a] = true
		}
	}
	claiming := map[netip.Addr][]npc.Pod{}
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		p := pods[key]
		for _, a := range p.Claims() {
			if p.Node == node || !hosts[a] {
				claiming[a] = append(claiming[a], p)
			}
		}
	}
	for a, all := range claiming {
		owner := all[0]
		for _, p := range all[1:] {
			if npc.OwnsRather(&p, &owner, node) {
				owner = p
			}
		}
		made := judge.Pod{Namespace: owner.Namespace, Name: owner.Name, Node: owner.Node, Labels: owner.Labels, Addrs: []netip.Addr{a}}
		for _, port := range owner.Ports {
			made.Ports = append(made.Ports, corev1.ContainerPort{Name: port.Name, ContainerPort: int32(port.Port), Protocol: corev1.ProtocolTCP})
		}
		for _, q := range all {
			if q.Node == node && owner.Node == node && (q.Namespace != owner.Namespace || q.Name != owner.Name) && !q.HostNetwork && !q.Finished {
				made.Rivals = append(made.Rivals, judge.Pod{Namespace: q.Namespace, Name: q.Name, Node: q.Node, Labels: q.Labels})
			}
		}
		j.Pods = append(j.Pods, made)
	}
	for _, p := range w.policies {
		j.Policies = append(j.Policies, *p)
	}
	for _, p := range w.cluster {
		j.ClusterPolicies = append(j.ClusterPolicies, *p)
	}
	for i, name := range nodes() {
		j.Nodes = append(j.Nodes, judge.Node{Name: name, Labels: map[string]string{"zone": fmt.Sprintf("%c", 'x'+i%2)},
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 0, byte(i + 1)})}})
	}
	return j
}

// packets returns some between the pods of a node and everything that has an address, or none.
func (w *world) packets(node string, j judge.World) []judge.Packet {
	others := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("10.32.0.29")}
	for i := range byte(5) {
		others = append(others, netip.AddrFrom4([4]byte{10, 32, 0, i}))
	}
	for _, p := range j.Pods {
		others = append(others, p.Addrs...)
	}
	var all []judge.Packet
	for _, p := range j.Pods {
		if p.Node != node {
			continue
		}
		for _, a := range others {
			for _, port := range []int32{80, 443, 8080} {
				all = append(all, judge.Packet{Src: p.Addrs[0], Dst: a, Protocol: "TCP", Port: port},
					judge.Packet{Src: a, Dst: p.Addrs[0], Protocol: "TCP", Port: port})
			}
		}
	}
	return all
}
