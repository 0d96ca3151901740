package snapshot

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestNodeRanges(t *testing.T) {
	node := func(name string, spec corev1.NodeSpec) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	client := fake.NewClientset(
		node("none", corev1.NodeSpec{}),
		node("one", corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}),
		node("both", corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64"}}),
		node("broken", corev1.NodeSpec{PodCIDRs: []string{"x"}}),
	)
	for _, test := range []struct {
		node string
		want []netip.Prefix
	}{
		{"none", nil},
		{"one", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}},
		{"both", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00:1::/64")}},
	} {
		got, err := NodeRanges(context.Background(), client, test.node)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v", test.node, got, err)
		}
	}
	_, err := NodeRanges(context.Background(), client, "absent")
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("absent: %v", err)
	}
	_, err = NodeRanges(context.Background(), client, "broken")
	if err == nil || apierrors.IsNotFound(err) {
		t.Errorf("broken: %v", err)
	}
}
