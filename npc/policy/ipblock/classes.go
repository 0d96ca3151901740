package ipblock

import (
	"net/netip"
	"slices"
	"strings"
)

// Classes distinguishes addresses by the blocks that they are in.
type Classes struct {
	blocks []Block
	// edges are the addresses where a block or an except begins, or has just ended. Between two edges all addresses are
	// in the same blocks.
	edges   []netip.Addr
	classes map[int]int    // index of an edge -> the class of the addresses from there
	known   map[string]int // the blocks that an address is in -> its class
}

// NewClasses returns the classes of addresses that some blocks make. IPv4 and IPv6 are distinguished, whatever the
// blocks are.
func NewClasses(blocks []Block) *Classes {
	c := &Classes{classes: map[int]int{}, known: map[string]int{},
		edges: []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}}
	seen := map[string]bool{}
	for _, b := range blocks {
		var key strings.Builder
		ranges := append([]netip.Prefix{b.CIDR}, b.Except...)
		for _, p := range ranges {
			key.WriteString(p.String() + " ")
		}
		if seen[key.String()] {
			continue
		}
		seen[key.String()] = true
		c.blocks = append(c.blocks, b)
		for _, p := range ranges {
			c.edges = append(c.edges, p.Masked().Addr())
			if after := Last(p).Next(); after.IsValid() {
				c.edges = append(c.edges, after)
			}
		}
	}
	slices.SortFunc(c.edges, netip.Addr.Compare)
	c.edges = slices.Compact(c.edges)
	return c
}

// Of returns the same number for all addresses of a family that are in the same blocks; -1 for no address.
func (c *Classes) Of(a netip.Addr) int {
	if !a.IsValid() {
		return -1
	}
	edge, at := slices.BinarySearchFunc(c.edges, a, netip.Addr.Compare)
	if !at {
		edge--
	}
	class, ok := c.classes[edge]
	if ok {
		return class
	}
	in := make([]byte, (len(c.blocks)+7)/8, (len(c.blocks)+7)/8+1)
	for i, block := range c.blocks {
		if ok, _ := block.Contains(a); ok {
			in[i/8] |= 1 << (i % 8)
		}
	}
	in = append(in, byte(a.BitLen()))
	class, ok = c.known[string(in)]
	if !ok {
		class = len(c.known)
		c.known[string(in)] = class
	}
	c.classes[edge] = class
	return class
}

// Ranges returns all addresses, as ranges. The addresses of a range are of one class.
func (c *Classes) Ranges() (out []Range) {
	for i, first := range c.edges {
		r := Range{first, Last(netip.PrefixFrom(first, 0))}
		if i+1 < len(c.edges) && c.edges[i+1].BitLen() == first.BitLen() {
			r.Last = c.edges[i+1].Prev()
		}
		out = append(out, r)
	}
	return out
}
