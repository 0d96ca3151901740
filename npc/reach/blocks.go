package reach

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc/ipblock"
)

// blocks distinguishes addresses by the ipBlocks that they are in.
type blocks struct {
	all []*ipblock.Block
	// edges are the addresses where a block or an except begins, or has just ended. Between two edges all addresses are in the same blocks.
	edges   []netip.Addr
	classes map[int]int    // number of edges up to an address -> its class
	known   map[string]int // the blocks that an address is in -> its class
}

func newBlocks(all []*ipblock.Block) *blocks {
	b := &blocks{classes: map[int]int{}, known: map[string]int{}}
	seen := map[string]bool{}
	// IPv4 and IPv6 are distinguished, whatever the blocks are.
	b.edges = append(b.edges, netip.IPv4Unspecified(), netip.IPv6Unspecified())
	for _, block := range all {
		var key strings.Builder
		for _, p := range append([]netip.Prefix{block.CIDR}, block.Except...) {
			key.WriteString(p.String() + " ")
			b.edges = append(b.edges, p.Masked().Addr())
			if after := last(p).Next(); after.IsValid() {
				b.edges = append(b.edges, after)
			}
		}
		if !seen[key.String()] {
			seen[key.String()] = true
			b.all = append(b.all, block)
		}
	}
	slices.SortFunc(b.edges, netip.Addr.Compare)
	b.edges = slices.Compact(b.edges)
	return b
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// class returns the same number for all addresses of a family that are in the same blocks.
func (b *blocks) class(a netip.Addr) int {
	if !a.IsValid() {
		return -1
	}
	edge, at := slices.BinarySearchFunc(b.edges, a, netip.Addr.Compare)
	if at {
		edge++
	}
	class, ok := b.classes[edge]
	if ok {
		return class
	}
	in := make([]byte, (len(b.all)+7)/8, (len(b.all)+7)/8+1)
	for i, block := range b.all {
		if ok, _ := block.Contains(a); ok {
			in[i/8] |= 1 << (i % 8)
		}
	}
	in = append(in, byte(a.BitLen()))
	class, ok = b.known[string(in)]
	if !ok {
		class = len(b.known)
		b.known[string(in)] = class
	}
	b.classes[edge] = class
	return class
}

// examples returns a free address of each class, if there is one near an edge.
func (b *blocks) examples(free func(netip.Addr) bool) []netip.Addr {
	var out []netip.Addr
	seen := map[int]bool{}
	for i, a := range b.edges {
		for tries := 0; tries < 8 && a.IsValid() && (i+1 == len(b.edges) || a.Less(b.edges[i+1])); tries++ {
			if free(a) {
				if c := b.class(a); !seen[c] {
					seen[c] = true
					out = append(out, a)
				}
				break
			}
			a = a.Next()
		}
	}
	return out
}
