package ports

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const tableName = "weave-npc"

// family is the family of a table. The one of bridges sees frames, the other one packets.
type family nftables.TableFamily

const (
	bridgeFamily = family(nftables.TableFamilyBridge)
	inetFamily   = family(nftables.TableFamilyINet)
)

func families() []family { return []family{bridgeFamily, inetFamily} }

func (f family) bridge() bool { return f == bridgeFamily }

func (f family) table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamily(f), Name: tableName}
}

// String returns the name of the table.
func (f family) String() string {
	if f.bridge() {
		return "table bridge " + tableName
	}
	return "table inet " + tableName
}

// find returns the table, or nil if it does not exist.
func (f family) find() (*nftables.Table, error) {
	tables, err := new(nftables.Conn).ListTablesOfFamily(nftables.TableFamily(f))
	if err != nil {
		return nil, errors.Wrap(err, "listing the tables of nftables")
	}
	at := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName && t.Family == nftables.TableFamily(f) })
	if at < 0 {
		return nil, nil
	}
	return tables[at], nil
}

// packet matches frames by their EtherType, not by what follows a VLAN tag.
func (f family) packet(kind uint16) []expr.Any {
	if f.bridge() {
		return etherType().is(expr.CmpOpEq, bigEndian(kind)...)
	}
	return f.inside(kind)
}

// inside matches packets of an EtherType, those that follow a VLAN tag too.
func (f family) inside(kind uint16) []expr.Any {
	if f.bridge() {
		return meta(expr.MetaKeyPROTOCOL, expr.CmpOpEq, bigEndian(kind)...)
	}
	if kind == unix.ETH_P_IP {
		return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, unix.NFPROTO_IPV4)
	}
	return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, unix.NFPROTO_IPV6)
}

// from returns the fields of a key that has an address.
func (f family) from(addr field) []field {
	if f.bridge() {
		return []field{hardwareSource(), addr}
	}
	return []field{addr}
}

// source matches if an address is bound to the port and, on a bridge, to the frame's hardware address.
func (f family) source(set string, addr field) []expr.Any { return keyIn(set, f.from(addr)...) }

// icmp6 matches ICMPv6 messages of a type.
func (f family) icmp6(kind byte) []expr.Any {
	return all(f.inside(unix.ETH_P_IPV6), icmp(expr.CmpOpEq, kind))
}

// arp matches ARP messages for IPv4 over Ethernet.
func (f family) arp() []expr.Any {
	header := field{expr.PayloadBaseNetworkHeader, 0, 6} // types and lengths of both kinds of addresses
	return all(f.packet(unix.ETH_P_ARP), header.is(expr.CmpOpEq, 0, 1, 0x08, 0x00, 6, 4))
}

// sourceOf returns the source that a key joins. The address is invalid if the key has none.
func (f family) sourceOf(key string) Source {
	raw, source := []byte(key), Source{}
	if len(raw) < 4 {
		return source
	}
	source.Port, raw = int(binary.NativeEndian.Uint32(raw)), raw[4:]
	if f.bridge() && len(raw) >= 6 {
		source.MAC, raw = MAC(raw[:6]), raw[min(8, len(raw)):]
	}
	source.Addr, _ = netip.AddrFromSlice(raw)
	return source
}
