package source

import (
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/weave-npc/weave-npc/npc"
)

// delivery takes the objects of one kind to the sink.
type delivery struct {
	kind      string
	example   runtime.Object
	transform cache.TransformFunc // makes a stored of an object
	set       func(old, obj any)  // both are a stored; old is nil for a new object
	remove    func(namespace, name string, uid types.UID)
}

// deliveries returns those of all kinds.
func deliveries(sink Sink, log *slog.Logger) []delivery {
	return []delivery{{
		kind:      Namespaces,
		example:   &corev1.Namespace{},
		transform: transformNamespace,
		set:       deliverFacts("namespace", log, func(n *npc.Namespace) { sink.SetNamespace(*n) }),
		remove:    func(_, name string, uid types.UID) { sink.DeleteNamespace(name, uid) },
	}, {
		kind:      Pods,
		example:   &corev1.Pod{},
		transform: transformPod,
		set:       deliverFacts("pod", log, func(p *npc.Pod) { sink.SetPod(*p) }),
		remove:    sink.DeletePod,
	}, {
		kind:      NetworkPolicies,
		example:   &networkingv1.NetworkPolicy{},
		transform: transformPolicy,
		set:       deliverFacts("policy", log, sink.SetPolicy),
		remove:    sink.DeletePolicy,
	}, clusterPolicyDelivery(sink, log), nodeDelivery(sink, log)}
}

// nodeDelivery returns the delivery of Nodes, which are not always needed.
func nodeDelivery(sink Sink, log *slog.Logger) delivery {
	return delivery{
		kind:      Nodes,
		example:   &corev1.Node{},
		transform: transformNode,
		set:       deliverFacts("node", log, func(n *npc.Node) { sink.SetNode(*n) }),
		remove:    func(_, name string, uid types.UID) { sink.DeleteNode(name, uid) },
	}
}

// clusterPolicyDelivery returns the delivery of ClusterNetworkPolicies, which an API server may have or not.
func clusterPolicyDelivery(sink Sink, log *slog.Logger) delivery {
	return delivery{
		kind:      ClusterNetworkPolicies,
		example:   &unstructured.Unstructured{},
		transform: transformClusterPolicy,
		set:       deliverFacts("policy", log, sink.SetClusterPolicy),
		remove:    func(_, name string, uid types.UID) { sink.DeleteClusterPolicy(name, uid) },
	}
}

// deliverFacts returns a function that delivers the facts of a stored object, once. From then on only the sink has
// them.
func deliverFacts[T any](kind string, log *slog.Logger, set func(*T)) func(old, obj any) {
	return func(old, obj any) {
		s := obj.(*stored[T])
		if o, _ := old.(*stored[T]); o == nil || !slices.Equal(o.ignored, s.ignored) {
			logIgnored(log, kind, s.key(), s.ignored)
		}
		if s.facts == nil {
			return // they were delivered before
		}
		set(s.facts)
		s.facts = nil
	}
}

func logIgnored(log *slog.Logger, kind, name string, ignored []string) {
	for _, what := range ignored {
		log.Warn("part of an object is ignored", kind, name, "what", what)
	}
}
