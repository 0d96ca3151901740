package propose

import (
	"cmp"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sort"

	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// block is a range of addresses, without what is excepted.
type block struct {
	netip.Prefix
	except []netip.Prefix
}

// group returns ranges that contain all addresses: at most a limit, and of those the ones that contain the fewest
// addresses. What is to be avoided is not contained if the limit allows that, and else excepted with as much around it
// as was not seen either.
func group(seen, avoid []netip.Addr, limit int) (blocks []block) {
	seen = slices.SortedFunc(slices.Values(seen), netip.Addr.Compare)
	seen = slices.Compact(seen)
	avoid = slices.DeleteFunc(slices.SortedFunc(slices.Values(avoid), netip.Addr.Compare), func(a netip.Addr) bool {
		_, was := slices.BinarySearchFunc(seen, a, netip.Addr.Compare)
		return was
	})
	for _, p := range grow(seen, avoid, limit).selected(limit) {
		blocks = append(blocks, block{p, excepts(p, seen, avoid)})
	}
	return blocks
}

// within returns those of sorted addresses that are in a range.
func within(p netip.Prefix, sorted []netip.Addr) []netip.Addr {
	from := sort.Search(len(sorted), func(i int) bool { return sorted[i].Compare(p.Addr()) >= 0 })
	n := sort.Search(len(sorted)-from, func(i int) bool { return !p.Contains(sorted[from+i]) })
	return sorted[from : from+n]
}

// excepts returns the widest ranges in a range that contain something to avoid and nothing that was seen.
func excepts(p netip.Prefix, seen, avoid []netip.Addr) []netip.Prefix {
	if len(within(p, avoid)) == 0 {
		return nil
	}
	if len(within(p, seen)) == 0 {
		return []netip.Prefix{p}
	}
	low, high := ipblock.Split(p)
	return append(excepts(low, seen, avoid), excepts(high, seen, avoid)...)
}

// tree is the smallest range that contains some addresses, halved again and again wherever both halves contain some.
type tree struct {
	prefix    netip.Prefix // none if the addresses are of both families
	low, high *tree        // nil for a single address
	// best is what choosing at most 1, 2, ... ranges costs.
	best []choice
}

// choice is how many ranges are selected in the lower half of a tree, 0 if the tree's own range is, and what that costs
// in all.
type choice struct {
	low  int
	cost cost
}

// cost is what ranges contain: how much of what is to be avoided, and how many addresses, as a number of 128 bits.
type cost struct {
	avoided   int
	high, low uint64
}

func (a cost) less(b cost) bool {
	return cmp.Or(cmp.Compare(a.avoided, b.avoided), cmp.Compare(a.high, b.high), cmp.Compare(a.low, b.low)) < 0
}

func (a cost) plus(b cost) cost {
	low, carry := bits.Add64(a.low, b.low, 0)
	high, over := bits.Add64(a.high, b.high, carry)
	if over > 0 {
		high, low = math.MaxUint64, math.MaxUint64
	}
	return cost{a.avoided + b.avoided, high, low}
}

// impossible is the cost of one range for both families.
var impossible = cost{math.MaxInt32, math.MaxUint64, math.MaxUint64}

// costOf returns the cost of a range.
func costOf(p netip.Prefix, avoid []netip.Addr) cost {
	c := cost{avoided: len(within(p, avoid))}
	switch n := p.Addr().BitLen() - p.Bits(); {
	case n < 64:
		c.low = 1 << n
	case n < 128:
		c.high = 1 << (n - 64)
	default:
		c.high, c.low = math.MaxUint64, math.MaxUint64
	}
	return c
}

// grow returns the tree of sorted addresses. There is at least one.
func grow(sorted, avoid []netip.Addr, limit int) *tree {
	first, last := sorted[0], sorted[len(sorted)-1]
	t, own := &tree{}, impossible
	if first.Is4() == last.Is4() {
		t.prefix = common(first, last)
		own = costOf(t.prefix, avoid)
	}
	t.best = []choice{{cost: own}}
	if first == last {
		return t
	}
	middle := sort.Search(len(sorted), func(i int) bool {
		if !t.prefix.IsValid() {
			return sorted[i].Is6()
		}
		return common(first, sorted[i]).Bits() <= t.prefix.Bits()
	})
	t.low, t.high = grow(sorted[:middle], avoid, limit), grow(sorted[middle:], avoid, limit)
	for n := 2; n <= min(max(limit, 2), len(sorted)); n++ {
		best := t.best[n-2] // with fewer ranges, if that is as good
		for low := max(1, n-len(t.high.best)); low <= min(n-1, len(t.low.best)); low++ {
			if c := t.low.best[low-1].cost.plus(t.high.best[n-low-1].cost); c.less(best.cost) {
				best = choice{low, c}
			}
		}
		t.best = append(t.best, best)
	}
	return t
}

// selected returns the ranges of the best choice of at most n.
func (t *tree) selected(n int) []netip.Prefix {
	n = min(max(n, 1), len(t.best))
	if !t.prefix.IsValid() {
		n = max(n, 2) // each family needs one
	}
	for n > 1 && t.best[n-2].cost == t.best[n-1].cost {
		n--
	}
	low := t.best[n-1].low
	if low == 0 {
		return []netip.Prefix{t.prefix}
	}
	return append(t.low.selected(low), t.high.selected(n-low)...)
}

// common returns the smallest range that contains two addresses of a family.
func common(a, b netip.Addr) netip.Prefix {
	x, y := a.AsSlice(), b.AsSlice()
	n := 0
	for n < len(x) && x[n] == y[n] {
		n++
	}
	length := 8 * n
	if n < len(x) {
		length += bits.LeadingZeros8(x[n] ^ y[n])
	}
	return netip.PrefixFrom(a, length).Masked()
}
