package whocan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/whocan"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
	"github.com/weave-npc/weave-npc/test/scene"
)

// asked is a question about a pod of a random cluster, and its answer.
type asked struct {
	*rapid.T
	*scene.Scene
	pod        string
	addrs      []netip.Addr
	direction  npc.Direction
	neighbours []whocan.Neighbour
}

func ask(rt *rapid.T, s *scene.Scene, v *cluster.View, pod string, services ...flow.Service) *asked {
	a := &asked{T: rt, Scene: s, pod: pod, addrs: s.Pod(pod).Addrs,
		direction: rapid.SampledFrom(npc.Directions[:]).Draw(rt, "direction")}
	q := whocan.Question{Ends: v.OwnedEnds(pod), Direction: a.direction, Services: services, EachPod: rapid.Bool().Draw(rt, "each pod")}
	all := whocan.Around(v, q)
	a.neighbours = all.Neighbours
	for _, name := range all.Alike {
		like := q
		like.Ends = v.OwnedEnds(name)
		a.alike(name, pod, whocan.Around(v, like).Neighbours)
	}
	return a
}

// alike checks that addresses outside get the same answers about another pod that is said to be alike. Each of the two
// pods has the other as a neighbour in place of itself, and their nodes may differ.
func (a *asked) alike(name, pod string, others []whocan.Neighbour) {
	outside := func(all []whocan.Neighbour) (out []whocan.Neighbour) {
		for _, n := range all {
			if n.Kind == whocan.KindOutside {
				out = append(out, n)
			}
		}
		return out
	}
	if x, y := fmt.Sprint(outside(a.neighbours)), fmt.Sprint(outside(others)); x != y {
		a.Fatalf("of %s holds %s,\nand of %s, which is alike, %s", pod, x, name, y)
	}
}

// want returns the reference model's answer about another end.
func (a *asked) want(other []netip.Addr, s flow.Service) string {
	if a.direction == npc.Ingress {
		return a.Reach(other, a.addrs, s)
	}
	return a.Reach(a.addrs, other, s)
}

// got returns the answer of a neighbour.
func got(n *whocan.Neighbour, s flow.Service) string {
	for _, span := range n.Ports {
		p := span.Ports
		if p == (flow.Ports{}) || p.Protocol == s.Protocol && p.First <= s.Port && s.Port <= p.Last {
			return span.Reach
		}
	}
	return "no answer"
}

// find returns the only neighbour that is such.
func (a *asked) find(what string, is func(*whocan.Neighbour) bool) *whocan.Neighbour {
	var found []*whocan.Neighbour
	for i := range a.neighbours {
		if is(&a.neighbours[i]) {
			found = append(found, &a.neighbours[i])
		}
	}
	if len(found) != 1 {
		a.Fatalf("%s is in %d neighbours of %s", what, len(found), a.pod)
	}
	return found[0]
}

// check compares the answers about a neighbour with the reference model's. Nothing else may be unknown than what is
// said to be.
func (a *asked) check(what string, n *whocan.Neighbour, other []netip.Addr, services []flow.Service) (unknown int) {
	for _, s := range services {
		want, is := a.want(other, s), got(n, s)
		if is == "unknown" {
			unknown++
		} else if want != is {
			a.Fatalf("%s of %s, %s, %s: %s, want %s: %+v", a.direction, a.pod, what, s, is, want, n.Ports)
		}
	}
	return unknown
}

func has(n *whocan.Neighbour, addr netip.Addr) bool {
	return slices.ContainsFunc(n.Addresses, func(r ipblock.Range) bool {
		return r.First.BitLen() == addr.BitLen() && !addr.Less(r.First) && !r.Last.Less(addr)
	})
}

// everybody checks the answers about all pods that were read, all nodes and some addresses outside.
func (a *asked) everybody(v *cluster.View, services []flow.Service) (unknown int) {
	for _, p := range a.Pods {
		name := p.Namespace + "/" + p.Name
		if name != a.pod && v.Pods[name] != nil {
			n := a.find(name, func(n *whocan.Neighbour) bool { return slices.Contains(n.Pods, name) })
			unknown += a.check(name, n, p.Addrs, services)
		}
	}
	for _, node := range a.Nodes {
		n := a.find(node.Name, func(n *whocan.Neighbour) bool { return n.Kind == whocan.KindNode && has(n, node.Addrs[0]) })
		if own := node.Name == a.Pod(a.pod).Node; n.OwnNode != own {
			a.Fatalf("node %s is the own node of %s: %t", node.Name, a.pod, own)
		}
		unknown += a.check(node.Name, n, node.Addrs, services)
	}
	for _, addr := range scene.Outside() {
		if slices.ContainsFunc(a.addrs, func(b netip.Addr) bool { return b.Is4() == addr.Is4() }) {
			n := a.find(addr.String(), func(n *whocan.Neighbour) bool { return n.Kind == whocan.KindOutside && has(n, addr) })
			unknown += a.check(addr.String(), n, []netip.Addr{addr}, services)
		}
	}
	return unknown
}

// TestReachabilityOfAPodMatchesReferenceModel asks about a pod of random clusters. The answers for each pod, node and
// address outside are the reference model's, on all ports that policies may distinguish, also if only one port is asked
// about.
func TestReachabilityOfAPodMatchesReferenceModel(t *testing.T) {
	differing := 0
	check := func(rt *rapid.T) {
		s := scene.Draw(rt)
		v := s.Cluster(scene.Nothing).View()
		p := rapid.SampledFrom(s.Pods).Draw(rt, "pod")
		a := ask(rt, s, v, p.Namespace+"/"+p.Name)
		if n := a.everybody(v, scene.Services()); n > 0 {
			rt.Fatalf("%d answers are unknown", n)
		}
		for i := range a.neighbours {
			differing += len(a.neighbours[i].Ports) - 1
		}
		one := rapid.SampledFrom(scene.Services()).Draw(rt, "service")
		ask(rt, s, v, a.pod, one).everybody(v, []flow.Service{one})
	}
	for _, name := range []string{"a", "b", "c"} { // 300 clusters, unless a flag says another number
		t.Run(name, func(t *testing.T) { rapid.Check(t, check) })
	}
	if !t.Failed() && differing < 500 {
		t.Errorf("ports make only %d differences", differing)
	}
}

// TestWhoReachesAPodIsUnknownOnlyWithoutRights hides namespaces of random clusters: an answer that is not unknown is
// the reference model's on the whole cluster.
func TestWhoReachesAPodIsUnknownOnlyWithoutRights(t *testing.T) {
	known, unknown := 0, 0
	check := func(rt *rapid.T) {
		s := scene.Draw(rt)
		v := s.Cluster(s.DrawHidden(rt)).View()
		i := slices.IndexFunc(s.Pods, func(p refmodel.Pod) bool { return v.Pods[p.Namespace+"/"+p.Name] != nil })
		if i < 0 {
			return
		}
		services := scene.Services()[:18]
		a := ask(rt, s, v, s.Pods[i].Namespace+"/"+s.Pods[i].Name)
		n := a.everybody(v, services)
		unknown, known = unknown+n, known+len(a.neighbours)*len(services)-n
		a.hidden(v, services)
	}
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, check) })
	}
	if !t.Failed() && (known < unknown/10 || unknown < known/10) {
		t.Errorf("%d answers are known, %d unknown", known, unknown)
	}
}

// hidden checks what is said of the pods that could not be read: nothing, or what holds for each of them.
func (a *asked) hidden(v *cluster.View, services []flow.Service) {
	for _, p := range a.Pods {
		if name := fmt.Sprintf("%s/%s", p.Namespace, p.Name); v.Pods[name] == nil {
			n := a.find(name, func(n *whocan.Neighbour) bool { return n.Kind == "unreadable" })
			for _, s := range services {
				if want := a.want(p.Addrs, s); want != "never" && got(n, s) != "unknown" && got(n, s) != want {
					a.Fatalf("%s of %s, %s, %s: %s, want %s", a.direction, a.pod, name, s, got(n, s), want)
				}
			}
		}
	}
}

// TestDomainNames shows that what a pod reaches has a line for each domain name of its policies, and that addresses
// outside have none of the names.
func TestDomainNames(t *testing.T) {
	c := cluster.New()
	c.SetPod(fixture.Pod("ns/agent 10.1.0.1 app=agent"))
	c.SetPod(fixture.Pod("ns/free 10.1.0.2 app=free"))
	c.SetNamespace(fixture.Namespace("ns"))
	c.SetClusterPolicy(fixture.ClusterPolicy(t, "names", `{tier: Admin, priority: 1,
		subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: agent}}}}, egress: [
		{action: Accept, to: [{domainNames: [b.example.com, "*.example.org"]}], protocols: [{tcp: {destinationPort: {number: 443}}}]},
		{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`))
	for _, test := range []struct {
		name, pod string
		direction npc.Direction
		port      uint16
		want      string
	}{
		{"allowed", "ns/agent", npc.Egress, 443, "*.example.org allowed, b.example.com allowed, any IPv4 address outside denied"},
		{"another_port", "ns/agent", npc.Egress, 80, "*.example.org denied, b.example.com denied, any IPv4 address outside denied"},
		{"not_of_its_policies", "ns/free", npc.Egress, 443, "any IPv4 address outside allowed"},
		{"who_reaches_it", "ns/agent", npc.Ingress, 443, "any IPv4 address outside allowed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, n := range whocan.Around(c.View(), whocan.Question{Ends: c.View().OwnedEnds(test.pod), Direction: test.direction,
				Services: []flow.Service{{Protocol: 6, Port: test.port}}}).Neighbours {
				if n.Kind != whocan.KindPods {
					got = append(got, n.Name+" "+n.Ports[0].Reach)
				}
			}
			if got := strings.Join(got, ", "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
