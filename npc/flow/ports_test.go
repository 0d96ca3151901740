package flow

import "testing"

// TestPortsInWords prints ports.
func TestPortsInWords(t *testing.T) {
	for want, p := range map[string]Ports{"everything": {}, "tcp": {6, 1, 65535}, "udp/53": {17, 53, 53}, "sctp/1-9": {132, 1, 9}, "icmp": {Protocol: 1},
		"tcp/2-65535": {6, 2, 65535}} {
		if got := p.String(); got != want {
			t.Errorf("%+v is %s, want %s", p, got, want)
		}
	}
}
