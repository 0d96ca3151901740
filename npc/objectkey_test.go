package npc_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
)

// TestOf checks that keys are those of Kubernetes, also for objects without a namespace.
func TestOf(t *testing.T) {
	for _, n := range []types.NamespacedName{{Namespace: "shop", Name: "web"}, {Name: "shop"}} {
		if got := npc.ObjectKey(n.Namespace, n.Name); got != n.String() {
			t.Errorf("%s, want %s", got, n)
		}
	}
}
