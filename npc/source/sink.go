package source

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
)

// The kinds that a source watches, as Sink.SetConnected names them.
const (
	Namespaces             = "namespaces"
	Pods                   = "pods"
	NetworkPolicies        = "networkpolicies"
	ClusterNetworkPolicies = "clusternetworkpolicies"
	Nodes                  = "nodes"
)

// Sink receives the facts. Calls of one kind come one at a time, SetConnected among them; calls of different kinds may
// come at once. A Set call carries the whole object, whose maps and slices belong to the source: the sink does not
// change them. The uid of a Delete call is empty if only the name of the object is known, because it was deleted during
// an outage.
type Sink interface {
	SetNamespace(npc.Namespace)
	DeleteNamespace(name string, uid types.UID)
	SetPod(npc.Pod)
	DeletePod(namespace, name string, uid types.UID)
	SetPolicy(*networkingv1.NetworkPolicy)
	DeletePolicy(namespace, name string, uid types.UID)
	// SetClusterPolicy is called with objects that no API server would take today too: a peer of an unknown kind has no
	// field, and an object that cannot be read has no tier.
	SetClusterPolicy(*v1alpha2.ClusterNetworkPolicy)
	DeleteClusterPolicy(name string, uid types.UID)
	// SetNode and DeleteNode are called only while there is a ClusterNetworkPolicy that names nodes as peers, or with
	// manifests. When the last such policy is gone, all Nodes are deleted.
	SetNode(npc.Node)
	DeleteNode(name string, uid types.UID)
	// SetMissing reports what part of the input is missing. It is called before SetSynced if anything is missing then,
	// and whenever that changes. What is missing may still exist: the sink must not remove anything because of it.
	SetMissing(npc.Missing)
	// SetSynced is called once, when the sink has received everything that existed at the start and could be read. It
	// does not wait for ClusterNetworkPolicies that cannot be listed, nor for those of an API server that does not
	// report whether it has them, nor for Nodes that cannot be listed.
	SetSynced()
	// SetConnected reports whether the watch of a kind works. It is called when that changes. ClusterNetworkPolicies
	// have a watch only while the API server has that kind, Nodes only while they are needed.
	SetConnected(kind string, ok bool)
}
