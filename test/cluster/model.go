package cluster

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
)

// Model is a controller, with an explainer of policies that is notified of the same objects.
type Model struct {
	*controller.Controller
	controller.Planner
	controller.Lookup
	objects *cluster.Cluster
}

func newModel(c enforce.Config) *Model {
	m := &Model{Controller: controller.New(c), objects: cluster.New()}
	m.Planner, m.Lookup = m.Controller.Planner(), m.Controller.Lookup()
	m.objects.LegacyNetpol = c.LegacyNetpol
	m.objects.SetNodeAddrs(Node, nil)
	return m
}

// SetNamespace notifies both of a namespace.
func (m *Model) SetNamespace(n npc.Namespace) {
	m.Controller.SetNamespace(n)
	m.objects.SetNamespace(n)
}

// SetNodeAddrs notifies both of the addresses of the node.
func (m *Model) SetNodeAddrs(addrs []netip.Addr) {
	m.Controller.SetNodeAddrs(addrs)
	m.objects.SetNodeAddrs(Node, addrs)
}

// SetPod notifies both of a pod.
func (m *Model) SetPod(p npc.Pod) {
	m.Controller.SetPod(p)
	m.objects.SetPod(p)
}

// SetNode notifies both of a Node.
func (m *Model) SetNode(n npc.Node) {
	m.Controller.SetNode(n)
	m.objects.SetNode(n)
}

// DeleteNode notifies both that a Node was deleted.
func (m *Model) DeleteNode(name string, uid types.UID) {
	m.Controller.DeleteNode(name, uid)
	m.objects.DeleteNode(name, uid)
}

// SetPolicy notifies both of a policy.
func (m *Model) SetPolicy(p *networkingv1.NetworkPolicy) {
	m.Controller.SetPolicy(p)
	m.objects.SetPolicy(p)
}

// SetClusterPolicy notifies both of a cluster network policy.
func (m *Model) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	m.Controller.SetClusterPolicy(p)
	m.objects.SetClusterPolicy(p)
}

// DeleteClusterPolicy notifies both that a cluster network policy was deleted.
func (m *Model) DeleteClusterPolicy(name string, uid types.UID) {
	m.Controller.DeleteClusterPolicy(name, uid)
	m.objects.DeleteClusterPolicy(name, uid)
}

// DeleteNamespace notifies both that a namespace was deleted.
func (m *Model) DeleteNamespace(name string, uid types.UID) {
	m.Controller.DeleteNamespace(name, uid)
	m.objects.DeleteNamespace(name, uid)
}

// DeletePod notifies both that a pod was deleted.
func (m *Model) DeletePod(namespace, name string, uid types.UID) {
	m.Controller.DeletePod(namespace, name, uid)
	m.objects.DeletePod(namespace, name, uid)
}

// DeletePolicy notifies both that a policy was deleted.
func (m *Model) DeletePolicy(namespace, name string, uid types.UID) {
	m.Controller.DeletePolicy(namespace, name, uid)
	m.objects.DeletePolicy(namespace, name, uid)
}
