package snapshot

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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
	_, err = NodeRanges(context.Background(), forbidden("get", "nodes"), "one")
	if err == nil || err.Error() != `getting node "one": forbidden` {
		t.Errorf("forbidden: %v", err)
	}
}

// forbidden returns a client that may not do something.
func forbidden(verb, kind string, objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	client.PrependReactor(verb, kind, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	return client
}

// TestNodeAddrs shows which addresses of a Node object count.
func TestNodeAddrs(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalDNS, Address: "one.example"}, {Type: corev1.NodeExternalIP, Address: "2001:db8::1"},
		{Type: corev1.NodeInternalIP, Address: "none"},
	}}}
	got, err := NodeAddrs(context.Background(), fake.NewClientset(node), "one")
	if err != nil || !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := NodeAddrs(context.Background(), forbidden("get", "nodes", node), "one"); err == nil || err.Error() != `getting node "one": forbidden` {
		t.Errorf("forbidden: %v", err)
	}
}
