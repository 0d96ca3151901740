package ipblock

import (
	"net/netip"
	"testing"
)

// TestRangesInWords prints ranges.
func TestRangesInWords(t *testing.T) {
	for want, r := range map[string][2]string{"10.0.0.0/8": {"10.0.0.0", "10.255.255.255"}, "10.0.0.1": {"10.0.0.1", "10.0.0.1"},
		"10.0.0.1-10.0.0.2": {"10.0.0.1", "10.0.0.2"}, "0.0.0.0/0": {"0.0.0.0", "255.255.255.255"}, "fd00::/8": {"fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"10.0.0.0-11.0.0.0": {"10.0.0.0", "11.0.0.0"}} {
		if got := (Range{netip.MustParseAddr(r[0]), netip.MustParseAddr(r[1])}).String(); got != want {
			t.Errorf("%v is %s, want %s", r, got, want)
		}
	}
}

// TestUnicast finds the first address of a range that is wanted, and no multicast address.
func TestUnicast(t *testing.T) {
	taken := netip.MustParseAddr("10.0.0.0")
	for _, c := range []struct{ name, first, last, want string }{
		{"first", "10.0.0.1", "10.0.0.9", "10.0.0.1"},
		{"taken", "10.0.0.0", "10.0.0.9", "10.0.0.1"},
		{"all_taken", "10.0.0.0", "10.0.0.0", ""},
		{"multicast", "224.0.0.0", "239.255.255.255", ""},
		{"after_multicast", "239.0.0.0", "255.255.255.255", "240.0.0.0"},
		{"IPv6_multicast", "ff02::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		{"last", "255.255.255.255", "255.255.255.255", "255.255.255.255"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Range{netip.MustParseAddr(c.first), netip.MustParseAddr(c.last)}
			got, ok := r.Unicast(func(a netip.Addr) bool { return a != taken })
			if ok != (c.want != "") || ok && got.String() != c.want {
				t.Errorf("%v has %v, %v, want %q", r, got, ok, c.want)
			}
		})
	}
}
