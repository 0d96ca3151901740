package controller_test

import (
	"maps"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	objects "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/npc/source/staging"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// applied returns the objects as an operator reads them, with the staged policies of a group applied.
func (r *preview) applied(harness string) *objects.View {
	var all snapshot.Objects
	for _, from := range []map[string]*networkingv1.NetworkPolicy{r.state.policies, r.policies} {
		for _, key := range slices.Sorted(maps.Keys(from)) {
			all.Policies = append(all.Policies, from[key])
		}
	}
	for _, from := range []map[string]*v1alpha2.ClusterNetworkPolicy{r.state.cluster, r.cluster} {
		for _, name := range slices.Sorted(maps.Keys(from)) {
			all.ClusterPolicies = append(all.ClusterPolicies, from[name])
		}
	}
	made := staging.Read(all, staged.All)
	in := made.Enforced
	if slices.Contains(made.Names(), harness) { // else nothing is staged in it now
		var err error
		if in, err = made.In(harness); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
	c := objects.New()
	c.SetLearned(r.names.Names())
	in.Deliver(c)
	for name, labels := range r.spaces {
		c.SetNamespace(npc.Namespace{Name: name, Labels: labels})
	}
	for _, p := range r.pods {
		c.SetPod(p)
	}
	for _, n := range r.nodes {
		c.SetNode(n)
	}
	c.SetNodeAddrs(cluster.Node, r.node)
	return c.View()
}

// explain compares the explanation of every packet, in each group, with the reference model's verdict on the edited
// objects.
func (r *preview) explain() {
	is := r.state.evaluated()
	for _, harness := range []string{"true", "w"} {
		s, _ := r.in(harness)
		would, v := s.evaluated(), r.applied(harness)
		r.cells(would, func(p refmodel.Packet) {
			f := flow.Flow{From: flow.End{Addr: p.Src}, To: flow.End{Addr: p.Dst}, Node: cluster.Node,
				Service: flow.Service{Protocol: packetProtocols[p.Protocol], Port: uint16(p.Port)}}
			got := explain.Explain(v, f)
			if cluster.NotByPolicies(got) {
				return
			}
			r.evaluated++
			out, in := would.Evaluate(cluster.Node, p)
			if got.Egress.Allowed != out || got.Ingress.Allowed != in {
				r.t.Fatalf("%v in group %s: must be let out = %t, let in = %t, and is explained as:\n%s", p, harness, out, in, got)
			}
			if is.Allowed(cluster.Node, p) != (out && in) {
				r.differing++
			}
		})
	}
}

// TestS100_RandomGroupsAreExplained applies staged policies to the objects as explain --staged-group, show and replay
// do, in 300 random groups: the explanation equals the reference model's verdict on the edited objects.
func TestS100_RandomGroupsAreExplained(t *testing.T) {
	packets, differing := 0, 0
	check := func(rt *rapid.T) {
		r := newPreview(t, rt)
		r.someClusterPolicy()
		for range rapid.IntRange(1, 6).Draw(rt, "staged") {
			r.stageOne()
		}
		r.explain()
		packets, differing = packets+r.evaluated, differing+r.differing
	}
	for _, name := range []string{"a", "b", "c"} { // 300 groups, unless a flag sets another number
		t.Run(name, func(t *testing.T) { rapid.Check(t, check) })
	}
	if t.Logf("%d packets, %d of them with another verdict", packets, differing); differing == 0 && !t.Failed() {
		t.Error("no verdict is another one")
	}
}
