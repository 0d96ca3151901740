package syncer_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// TestPoliciesAreEditedAllTheTime, and all the same others' pods are enforced, what others change is repaired, and what
// is left over goes.
func TestPoliciesAreEditedAllTheTime(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		var edits atomic.Int64
		edit := func() { s.Model.Controller.SetPolicy(manyBlocks("edited", 2, int(edits.Add(1)))) }
		s.Pod("busy/pod", "10.32.1.50,fd32:1::50", "app=busy")
		s.Live.MakeFaults(npc.IPv4).Apply = func(ops []ipset.Op, apply func([]ipset.Op) error) error {
			edit() // there is always one that came meanwhile
			return apply(ops)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Live.Run(ctx, false) }()
		defer func() {
			cancel()
			<-ended
		}()
		edit()
		cluster.Command(t, "iptables-"+string(b), "-w", "-F", "WEAVE-NPC-DEFAULT")
		cluster.Eventually(t, "repairing", func() bool { return s.log.count("drift found") > 0 })
		cluster.Eventually(t, "having repaired", func() bool {
			return strings.Contains(cluster.Command(t, "iptables-"+string(b), "-w", "-S", "WEAVE-NPC-DEFAULT"), "no policy isolates it")
		})
		if why := s.Live.Ready(); why != "" {
			t.Errorf("not ready: %s", why)
		}
	})
}

// TestListsThatAreReplacedAllTheTime leave few chains behind, though nothing is ever quiet and every change moves a
// pod.
func TestListsThatAreReplacedAllTheTime(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		before, most := len(s.Kernels[0].Chains), 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Live.Run(ctx, false) }()
		name := func(i int) string { return fmt.Sprintf("p%d", i) }
		for i := range 40 {
			s.ClusterPolicy(name(i), `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`)
			s.Model.DeleteClusterPolicy(name(i-1), types.UID(name(i-1)))
			cluster.Eventually(t, "enforcing the list", func() bool { return s.Model.Waiting() == 0 })
			s.Live.Copy(s.Cluster)
			most = max(most, len(s.Kernels[0].Chains)-before)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if most < 16 || most > 30 {
			t.Errorf("there were up to %d chains of 40 lists, and one is used", most)
		}
	})
}
