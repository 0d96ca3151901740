package naming_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

func TestFamilies(t *testing.T) {
	for f, want := range map[npc.Family]struct {
		set   ipset.Family
		table iptables.Family
	}{npc.IPv4: {ipset.IPv4, iptables.IPv4}, npc.IPv6: {ipset.IPv6, iptables.IPv6}} {
		if set, table := naming.IPSet(f), naming.IPTables(f); set != want.set || table != want.table {
			t.Errorf("%s is %s of ipset and %s of iptables", f, set, table)
		}
	}
}
