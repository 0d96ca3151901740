package syncer_test

import (
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// TestS27_NothingIsOpenedBeforeFlowsAreForgotten shows what an address gets that changed hands, while the connections
// of its former pod cannot be deleted, and that others do not wait for it.
func TestS27_NothingIsOpenedBeforeFlowsAreForgotten(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.Remote("a/far", "10.32.2.4,fd32:2::4", "app=client")
		s.well()
		s.Expect("a/far > a/web tcp:80 = yes")
		for _, f := range npc.Families {
			s.Live.FailForgetting(f, errors.New("no room"))
		}
		// A peer gives its address to another peer, of this node and of another one, and an isolated pod to one that
		// nothing isolates.
		s.DeletePod("a/client")
		s.Pod("a/next", "10.32.1.4,fd32:1::4", "app=other", "role=web")
		s.DeletePod("a/far")
		s.Remote("a/farther", "10.32.2.4,fd32:2::4", "app=other")
		s.DeletePod("a/db")
		s.Pod("a/free", "10.32.1.3,fd32:1::3", "app=free")
		s.Policy("a/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}`)
		s.Pod("a/new", "10.32.1.9,fd32:1::9", "app=other")
		s.step()
		cluster.Eventually(t, "saying that it fails", func() bool { s.step(); return strings.Contains(s.Live.Ready(), "no room") })
		s.logged("cannot delete the connections", len(npc.Families))
		s.Expect("a/new > a/web tcp:80 = yes\n a/next > a/web tcp:80 = no\n a/farther > a/web tcp:80 = no\n outside > a/free tcp:80 = no")
		for _, f := range npc.Families {
			s.Live.FailForgetting(f, nil)
		}
		cluster.Eventually(t, "opening", func() bool { s.step(); return !s.Forgetting() })
		s.well()
		s.Expect("a/new > a/web tcp:80 = yes\n a/next > a/web tcp:80 = yes\n a/farther > a/web tcp:80 = yes\n outside > a/free tcp:80 = yes")
		s.agree()
	})
}
