package ports

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets in an Ethernet frame.
const (
	offsetOfHardwareSource = 6
	offsetOfType           = 12
)

// Offsets in an ARP message for IPv4 over Ethernet.
const (
	offsetOfARPHardware = 8
	offsetOfARPSender   = 14
)

// Offsets in IP headers and their extensions.
const (
	offsetOfIPv4Source = 12
	offsetOfIPv6Source = 8
	offsetOfHopLimit   = 7
	offsetOfFragment   = 2
	fragmentMask       = 0xfff8
)

// offsetOfTarget is the offset of the target in a neighbour solicitation or advertisement.
const offsetOfTarget = 8

// The ICMPv6 types that rules refer to.
const (
	listenerReport        = 131
	listenerDone          = 132
	routerSolicitation    = 133
	routerAdvertisement   = 134
	neighbourSolicitation = 135
	neighbourAdvert       = 136
	redirect              = 137
	listenerReportV2      = 143
)

// field is a part of a frame.
type field struct {
	base   expr.PayloadBase
	offset uint32
	bytes  uint32
}

func hardwareSource() field { return field{expr.PayloadBaseLLHeader, offsetOfHardwareSource, 6} }
func etherType() field      { return field{expr.PayloadBaseLLHeader, offsetOfType, 2} }
func arpHardware() field    { return field{expr.PayloadBaseNetworkHeader, offsetOfARPHardware, 6} }
func arpSender() field      { return field{expr.PayloadBaseNetworkHeader, offsetOfARPSender, 4} }
func source4() field        { return field{expr.PayloadBaseNetworkHeader, offsetOfIPv4Source, 4} }
func source6() field        { return field{expr.PayloadBaseNetworkHeader, offsetOfIPv6Source, 16} }
func target() field         { return field{expr.PayloadBaseTransportHeader, offsetOfTarget, 16} }

// register returns the number of a register of four bytes as the kernel prints it.
func register(n int) uint32 {
	if n%4 == 0 {
		return unix.NFT_REG_1 + uint32(n/4)
	}
	return unix.NFT_REG32_00 + uint32(n)
}

// load loads the field into registers, and returns the one behind.
func (f field) load(n int) (*expr.Payload, int) {
	return &expr.Payload{DestRegister: register(n), Base: f.base, Offset: f.offset, Len: f.bytes}, n + int(f.bytes+3)/4
}

// is compares the field with data. It does not match a frame without the field.
func (f field) is(op expr.CmpOp, data ...byte) []expr.Any {
	load, _ := f.load(0)
	return []expr.Any{load, compare(op, data...)}
}

// in matches if a set has the field.
func (f field) in(set string) []expr.Any {
	load, _ := f.load(0)
	return []expr.Any{load, lookup(set, false)}
}

// notIn matches if the frame has the field, and a set does not.
func (f field) notIn(set string) []expr.Any {
	load, _ := f.load(0)
	return []expr.Any{load, lookup(set, true)}
}

// key loads the port where a frame arrived and fields of the frame, as they are joined in an element's key.
func key(fields ...field) []expr.Any {
	exprs, n := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIF, Register: register(0)}}, 1
	for _, f := range fields {
		var load expr.Any
		load, n = f.load(n)
		exprs = append(exprs, load)
	}
	return exprs
}

// keyIn matches if a set has the key.
func keyIn(set string, fields ...field) []expr.Any { return append(key(fields...), lookup(set, false)) }

// keyNotIn matches if a set does not have the key.
func keyNotIn(set string, fields ...field) []expr.Any {
	return append(key(fields...), lookup(set, true))
}

func lookup(set string, invert bool) *expr.Lookup {
	return &expr.Lookup{SourceRegister: register(0), SetName: set, Invert: invert}
}

func compare(op expr.CmpOp, data ...byte) *expr.Cmp {
	return &expr.Cmp{Register: register(0), Op: op, Data: data}
}

func meta(key expr.MetaKey, op expr.CmpOp, data ...byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: register(0)}, compare(op, data...)}
}

// transport compares the protocol of a packet. The kernel has skipped extension headers to find it. If they are cut
// short, there is no protocol, and the comparison does not match.
func transport(op expr.CmpOp, protocol byte) []expr.Any {
	return meta(expr.MetaKeyL4PROTO, op, protocol)
}

// icmp compares the type of an ICMPv6 message. It does not match a packet without a type.
func icmp(op expr.CmpOp, kind byte) []expr.Any {
	return all(transport(expr.CmpOpEq, unix.IPPROTO_ICMPV6), field{expr.PayloadBaseTransportHeader, 0, 1}.is(op, kind))
}

func hopLimit(limit byte) []expr.Any {
	return field{expr.PayloadBaseNetworkHeader, offsetOfHopLimit, 1}.is(expr.CmpOpEq, limit)
}

// laterFragment matches fragments except the first.
func laterFragment() []expr.Any {
	return []expr.Any{
		&expr.Exthdr{DestRegister: register(0), Type: unix.IPPROTO_FRAGMENT, Offset: offsetOfFragment, Len: 2,
			Op: expr.ExthdrOpIpv6},
		masked(bigEndian(fragmentMask)...), compare(expr.CmpOpNeq, 0, 0),
	}
}

// fragment matches packets with a fragment header.
func fragment() []expr.Any {
	return []expr.Any{
		&expr.Exthdr{DestRegister: register(0), Type: unix.IPPROTO_FRAGMENT, Len: 1, Flags: unix.NFT_EXTHDR_F_PRESENT,
			Op: expr.ExthdrOpIpv6},
		compare(expr.CmpOpEq, 1),
	}
}

// linkLocal compares the first bits of an IPv6 packet's source with those of link-local addresses.
func linkLocal(op expr.CmpOp) []expr.Any {
	load, _ := source6().load(0)
	prefix, mask := make([]byte, 16), make([]byte, 16)
	copy(prefix, []byte{0xfe, 0x80})
	copy(mask, []byte{0xff, 0xc0})
	return []expr.Any{load, masked(mask...), compare(op, prefix...)}
}

func masked(mask ...byte) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: uint32(len(mask)), Mask: mask,
		Xor: make([]byte, len(mask))}
}

func bigEndian(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func zero(bytes int) []byte { return make([]byte, bytes) }

// all joins matches.
func all(matches ...[]expr.Any) []expr.Any { return slices.Concat(matches...) }
