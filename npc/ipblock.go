package npc

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/net"

	"github.com/weave-npc/weave-npc/ipset"
)

// blockSpec is an ipBlock: a range, less the ranges excepted from it. Equal ones share a set.
type blockSpec struct {
	cidr   netip.Prefix
	except []netip.Prefix // sorted, without duplicates
}

func (b *blockSpec) family() Family { return familyOf(b.cidr.Addr()) }

func (b *blockSpec) key() []string {
	parts := []string{"block", b.cidr.String()}
	for _, e := range b.except {
		parts = append(parts, e.String())
	}
	return parts
}

// String says for humans what the block covers.
func (b *blockSpec) String() string {
	parts := b.key()[1:]
	if len(b.except) == 0 {
		return parts[0]
	}
	return parts[0] + " except " + strings.Join(parts[1:], " ")
}

func compileBlock(b *networkingv1.IPBlock) (*blockSpec, error) {
	cidr, err := parseCIDR(b.CIDR)
	if err != nil {
		return nil, errors.Wrap(err, "cidr")
	}
	spec := &blockSpec{cidr: cidr}
	for i, text := range b.Except {
		e, err := parseCIDR(text)
		if err != nil {
			return nil, errors.Wrapf(err, "except[%d]", i)
		}
		if e.Bits() < cidr.Bits() || !cidr.Contains(e.Addr()) {
			return nil, errors.Errorf("except[%d]: %s is not within %s", i, e, cidr)
		}
		spec.except = append(spec.except, e)
	}
	slices.SortFunc(spec.except, netip.Prefix.Compare)
	spec.except = slices.Compact(spec.except)
	return spec, nil
}

// parseCIDR reads a CIDR as the API does, leading zeros and host bits included.
func parseCIDR(text string) (netip.Prefix, error) {
	_, n, err := net.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, errors.Errorf("%q is no CIDR", text)
	}
	if strings.Contains(text, ":") && n.IP.To4() != nil {
		return netip.Prefix{}, errors.Errorf("%q is an IPv4 address in the form of an IPv6 one", text)
	}
	a, _ := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if size == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits), nil
}

// elements are the block's members: what is excepted wins. A set takes no /0: that is two /1.
func (b *blockSpec) elements() map[netip.Prefix]bool {
	nomatch := map[netip.Prefix]bool{}
	for _, p := range halves(b.cidr) {
		nomatch[p] = false
	}
	for _, e := range b.except {
		for _, p := range halves(e) {
			nomatch[p] = true
		}
	}
	return nomatch
}

// halves is a prefix as hash:net takes it.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	upper := p.Addr().AsSlice()
	upper[0] = 0x80
	a, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(a, 1)}
}

// block is a block that a policy uses, with its set.
type block struct {
	spec  *blockSpec
	set   *set
	users map[*policy]struct{}
}

// useBlock provisions a block for a policy and returns its set.
func (m *Model) useBlock(p *policy, spec *blockSpec) *set {
	key := hash(spec.key()...)
	b := m.blocks[key]
	if b == nil {
		t := m.tables[spec.family()]
		b = &block{spec: spec, users: map[*policy]struct{}{},
			set: t.set(setName(t.family, spec.key()...), ipset.HashNet, spec.String())}
		for prefix, nomatch := range spec.elements() {
			b.set.add(ipset.Net(prefix), ipset.Attr{Comment: comment(spec.cidr.String()), NoMatch: nomatch})
		}
		m.blocks[key] = b
	}
	b.users[p] = struct{}{}
	p.blocks[b] = struct{}{}
	return b.set
}

func (m *Model) deprovisionBlock(b *block, p *policy) {
	if delete(b.users, p); len(b.users) == 0 {
		delete(m.blocks, hash(b.spec.key()...))
		b.set.table.dropSet(b.set)
	}
}
