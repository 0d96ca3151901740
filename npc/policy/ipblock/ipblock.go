// Package ipblock parses ipBlocks of network policies, merges those of one rule, and classifies addresses by them.
//
// The entries of merged blocks are those of one hash:net set. It knows nothing about policies or the kernel.
//
//	block, err := ipblock.Compile(&networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}})
//	ipblock.Of([]ipblock.Block{block}).Entries // 10.0.0.0/8 !10.1.0.0/16
package ipblock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/net"

	"github.com/weave-npc/weave-npc/npc"
)

// Block is a range of addresses, less the ranges excepted from it.
type Block struct {
	CIDR   netip.Prefix
	Except []netip.Prefix // sorted, without duplicates
}

// Compile reads an ipBlock as the API does, leading zeros and host bits included.
func Compile(b *networkingv1.IPBlock) (Block, error) {
	cidr, err := parseCIDR(b.CIDR)
	if err != nil {
		return Block{}, errors.Wrap(err, "cidr")
	}
	block := Block{CIDR: cidr}
	for i, text := range b.Except {
		e, err := parseCIDR(text)
		if err != nil {
			return Block{}, errors.Wrapf(err, "except[%d]", i)
		}
		if e.Bits() < cidr.Bits() || !cidr.Contains(e.Addr()) {
			return Block{}, errors.Errorf("except[%d]: %s is not within %s", i, e, cidr)
		}
		block.Except = append(block.Except, e)
	}
	slices.SortFunc(block.Except, netip.Prefix.Compare)
	block.Except = slices.Compact(block.Except)
	return block, nil
}

// Contains reports whether an address is in the block. If it is excepted from it, except is the range that excepts it.
func (b Block) Contains(a netip.Addr) (in bool, except netip.Prefix) {
	if !b.CIDR.Contains(a) {
		return false, except
	}
	for _, e := range b.Except {
		if e.Contains(a) {
			return false, e
		}
	}
	return true, except
}

// ParseCIDR reads a CIDR as the API server does: leading zeros are decimal, and host bits are dropped.
func ParseCIDR(text string) (netip.Prefix, error) {
	_, n, err := net.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a, bits), nil
}

// parseCIDR reads a CIDR of an ipBlock.
func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := ParseCIDR(text)
	if err != nil {
		return netip.Prefix{}, errors.Errorf("%q is no CIDR", text)
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, errors.Errorf("%q is an IPv4 address in the form of an IPv6 one", text)
	}
	return prefix, nil
}

// Entry is an entry of a hash:net set. The longest entry that contains an address decides.
type Entry struct {
	netip.Prefix
	// NoMatch is set if the set does not match the addresses.
	NoMatch bool
}

// String returns the prefix, after ! if its addresses are not matched.
func (e Entry) String() string {
	if e.NoMatch {
		return "!" + e.Prefix.String()
	}
	return e.Prefix.String()
}

// Union matches the addresses that at least one of several blocks of one family matches.
type Union struct {
	// Blocks is the number of blocks.
	Blocks int
	// Block is the only block; the zero Block if there are several.
	Block Block
	// Entries match the same. Each differs from what the others make of its addresses, so there are no more of them
	// than prefixes, except for /0, which a set does not take and which is two entries.
	Entries []Entry // in order of their prefixes
	// outer are the indexes of the narrowest entries around each entry; -1 for none.
	outer []int32
	is6   bool
	// digest identifies the entries.
	digest string
}

// Of returns the union of at least one block. All blocks must have the same family.
func Of(blocks []Block) *Union {
	u := &Union{Blocks: len(blocks), Entries: merge(blocks), is6: blocks[0].CIDR.Addr().Is6()}
	u.outer = outers(u.Entries)
	if len(blocks) == 1 {
		u.Block = blocks[0]
		return u
	}
	sum := sha256.New()
	for _, e := range u.Entries {
		fmt.Fprintln(sum, e)
	}
	u.digest = hex.EncodeToString(sum.Sum(nil))
	return u
}

// Contains reports whether an address is in one of the blocks. Of the entries that contain it the narrowest decides.
func (u *Union) Contains(a netip.Addr) bool {
	after, _ := slices.BinarySearchFunc(u.Entries, a, func(e Entry, a netip.Addr) int {
		if e.Addr().Compare(a) > 0 {
			return 1
		}
		return -1
	})
	// All entries around the address are around the last entry that begins before it.
	for i := after - 1; i >= 0; i = int(u.outer[i]) {
		if u.Entries[i].Contains(a) {
			return !u.Entries[i].NoMatch
		}
	}
	return false
}

// outers returns for each entry the index of the narrowest one around it; -1 for none.
func outers(entries []Entry) []int32 {
	out := make([]int32, len(entries))
	for i, e := range entries {
		at := int32(i) - 1
		for at >= 0 && !contains(entries[at].Prefix, e.Prefix) {
			at = out[at]
		}
		out[i] = at
	}
	return out
}

// Is6 reports whether the blocks are of IPv6.
func (u *Union) Is6() bool { return u.is6 }

// Key returns parts to be hashed that identify the union: the text of a single block, or what several blocks match.
func (u *Union) Key() []string {
	if u.Blocks == 1 {
		parts := []string{"block", u.Block.CIDR.String()}
		for _, e := range u.Block.Except {
			parts = append(parts, e.String())
		}
		return parts
	}
	return []string{"blocks", fmt.Sprint(u.is6), u.digest}
}

// String describes the union for humans.
func (u *Union) String() string {
	if u.Blocks > 1 {
		return fmt.Sprintf("%d address blocks", u.Blocks)
	}
	parts := u.Key()[1:]
	if len(parts) == 1 {
		return parts[0]
	}
	return parts[0] + " except " + strings.Join(parts[1:], " ")
}

// About returns the origin of an entry for humans.
func (u *Union) About(e Entry) string {
	if u.Blocks > 1 {
		return e.Prefix.String()
	}
	return u.Block.CIDR.String()
}

// weighted is a prefix and the difference between the number of blocks that match its addresses and the number outside
// of it.
type weighted struct {
	netip.Prefix
	weight int
}

// merge returns the entries of a set that matches what at least one of the blocks matches. How many blocks match an
// address is the sum of the weights of the prefixes that contain it: each block's CIDR adds one, and each of its
// excepts that is in no other takes it away again.
func merge(blocks []Block) []Entry {
	// level is a prefix that contains the next one, how many blocks match its addresses, and whether the entries match
	// them.
	type level struct {
		netip.Prefix
		sum     int
		matched bool
	}
	var entries []Entry
	var around []level
	for _, p := range weights(blocks) {
		for len(around) > 0 && !contains(around[len(around)-1].Prefix, p.Prefix) {
			around = around[:len(around)-1]
		}
		at := level{Prefix: p.Prefix, sum: p.weight}
		was := false
		if len(around) > 0 {
			outer := around[len(around)-1]
			at.sum, was = at.sum+outer.sum, outer.matched
		}
		at.matched = at.sum > 0
		around = append(around, at)
		if at.matched == was {
			continue
		}
		for _, half := range Halves(p.Prefix) {
			entries = append(entries, Entry{half, !at.matched})
		}
	}
	return overridden(entries)
}

// weights returns the prefixes of blocks, each once, those that contain others before them.
func weights(blocks []Block) []weighted {
	var all []weighted
	for _, b := range blocks {
		all = append(all, weighted{b.CIDR, +1})
		var outer netip.Prefix
		for _, e := range slices.SortedFunc(slices.Values(b.Except), outerFirst) {
			if outer.IsValid() && contains(outer, e) {
				continue
			}
			outer = e
			all = append(all, weighted{e, -1})
		}
	}
	slices.SortFunc(all, func(a, b weighted) int { return outerFirst(a.Prefix, b.Prefix) })
	out := all[:0]
	for _, p := range all {
		if last := len(out) - 1; last >= 0 && out[last].Prefix == p.Prefix {
			out[last].weight += p.weight
		} else {
			out = append(out, p)
		}
	}
	return out
}

// outerFirst orders prefixes by their first addresses, and those that contain others before them.
func outerFirst(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// overridden sorts entries; of two of one prefix, which come of a /0 and a half of it, the later one holds.
func overridden(entries []Entry) []Entry {
	slices.SortStableFunc(entries, func(a, b Entry) int { return outerFirst(a.Prefix, b.Prefix) })
	out := entries[:0]
	for _, e := range entries {
		if last := len(out) - 1; last >= 0 && out[last].Prefix == e.Prefix {
			out[last] = e
		} else {
			out = append(out, e)
		}
	}
	return slices.Clip(out)
}

// Halves returns a prefix as a hash:net set takes it: a /0 is two /1.
func Halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	low, high := Split(p)
	return []netip.Prefix{low, high}
}

// All returns all addresses of a family, as a hash:net set takes them.
func All(f npc.Family) []netip.Prefix {
	return Halves([...]netip.Prefix{
		npc.IPv4: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
		npc.IPv6: netip.PrefixFrom(netip.IPv6Unspecified(), 0)}[f])
}

// Split returns both halves of a prefix that is not a single address.
func Split(p netip.Prefix) (low, high netip.Prefix) {
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	middle, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(middle, p.Bits()+1)
}
