package ipblock

import (
	"fmt"
	"net/netip"
	"testing"
)

// BenchmarkContains asks unions of different sizes for an address that they do not have.
func BenchmarkContains(b *testing.B) {
	for _, size := range []int{1, 1000, 40_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var blocks []Block
			for i := range size {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
				blocks = append(blocks, Block{CIDR: netip.PrefixFrom(a, 32)})
			}
			u, a := Of(blocks), netip.MustParseAddr("10.255.0.1")
			b.ReportAllocs()
			for b.Loop() {
				if u.Contains(a) {
					b.Fatal("it is there")
				}
			}
		})
	}
}
