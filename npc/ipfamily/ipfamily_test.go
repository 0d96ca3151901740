package ipfamily_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/ipfamily"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

func TestFamilies(t *testing.T) {
	for f, want := range map[traffic.Family]struct {
		set   ipset.Family
		table iptables.Family
	}{traffic.IPv4: {ipset.IPv4, iptables.IPv4}, traffic.IPv6: {ipset.IPv6, iptables.IPv6}} {
		if set, table := ipfamily.IPSet(f), ipfamily.IPTables(f); set != want.set || table != want.table {
			t.Errorf("%s is %s of ipset and %s of iptables", f, set, table)
		}
	}
}
