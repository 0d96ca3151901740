package traffic

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

func TestFamilies(t *testing.T) {
	for i, want := range []struct {
		text string
		set  ipset.Family
		ipt  iptables.Family
		addr string
	}{{"IPv4", ipset.IPv4, iptables.IPv4, "192.0.2.1"}, {"IPv6", ipset.IPv6, iptables.IPv6, "2001:db8::1"}} {
		f := Families[i]
		if int(f) != i || f.String() != want.text || f.IPSet() != want.set || f.IPTables() != want.ipt || FamilyOf(netip.MustParseAddr(want.addr)) != f {
			t.Errorf("family %d is %s, to ipset %s, to iptables %s", i, f, f.IPSet(), f.IPTables())
		}
	}
}

func TestDirections(t *testing.T) {
	text, err := json.Marshal(map[string]Direction{"d": Egress})
	if err != nil || string(text) != `{"d":"egress"}` {
		t.Errorf("as JSON: %s, %v", text, err)
	}
	for i, want := range []string{"ingress dst src", "egress src dst"} {
		d := Directions[i]
		if got := fmt.Sprint(d, " ", d.Own(), " ", d.Peer()); int(d) != i || got != want {
			t.Errorf("direction %d is %s, want %s", i, got, want)
		}
	}
}
