package syncer_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// TestANewerLayoutIsTakenOver on a real kernel, and the log says what was found.
func TestANewerLayoutIsTakenOver(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		for _, program := range []string{"iptables-", "ip6tables-"} {
			cluster.Command(t, program+string(b), "-w", "-E", "WEAVE-NPC-LAYOUT-1", "WEAVE-NPC-LAYOUT-2")
		}
		cluster.Command(t, "ipset", "flush", "weave-fail-closed-ingress")
		if !s.Live.Watch(t.Context()) {
			t.Fatal("it was not noticed")
		}
		s.well()
		s.Expect(bothServed)
		if s.Live.Watch(t.Context()) {
			t.Error("what is left of the other version is taken for a change of ours")
		}
		s.logged("written by another version", 2)
		s.agree()
		s.Expect(bothServed)
		s.logged(cannot, 0)
	})
}
