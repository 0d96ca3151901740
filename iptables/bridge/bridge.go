// Package bridge drops frames at ports of a bridge that ip(6)tables do not see, or see too late.
//
//	t := bridge.Table{}
//	err := t.Guard(ports) // and t.Ports to find out whether all is as it was written
package bridge

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	vlanComment   = "weave-npc: frames with a VLAN tag do not pass ip(6)tables"
	routerComment = "weave-npc: only routers send this"
	hiddenComment = "weave-npc: an ICMPv6 type that cannot be read"
	// beforeBridgeNetfilter is a priority before br_netfilter (0) and ebtables' nat table (-300).
	beforeBridgeNetfilter = -400
	// offsetOfType is the offset of the type in an Ethernet frame.
	offsetOfType = 12
	// offsetOfFragment and fragmentMask locate the fragment offset in a fragment header.
	offsetOfFragment = 2
	fragmentMask     = 0xfff8
	// The ICMPv6 types of RFC 4861 that only routers send.
	routerAdvertisement = 134
	redirect            = 137
)

// Table is the table weave-npc of nftables' bridge family, in the network namespace of the calling thread. It drops
// frames that arrive at the given bridge ports:
//   - frames with a VLAN tag (802.1Q, 802.1ad), unless AllowVLAN is set: br_netfilter does not pass them to iptables;
//   - ICMPv6 messages that only routers send: with a router advertisement, a pod gives all pods of the bridge an
//     address that no API object has, and with a redirect it becomes their router.
//
// The table works where a frame arrives: later, a VLAN tag may have been added by the bridge itself.
type Table struct {
	AllowVLAN bool
}

// kernelTable returns the table for the kernel.
func kernelTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: "weave-npc"}
}

// podPorts returns the set of the guarded ports.
func podPorts(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, Name: "pod-ports", KeyType: nftables.TypeIFIndex,
		KeyByteOrder: binaryutil.NativeEndian}
}

// entry returns the chain, which the kernel enters for every frame.
func entry(t *nftables.Table) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Table: t, Name: "prerouting", Type: nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRef(beforeBridgeNetfilter), Policy: &accept}
}

// rules returns the rules of the chain, without handles.
func (g Table) rules(c *nftables.Chain, ports *nftables.Set) (rules []*nftables.Rule) {
	add := func(verdict expr.VerdictKind, comment string, matches ...[]expr.Any) {
		r := &nftables.Rule{Table: c.Table, Chain: c, Exprs: slices.Concat(matches...)}
		if verdict == expr.VerdictDrop {
			r.Exprs = append(r.Exprs, &expr.Counter{})
		}
		r.Exprs = append(r.Exprs, &expr.Verdict{Kind: verdict})
		if comment != "" {
			r.UserData = userdata.AppendString(nil, userdata.TypeComment, comment)
		}
		rules = append(rules, r)
	}
	fromPod := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
		&expr.Lookup{SourceRegister: 1, SetName: ports.Name, SetID: ports.ID},
	}
	if !g.AllowVLAN {
		for _, tag := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
			add(expr.VerdictDrop, vlanComment, []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: offsetOfType, Len: 2},
				compare(expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, tag)...),
			}, fromPod)
		}
	}
	const accept, drop = expr.VerdictAccept, expr.VerdictDrop
	// Nearly all frames leave here. The kernel has skipped extension headers to find the protocol. If they are cut
	// short, there is no protocol, and this rule does not match.
	add(accept, "", protocol(expr.CmpOpNeq))
	add(accept, "", []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		compare(expr.CmpOpNeq, binary.BigEndian.AppendUint16(nil, unix.ETH_P_IPV6)...),
	})
	add(accept, "", []expr.Any{fromPod[0],
		&expr.Lookup{SourceRegister: 1, SetName: ports.Name, SetID: ports.ID, Invert: true}})
	add(drop, routerComment, protocol(expr.CmpOpEq), icmpType(expr.CmpOpEq, routerAdvertisement))
	add(drop, routerComment, protocol(expr.CmpOpEq), icmpType(expr.CmpOpEq, redirect))
	add(accept, "", protocol(expr.CmpOpEq), icmpType(expr.CmpOpGte, 0))
	// The type of the remaining packets cannot be read. That is normal for all fragments except the first. A first
	// fragment that ends before the type hides it: conntrack reassembles the packet and may pass it on whole.
	add(accept, "", []expr.Any{
		&expr.Exthdr{DestRegister: 1, Type: unix.IPPROTO_FRAGMENT, Offset: offsetOfFragment, Len: 2,
			Op: expr.ExthdrOpIpv6},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2,
			Mask: binary.BigEndian.AppendUint16(nil, fragmentMask), Xor: []byte{0, 0}},
		compare(expr.CmpOpNeq, 0, 0),
	})
	add(drop, hiddenComment)
	return rules
}

// compare compares register 1 with data.
func compare(op expr.CmpOp, data ...byte) *expr.Cmp {
	return &expr.Cmp{Register: 1, Op: op, Data: data}
}

// protocol compares the protocol of a packet with ICMPv6.
func protocol(op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, compare(op, unix.IPPROTO_ICMPV6)}
}

// icmpType compares the type of an ICMPv6 message. It does not match a packet without a type.
func icmpType(op expr.CmpOp, kind byte) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1}, compare(op, kind)}
}

// Ports returns the indexes of the guarded interfaces, sorted. whole is false if there is no table, or if it differs
// from the one that Guard writes.
func (g Table) Ports() (ports []int, whole bool, err error) {
	t := kernelTable()
	there, err := g.there()
	if err != nil || !there {
		return nil, false, err
	}
	conn := new(nftables.Conn)
	sets, err := conn.GetSets(t)
	if err != nil {
		return nil, false, errors.Wrap(err, "reading the sets of table bridge weave-npc")
	}
	if !slices.ContainsFunc(sets, func(s *nftables.Set) bool { return s.Name == podPorts(t).Name }) {
		return nil, false, nil
	}
	elements, err := conn.GetSetElements(podPorts(t))
	if err != nil {
		return nil, false, errors.Wrap(err, "reading the ports in table bridge weave-npc")
	}
	for _, e := range elements {
		if len(e.Key) == 4 {
			ports = append(ports, int(binary.NativeEndian.Uint32(e.Key)))
		}
	}
	slices.Sort(ports)
	whole, err = g.drops(t)
	return ports, whole, err
}

// there reports whether the table exists.
func (Table) there() (bool, error) {
	tables, err := new(nftables.Conn).ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return false, errors.Wrap(err, "listing nftables' tables of bridges")
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == kernelTable().Name }), nil
}

// drops reports whether the chain is at its hook and has exactly the rules of the guard.
func (g Table) drops(t *nftables.Table) (bool, error) {
	conn := new(nftables.Conn)
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyBridge)
	if err != nil {
		return false, errors.Wrap(err, "listing nftables' chains of bridges")
	}
	want := entry(t)
	at := slices.IndexFunc(chains, func(c *nftables.Chain) bool {
		return c.Table.Name == t.Name && c.Name == want.Name && c.Hooknum != nil && *c.Hooknum == *want.Hooknum &&
			c.Priority != nil && *c.Priority == *want.Priority
	})
	if at < 0 {
		return false, nil
	}
	rules, err := conn.GetRules(t, want)
	if err != nil {
		return false, errors.Wrap(err, "reading the rules of table bridge weave-npc")
	}
	return slices.EqualFunc(rules, g.rules(want, podPorts(t)), func(have, want *nftables.Rule) bool {
		return slices.Equal(have.UserData, want.UserData) && slices.EqualFunc(have.Exprs, want.Exprs, sameKind)
	}), nil
}

// sameKind reports whether expressions are equal. It ignores the values of counters.
func sameKind(a, b expr.Any) bool {
	switch a := a.(type) {
	case *expr.Counter:
		_, ok := b.(*expr.Counter)
		return ok
	case *expr.Cmp:
		b, ok := b.(*expr.Cmp)
		return ok && a.Op == b.Op && slices.Equal(a.Data, b.Data)
	case *expr.Verdict:
		b, ok := b.(*expr.Verdict)
		return ok && a.Kind == b.Kind
	case *expr.Lookup:
		b, ok := b.(*expr.Lookup)
		return ok && a.SetName == b.SetName && a.Invert == b.Invert
	case *expr.Meta:
		b, ok := b.(*expr.Meta)
		return ok && a.Key == b.Key
	case *expr.Payload:
		b, ok := b.(*expr.Payload)
		return ok && a.Base == b.Base && a.Offset == b.Offset && a.Len == b.Len
	case *expr.Exthdr:
		b, ok := b.(*expr.Exthdr)
		return ok && a.Type == b.Type && a.Offset == b.Offset && a.Len == b.Len
	case *expr.Bitwise:
		b, ok := b.(*expr.Bitwise)
		return ok && slices.Equal(a.Mask, b.Mask) && slices.Equal(a.Xor, b.Xor)
	}
	return false
}

// Guard replaces the whole table in one transaction. ports are the indexes of the interfaces to guard.
func (g Table) Guard(ports []int) error {
	tx := new(nftables.Conn)
	replaceTable(tx)
	t := tx.AddTable(kernelTable())
	chain, set := tx.AddChain(entry(t)), podPorts(t)
	elements := make([]nftables.SetElement, 0, len(ports))
	for _, p := range ports {
		elements = append(elements, nftables.SetElement{Key: binary.NativeEndian.AppendUint32(nil, uint32(p))})
	}
	if err := tx.AddSet(set, elements); err != nil {
		return errors.Wrap(err, "writing table bridge weave-npc of nftables")
	}
	for _, r := range g.rules(chain, set) {
		tx.AddRule(r)
	}
	return errors.Wrap(tx.Flush(), "writing table bridge weave-npc of nftables")
}

// Remove removes the table, and reports whether there was one.
func (g Table) Remove() (bool, error) {
	there, err := g.there()
	if err != nil || !there {
		return false, err
	}
	tx := new(nftables.Conn)
	replaceTable(tx)
	return true, errors.Wrap(tx.Flush(), "removing table bridge weave-npc of nftables")
}

// replaceTable adds the removal of the table to a transaction, whether the table exists or not.
func replaceTable(tx *nftables.Conn) {
	tx.AddTable(kernelTable())
	tx.DelTable(kernelTable())
}
