// Package denial finds the rule of a cluster network policy for which this node dropped a packet. The kernel does not
// tell: it is asked for on paper, when a packet is reported.
//
//	f := denial.NewFinder(controller.Lookup(), "node1", false)
//	go source.Run(ctx, f.Tee(controller), log)   // the finder hears of policies, the controller of everything
//	f.DeniedBy(packet, npc.Egress)           // Admin policy pci/rule 2 'no-internet'
//
// It keeps policies, namespaces and nodes. Pods are those of a Pods, so that they are in memory once.
package denial

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/ulogd"
)

// Pods describes pods.
type Pods interface {
	// PodAt returns the pod that has an address, and whether there is one.
	PodAt(netip.Addr) (npc.Pod, bool)
	// Isolating returns the policies that isolate the local pod with an address in a direction.
	Isolating(netip.Addr, npc.Direction) []string
}

// Finder finds rules.
type Finder struct {
	pods     Pods
	node     string
	policies *cluster.Cluster
}

// NewFinder returns a finder for a node that knows no policies yet.
func NewFinder(pods Pods, node string, legacyNetpol bool) *Finder {
	f := &Finder{pods, node, cluster.New()}
	f.policies.LegacyNetpol = legacyNetpol
	return f
}

// Tee returns a sink that passes everything on to another one, and tells the finder of policies, namespaces and nodes.
func (f *Finder) Tee(to source.Sink) source.Sink { return tee{to, f.policies} }

type tee struct {
	source.Sink
	policies *cluster.Cluster
}

// SetNamespace implements source.Sink.
func (t tee) SetNamespace(n npc.Namespace) {
	t.Sink.SetNamespace(n)
	t.policies.SetNamespace(n)
}

// DeleteNamespace implements source.Sink.
func (t tee) DeleteNamespace(name string, uid types.UID) {
	t.Sink.DeleteNamespace(name, uid)
	t.policies.DeleteNamespace(name, uid)
}

// SetClusterPolicy implements source.Sink.
func (t tee) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) {
	t.Sink.SetClusterPolicy(o)
	t.policies.SetClusterPolicy(o)
}

// DeleteClusterPolicy implements source.Sink.
func (t tee) DeleteClusterPolicy(name string, uid types.UID) {
	t.Sink.DeleteClusterPolicy(name, uid)
	t.policies.DeleteClusterPolicy(name, uid)
}

// SetNode implements source.Sink.
func (t tee) SetNode(n npc.Node) {
	t.Sink.SetNode(n)
	t.policies.SetNode(n)
}

// DeleteNode implements source.Sink.
func (t tee) DeleteNode(name string, uid types.UID) {
	t.Sink.DeleteNode(name, uid)
	t.policies.DeleteNode(name, uid)
}

// DeniedBy returns the rule that denies a packet in a direction, as sentences name it. It is empty if none does, or if
// the packet does not tell its port.
func (f *Finder) DeniedBy(p ulogd.Packet, d npc.Direction) string {
	if p.Fragment || p.Truncated || len(f.policies.View().ClusterPolicies) == 0 {
		return ""
	}
	two := f.policies.Clone()
	for _, a := range []netip.Addr{p.Src, p.Dst} {
		if pod, ok := f.pods.PodAt(a); ok {
			two.SetPod(pod)
		}
	}
	verdict := explain.Explain(two.View(), flow.Flow{From: flow.End{Addr: p.Src}, To: flow.End{Addr: p.Dst}, Node: f.node,
		Service: flow.Service{Protocol: p.Protocol, Port: p.DstPort}, ThroughService: true})
	side, own := verdict.Egress, p.Src
	if d == npc.Ingress {
		side, own = verdict.Ingress, p.Dst
	}
	switch {
	case side.Allowed || side.By == nil:
		return ""
	case side.By.Tier == policy.Baseline.String() && !f.policies.LegacyNetpol && len(f.pods.Isolating(own, d)) > 0:
		return "" // NetworkPolicies are asked before, and not known here
	}
	return side.By.String()
}
