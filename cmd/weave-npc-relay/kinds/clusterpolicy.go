package kinds

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// clusterPolicyVersion is the version of ClusterNetworkPolicies that agents know.
var clusterPolicyVersion = schema.GroupVersion(v1alpha2.GroupVersion)

// clusterPolicy is a ClusterNetworkPolicy whose spec is passed on as it was read: agents decide what to make of a field
// that they do not know, and one bad object must not keep the others from being served.
type clusterPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              json.RawMessage `json:"spec,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *clusterPolicy) DeepCopyObject() runtime.Object {
	out := &clusterPolicy{TypeMeta: p.TypeMeta, Spec: bytes.Clone(p.Spec)}
	p.DeepCopyInto(&out.ObjectMeta)
	return out
}

// clusterPolicyList is a list of them.
type clusterPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []clusterPolicy `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *clusterPolicyList) DeepCopyObject() runtime.Object {
	out := &clusterPolicyList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*clusterPolicy))
	}
	return out
}

func addClusterPolicy(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(clusterPolicyVersion.WithKind("ClusterNetworkPolicy"), &clusterPolicy{})
	s.AddKnownTypeWithName(clusterPolicyVersion.WithKind("ClusterNetworkPolicyList"), &clusterPolicyList{})
	metav1.AddToGroupVersion(s, clusterPolicyVersion)
	return nil
}

func stripClusterPolicy(p *clusterPolicy) *clusterPolicy {
	return &clusterPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterPolicyVersion.String(), Kind: "ClusterNetworkPolicy"},
		ObjectMeta: convert.PolicyMeta(&p.ObjectMeta), Spec: p.Spec,
	}
}
