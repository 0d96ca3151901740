package iptables

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
	vlanComment = "weave-npc: frames with a VLAN tag do not pass ip(6)tables"
	// beforeBridgeNetfilter is before br_netfilter (at 0) and ebtables' nat table (at -300) see a frame.
	beforeBridgeNetfilter = -400
	// offsetOfType is where an Ethernet frame says its type.
	offsetOfType = 12
)

// VLANGuard is table weave-npc of nftables' bridge family, in the network namespace of the calling thread. It drops the frames with a
// VLAN tag (802.1Q, 802.1ad) that come in by given ports of bridges: br_netfilter does not show them to iptables. It stands where a
// frame comes in: later, the tag may be the bridge's own.
type VLANGuard struct{}

func vlanTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: "weave-npc"}
}

func vlanPorts(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, Name: "pod-ports", KeyType: nftables.TypeIFIndex, KeyByteOrder: binaryutil.NativeEndian}
}

func vlanChain(t *nftables.Table) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Table: t, Name: "prerouting", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRef(beforeBridgeNetfilter), Policy: &accept}
}

// vlanRules are what the chain holds, without handles.
func vlanRules(c *nftables.Chain, ports *nftables.Set) (rules []*nftables.Rule) {
	for _, tag := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
		rules = append(rules, &nftables.Rule{
			Table: c.Table,
			Chain: c,
			Exprs: []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: offsetOfType, Len: 2},
				&expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: binary.BigEndian.AppendUint16(nil, tag)},
				&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
				&expr.Lookup{SourceRegister: 1, SetName: ports.Name, SetID: ports.ID},
				&expr.Counter{},
				&expr.Verdict{Kind: expr.VerdictDrop},
			},
			UserData: userdata.AppendString(nil, userdata.TypeComment, vlanComment),
		})
	}
	return rules
}

// Ports returns the interfaces, by index and sorted, whose frames the kernel drops if they have a tag. whole is false if there is no
// such table, or if it was changed.
func (g VLANGuard) Ports() (ports []int, whole bool, err error) {
	t := vlanTable()
	there, err := g.there()
	if err != nil || !there {
		return nil, false, err
	}
	conn := new(nftables.Conn)
	sets, err := conn.GetSets(t)
	if err != nil {
		return nil, false, errors.Wrap(err, "reading the sets of table bridge weave-npc")
	}
	if !slices.ContainsFunc(sets, func(s *nftables.Set) bool { return s.Name == vlanPorts(t).Name }) {
		return nil, false, nil
	}
	elements, err := conn.GetSetElements(vlanPorts(t))
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

// there says whether there is a table by our name.
func (VLANGuard) there() (bool, error) {
	tables, err := new(nftables.Conn).ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return false, errors.Wrap(err, "listing nftables' tables of bridges")
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == vlanTable().Name }), nil
}

// drops says whether the chain stands where it has to and holds our rules.
func (VLANGuard) drops(t *nftables.Table) (bool, error) {
	conn := new(nftables.Conn)
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyBridge)
	if err != nil {
		return false, errors.Wrap(err, "listing nftables' chains of bridges")
	}
	want := vlanChain(t)
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
	return slices.EqualFunc(rules, vlanRules(want, vlanPorts(t)), func(have, want *nftables.Rule) bool {
		return slices.Equal(have.UserData, want.UserData) && slices.EqualFunc(have.Exprs, want.Exprs, sameKind)
	}), nil
}

// sameKind compares expressions as far as they do not count.
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
	}
	return false
}

// Guard writes the whole table anew, in one transaction, for interfaces given by their indexes.
func (VLANGuard) Guard(ports []int) error {
	tx := new(nftables.Conn)
	replaceVLANTable(tx)
	t := tx.AddTable(vlanTable())
	chain, set := tx.AddChain(vlanChain(t)), vlanPorts(t)
	elements := make([]nftables.SetElement, 0, len(ports))
	for _, p := range ports {
		elements = append(elements, nftables.SetElement{Key: binary.NativeEndian.AppendUint32(nil, uint32(p))})
	}
	if err := tx.AddSet(set, elements); err != nil {
		return errors.Wrap(err, "writing table bridge weave-npc of nftables")
	}
	for _, r := range vlanRules(chain, set) {
		tx.AddRule(r)
	}
	return errors.Wrap(tx.Flush(), "writing table bridge weave-npc of nftables")
}

// Remove removes the table, and says whether there was one.
func (g VLANGuard) Remove() (bool, error) {
	there, err := g.there()
	if err != nil || !there {
		return false, err
	}
	tx := new(nftables.Conn)
	replaceVLANTable(tx)
	return true, errors.Wrap(tx.Flush(), "removing table bridge weave-npc of nftables")
}

// replaceVLANTable adds what removes the table to a transaction, whether it is there or not.
func replaceVLANTable(tx *nftables.Conn) {
	tx.AddTable(vlanTable())
	tx.DelTable(vlanTable())
}
