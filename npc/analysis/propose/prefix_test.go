package propose

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/test/fixture"
)

func TestGroupsOfAddresses(t *testing.T) {
	for _, c := range []struct {
		name, seen, avoid string
		limit             int
		want              string
	}{
		{"as_they_are", "192.0.2.1 192.0.2.4 192.0.2.1", "", 8, "192.0.2.1/32 192.0.2.4/32"},
		{"neighbours_without_widening", "192.0.2.2 192.0.2.3 192.0.2.9", "", 8, "192.0.2.2/31 192.0.2.9/32"},
		{"the_nearest_when_there_are_too_many", "192.0.2.1 192.0.2.4 198.51.100.7", "", 2, "192.0.2.0/29 198.51.100.7/32"},
		{"all_in_one", "10.0.0.1 192.0.2.1", "", 1, "0.0.0.0/0"},
		{"each_family_has_one", "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2", "", 1, "192.0.2.0/30 2001:db8::/126"},
		{"the_wider_family_has_more", "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8:1::", "", 3, "192.0.2.0/30 2001:db8::1/128 2001:db8:1::/128"},
		{"wider_before_over_pods", "10.0.0.1 10.0.0.6 10.1.0.1 10.1.1.1", "10.0.0.3", 3, "10.0.0.1/32 10.0.0.6/32 10.1.0.0/23"},
		{"pods_are_excepted_if_need_be", "10.0.0.1 10.0.0.6", "10.0.0.4 10.0.0.5 10.9.0.1", 1, "10.0.0.0/29 except 10.0.0.4/31"},
		{"an_address_that_was_a_pod_too", "10.0.0.1 10.0.0.6", "10.0.0.1", 1, "10.0.0.0/29"},
		{"all_of_IPv6", ":: ffff::", "8000::1 1::", 1, "::/0 except 1::/16 8000::/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, b := range group(fixture.Addrs(c.seen), fixture.Addrs(c.avoid), c.limit) {
				text := b.String()
				if len(b.except) > 0 {
					text += " except " + strings.Trim(fmt.Sprint(b.except), "[]")
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s, want %s", strings.Join(got, " "), c.want)
			}
		})
	}
}

// narrowest returns the number of addresses in the narrowest ranges, at most a limit, that contain sorted ones: each
// holds some in a row.
func narrowest(sorted []netip.Addr, limit int) uint64 {
	if len(sorted) == 0 {
		return 0
	}
	if limit == 0 {
		return math.MaxUint32 * 2
	}
	best := uint64(math.MaxUint64)
	for n := 1; n <= len(sorted); n++ {
		bits := 32
		for bits > 0 && !netip.PrefixFrom(sorted[0], bits).Masked().Contains(sorted[n-1]) {
			bits--
		}
		best = min(best, uint64(1)<<(32-bits)+narrowest(sorted[n:], limit-1))
	}
	return best
}

// TestGroupsAreNoWiderThanNeeded compares random groups with all that there could be.
func TestGroupsAreNoWiderThanNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seen []netip.Addr
		for range rapid.IntRange(1, 9).Draw(t, "number") {
			n := rapid.IntRange(0, 255).Draw(t, "last") << (8 * rapid.IntRange(0, 1).Draw(t, "byte"))
			seen = append(seen, netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}))
		}
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		var got uint64
		blocks := group(seen, nil, limit)
		for _, b := range blocks {
			got += uint64(1) << (32 - b.Bits())
		}
		slices.SortFunc(seen, netip.Addr.Compare)
		seen = slices.Compact(seen)
		if want := narrowest(seen, limit); got != want || len(blocks) > limit {
			t.Errorf("%v at most %d: %v contain %d addresses, want %d", seen, limit, blocks, got, want)
		}
		for _, a := range seen {
			if !slices.ContainsFunc(blocks, func(b block) bool { return b.Contains(a) }) {
				t.Errorf("%s is not in %v", a, blocks)
			}
		}
	})
}
