package source

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
)

func TestTransformsKeepOnlyFactsAndMayRunTwice(t *testing.T) {
	noise := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7",
		Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	for _, test := range []struct {
		name      string
		transform func(any) (any, error)
		obj       any
	}{
		{"namespace", transformNamespace, &corev1.Namespace{ObjectMeta: noise}},
		{"pod", transformPod, &corev1.Pod{ObjectMeta: noise}},
		{"node", transformNode, &corev1.Node{ObjectMeta: noise}},
		{"policy", transformPolicy, &networkingv1.NetworkPolicy{ObjectMeta: noise}},
	} {
		t.Run(test.name, func(t *testing.T) {
			once, err := test.transform(test.obj)
			if err != nil {
				t.Fatal(err)
			}
			twice, err := test.transform(once)
			if err != nil {
				t.Fatal(err)
			}
			opts := cmp.AllowUnexported(stored[npc.Namespace]{}, stored[npc.Pod]{}, stored[npc.Node]{}, stored[networkingv1.NetworkPolicy]{})
			if diff := cmp.Diff(once, twice, opts, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("second transform changes (-once +twice):\n%s", diff)
			}
			m := once.(metav1.ObjectMetaAccessor).GetObjectMeta()
			if m.GetNamespace() != "shop" || m.GetName() != "web" || m.GetUID() != "u" || m.GetResourceVersion() != "7" {
				t.Errorf("identity lost: %v", m)
			}
			if m.GetAnnotations() != nil || m.GetManagedFields() != nil {
				t.Errorf("noise kept: %v", m)
			}
		})
	}
}

// TestMetadataOfPolicies keeps what the budget and staging need: the age, and the annotations that are for weave-npc.
func TestMetadataOfPolicies(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web", UID: "u", CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		Annotations: map[string]string{"weave-npc/staged": "true", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}
	want := metav1.ObjectMeta{Name: "web", UID: "u", CreationTimestamp: meta.CreationTimestamp, Annotations: map[string]string{"weave-npc/staged": "true"}}
	p, err := transformPolicy(&networkingv1.NetworkPolicy{ObjectMeta: meta})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, p.(*stored[networkingv1.NetworkPolicy]).facts.ObjectMeta); diff != "" {
		t.Errorf("NetworkPolicy (-want +got):\n%s", diff)
	}
	if p, err = transformClusterPolicy(&v1alpha2.ClusterNetworkPolicy{ObjectMeta: meta}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, p.(*stored[v1alpha2.ClusterNetworkPolicy]).facts.ObjectMeta); diff != "" {
		t.Errorf("ClusterNetworkPolicy (-want +got):\n%s", diff)
	}
}

// TestFactsAreDeliveredOnce, and are not in the informer's memory any more then.
func TestFactsAreDeliveredOnce(t *testing.T) {
	var got []string
	deliver := deliverFacts("pod", slog.New(slog.DiscardHandler), func(p *npc.Pod) { got = append(got, p.Name) })
	s := newStored(&metav1.ObjectMeta{Name: "web"}, &npc.Pod{Name: "web"}, nil)
	deliver(nil, s)
	deliver(s, s)
	if !slices.Equal(got, []string{"web"}) || s.facts != nil {
		t.Errorf("delivered: %v, kept: %v", got, s.facts)
	}
}
