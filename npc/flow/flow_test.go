package flow

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

func TestParseService(t *testing.T) {
	for text, want := range map[string]Service{
		"tcp/5432": {npc.TCP, 5432}, "UDP/53": {npc.UDP, 53}, "sctp/80": {npc.SCTP, 80}, "80": {npc.TCP, 80},
		"icmp": {npc.ICMP, 0},
	} {
		got, err := ParseService(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		back, err := ParseService(got.String())
		if err != nil || back != want {
			t.Errorf("%s does not parse as it is printed: %v, %v", got, back, err)
		}
	}
	for text, want := range map[string]string{
		"": "the port is missing", "icmp/8": "icmp has no ports", "tcp": "whose port is missing", "tcp/0": "0 is none", "tcp/65536": "65536 is none",
		"80/tcp": "did you mean tcp/80?", "tpc/80": "did you mean tcp/80?", "80-90": ": give one port", "tcp/80,443": ": give one port", "tcp:80": "did you mean tcp/80?", "http": "is no port such as", "http/80": "did you mean tcp/80?", "udpp/53": "did you mean udp/53?",
	} {
		if got, err := ParseService(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseNamed(t *testing.T) {
	for text, want := range map[string]bool{"http": true, "udp/dns": true, "tcp": false, "icmp/http": false, "tcp/80": false, "tcp/no_name": false} {
		if protocol, name, ok := ParseNamed(text); ok != want {
			t.Errorf("%s: protocol %d, name %q, ok = %t", text, protocol, name, ok)
		}
	}
	if protocol, name, _ := ParseNamed("UDP/dns"); protocol != npc.UDP || name != "dns" {
		t.Errorf("protocol %d, name %q", protocol, name)
	}
}

// TestServicesAsText shows that a service is read from JSON as it was written there.
func TestServicesAsText(t *testing.T) {
	for _, want := range []Service{{npc.TCP, 80}, {npc.SCTP, 9}, {Protocol: npc.ICMP}, {Protocol: 47}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Service
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	for _, text := range []string{`"protocol 256"`, `"protocol x"`, `"tcp"`, `7`} {
		var got Service
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %v", text, got)
		}
	}
}

// TestBetween shows that ends of different families have no flow, and that one without an address has one with each.
func TestBetween(t *testing.T) {
	v4, v6 := End{Pod: "a/b", Addr: netip.MustParseAddr("10.32.1.2")}, End{Addr: netip.MustParseAddr("fd32::2")}
	none := End{Pod: "a/new"}
	if got := Between([]End{v4, v6}, []End{v4, v6}, Service{}); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := Between([]End{none}, []End{v4, v6}, Service{}); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// TestFlowAsJSON shows the fields that scripts read.
func TestFlowAsJSON(t *testing.T) {
	f := Flow{From: End{Pod: "a/b", Addr: netip.MustParseAddr("10.32.1.2")}, To: End{Addr: netip.MustParseAddr("192.0.2.1")},
		Service: Service{npc.TCP, 80}}
	text, err := json.Marshal(f)
	want := `{"from":{"pod":"a/b","address":"10.32.1.2"},"to":{"address":"192.0.2.1"},"port":"tcp/80"}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

// TestNamesOfEnds shows how ends and services are named in what operators read.
func TestNamesOfEnds(t *testing.T) {
	a := netip.MustParseAddr("10.32.1.2")
	for want, got := range map[string]string{
		"10.32.1.2":            End{Addr: a}.String(),
		"shop/new":             End{Pod: "shop/new"}.String(),
		"shop/web (10.32.1.2)": End{Pod: "shop/web", Addr: a}.String(),
		"sctp/80":              Service{npc.SCTP, 80}.String(),
		"protocol 47":          Service{Protocol: 47}.String(),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
