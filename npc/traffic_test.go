package npc

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
)

func TestFamilies(t *testing.T) {
	for i, want := range []struct{ text, addr string }{{"IPv4", "192.0.2.1"}, {"IPv6", "2001:db8::1"}} {
		f := Families[i]
		if int(f) != i || f.String() != want.text || FamilyOf(netip.MustParseAddr(want.addr)) != f {
			t.Errorf("family %d is %s", i, f)
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
