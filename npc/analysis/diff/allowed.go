package diff

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// Allowed returns all connections that a cluster state allows, as what opens when its policies replace those that
// isolate every pod. A pod's own node reaches it under any policy, and is not among them.
func Allowed(c *cluster.Cluster, o Options) *Result { return Compare(isolated(c), c, o) }

// isolated returns a cluster state with the same objects in which policies isolate all pods and allow nothing.
func isolated(c *cluster.Cluster) *cluster.Cluster {
	out, v := c.Clone(), c.View()
	out.LegacyNetpol = false
	out.SetUnreadable(npc.Unreadable{})
	for _, p := range v.Policies {
		out.DeletePolicy(p.Namespace, p.Name, "")
	}
	for _, p := range v.ClusterPolicies {
		out.DeleteClusterPolicy(p.Name, "")
	}
	done := map[string]bool{}
	for _, p := range v.Pods {
		if done[p.Namespace] {
			continue
		}
		done[p.Namespace] = true
		out.SetPolicy(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "isolated"},
			Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{
				networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}}})
	}
	return out
}
