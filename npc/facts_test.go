package npc_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
)

// TestClaims shows which pods have addresses of their own.
func TestClaims(t *testing.T) {
	for _, c := range []struct {
		name   string
		pod    npc.Pod
		claims bool
	}{
		{"running", npc.Pod{}, true},
		{"being deleted", npc.Pod{Deleting: true}, true},
		{"on the network of its node", npc.Pod{HostNetwork: true}, false},
		{"finished", npc.Pod{Finished: true}, false},
		{"restarted since its status", npc.Pod{StaleAddrs: true}, false},
	} {
		c.pod.Addrs = []netip.Addr{netip.MustParseAddr("10.32.1.2")}
		if got := len(c.pod.Claims()) == 1; got != c.claims {
			t.Errorf("%s: it claims its address: %t", c.name, got)
		}
	}
}

// TestReportedBefore shows when a status is taken for one of another boot: clocks are set, and time stamps are rounded.
func TestReportedBefore(t *testing.T) {
	boot := time.Unix(10_000, 0)
	for name, c := range map[string]struct {
		started time.Time
		want    bool
	}{
		"no container has been started": {time.Time{}, false},
		"hours before":                  {boot.Add(-time.Hour), true},
		"seconds before":                {boot.Add(-9 * time.Second), false},
		"after":                         {boot.Add(time.Second), false},
	} {
		if got := (&npc.Pod{LastStart: c.started}).ReportedBefore(boot); got != c.want {
			t.Errorf("%s: reported before the boot: %t", name, got)
		}
	}
}

// TestOwnsBefore shows which of two pods gets an address that both claim. Earlier cases of the list have precedence.
func TestOwnsBefore(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct {
		name          string
		winner, loser npc.Pod
	}{
		{"a pod of this node", npc.Pod{Node: "here", Deleting: true, Started: early}, npc.Pod{Node: "there", Started: late}},
		{"one that is not being deleted", npc.Pod{Started: early}, npc.Pod{Deleting: true, Started: late}},
		{"the one that started later", npc.Pod{Started: late, Created: early}, npc.Pod{Started: early, Created: late}},
		{"the one that was created later", npc.Pod{Created: late, UID: "a"}, npc.Pod{Created: early, UID: "b"}},
		{"the greater UID, so that all nodes agree", npc.Pod{UID: "b"}, npc.Pod{UID: "a"}},
	} {
		if !npc.OwnsBefore(&c.winner, &c.loser, "here") || npc.OwnsBefore(&c.loser, &c.winner, "here") {
			t.Errorf("%s does not own the address", c.name)
		}
	}
	if same := (npc.Pod{UID: "a"}); npc.OwnsBefore(&same, &same, "here") {
		t.Error("a pod has precedence over itself")
	}
}
