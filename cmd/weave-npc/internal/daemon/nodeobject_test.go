package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.32.1.0/24"}}}
}

// TestCheck checks that only an unknown node is an error.
func TestCheck(t *testing.T) {
	away := fake.NewClientset(nodeNamed("node1"))
	away.PrependReactor("get", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	log := slog.New(slog.DiscardHandler)
	if err := checkNode(t.Context(), fake.NewClientset(nodeNamed("node1")), "node1", log); err != nil {
		t.Errorf("the node is there: %v", err)
	}
	if err := checkNode(t.Context(), fake.NewClientset(nodeNamed("node1")), "node2", log); err == nil {
		t.Error("an unknown node is accepted")
	}
	if err := checkNode(t.Context(), away, "node2", log); err != nil {
		t.Errorf("a server that does not answer is an error: %v", err)
	}
	if err := checkNode(t.Context(), nil, "node2", log); err != nil {
		t.Errorf("without a server: %v", err)
	}
}

func TestAwaitRanges(t *testing.T) {
	var got []netip.Prefix
	set := func(ranges []netip.Prefix) { got = ranges }
	log := slog.New(slog.DiscardHandler)
	if err := awaitRanges(t.Context(), fake.NewClientset(nodeNamed("node1")), "node1", set, log); err != nil {
		t.Fatal(err)
	}
	if want := []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	got = nil
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := awaitRanges(ended, fake.NewClientset(), "node1", set, log); err != nil || got != nil {
		t.Errorf("after the end of the context: %v, %v", got, err)
	}
	if err := awaitRanges(t.Context(), nil, "node1", set, log); err != nil || got != nil {
		t.Errorf("without a server: %v, %v", got, err)
	}
}
