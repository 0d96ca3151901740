package ipset

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
)

// minElement is the size of the smallest element in bytes.
const minElement = 16

// listing collects the sets of a dump.
type listing struct {
	prefix string
	sets   []Listing
	// count is the number of sets of any name, last the name of the last one, and hasLists is set if lists of sets are
	// among them.
	count    int
	last     []byte
	hasLists bool
}

// add reads the body of one message: a set, or the next part of the previous set.
func (l *listing) add(body []byte) error {
	if len(body) < nfgenLen {
		return errShort
	}
	var (
		name, kind, data, elements []byte
		family                     uint8
	)
	a := attrs{rest: body[nfgenLen:]}
	for a.next() {
		switch a.kind {
		case nl.IPSET_ATTR_SETNAME:
			name = a.text()
		case nl.IPSET_ATTR_TYPENAME:
			kind = a.text()
		case nl.IPSET_ATTR_FAMILY:
			family = a.u8()
		case nl.IPSET_ATTR_DATA:
			data = a.value
		case nl.IPSET_ATTR_ADT:
			elements = a.value
		}
	}
	if a.err != nil {
		return a.err
	}
	l.countSet(name, kind)
	if len(name) < len(l.prefix) || string(name[:len(l.prefix)]) != l.prefix {
		return nil
	}
	if kind == nil {
		if len(l.sets) == 0 || l.sets[len(l.sets)-1].Name != string(name) {
			return errors.Errorf("elements of set %q came without its header", name)
		}
		return l.sets[len(l.sets)-1].addMembers(elements)
	}
	l.sets = append(l.sets, Listing{})
	set := &l.sets[len(l.sets)-1]
	set.Name = string(name)
	set.Type = knownType(kind)
	set.Family = Family(family)
	if err := set.parse(data); err != nil {
		return err
	}
	return set.addMembers(elements)
}

// countSet counts a set of any name. A message without its type is a further part of the set before.
func (l *listing) countSet(name, kind []byte) {
	if kind != nil {
		l.count++
		l.last = append(l.last[:0], name...)
		l.hasLists = l.hasLists || Type(kind) == ListSet
	}
}

// unlisted returns a function that reports whether a set belongs into the listing by its name, and is not there.
func (l *listing) unlisted() func(name []byte) bool {
	listed := make(map[string]bool, len(l.sets))
	for i := range l.sets {
		listed[l.sets[i].Name] = true
	}
	return func(name []byte) bool { return bytes.HasPrefix(name, []byte(l.prefix)) && !listed[string(name)] }
}

// knownType returns a type without allocating its name, if it is one of the constants.
func knownType(name []byte) Type {
	switch Type(name) {
	case HashIP:
		return HashIP
	case HashNet:
		return HashNet
	case HashIPPort:
		return HashIPPort
	case ListSet:
		return ListSet
	}
	return Type(name)
}

// options are the options that Create does not set.
var options = []struct {
	flag uint32
	name string
}{{nl.IPSET_FLAG_WITH_COUNTERS, "counters"}, {nl.IPSET_FLAG_WITH_FORCEADD, "forceadd"},
	{nl.IPSET_FLAG_WITH_SKBINFO, "skbinfo"}}

// parse reads the data of a header.
func (h *Header) parse(data []byte) error {
	a := attrs{rest: data}
	var other []string
	for a.next() {
		switch a.kind {
		case nl.IPSET_ATTR_TIMEOUT:
			h.Timeout = a.u32()
		case nl.IPSET_ATTR_NETMASK:
			other = append(other, "netmask")
		case nl.IPSET_ATTR_MAXELEM, nl.IPSET_ATTR_SIZE:
			h.Size = a.u32()
		case nl.IPSET_ATTR_ELEMENTS:
			h.Elements = a.u32()
		case nl.IPSET_ATTR_REFERENCES:
			h.References = a.u32()
		case nl.IPSET_ATTR_CADT_FLAGS:
			flags := a.u32()
			h.Comments = flags&nl.IPSET_FLAG_WITH_COMMENT != 0
			for _, o := range options {
				if flags&o.flag != 0 {
					other = append(other, o.name)
				}
			}
		}
	}
	if !h.Comments {
		other = append(other, "no comments")
	}
	h.Other = strings.Join(other, ", ")
	if h.Size == h.Type.maxSize() {
		h.Size = 0
	}
	return a.err
}

// addMembers reads elements and appends them to the set.
func (l *Listing) addMembers(data []byte) error {
	if l.Members == nil {
		l.Members = make([]Element, 0, min(int(l.Elements), len(data)/minElement))
	}
	a := attrs{rest: data}
	for a.next() {
		if a.kind != nl.IPSET_ATTR_DATA {
			continue
		}
		var e Element
		if err := e.parse(a.value); err != nil {
			return err
		}
		l.Members = append(l.Members, e)
	}
	return a.err
}

// parse reads an element.
func (e *Element) parse(data []byte) error {
	var ip netip.Addr
	bits := -1
	a := attrs{rest: data}
	for a.next() {
		switch a.kind {
		case nl.IPSET_ATTR_IP:
			address, err := parseAddress(a.value)
			if err != nil {
				return err
			}
			ip = address
		case nl.IPSET_ATTR_CIDR:
			bits = int(a.u8())
		case nl.IPSET_ATTR_PORT:
			e.Port = a.u16()
		case nl.IPSET_ATTR_PROTO:
			e.Proto = a.u8()
		case nl.IPSET_ATTR_CADT_FLAGS:
			e.NoMatch = a.u32()&nl.IPSET_FLAG_NOMATCH != 0
		case nl.IPSET_ATTR_NAME:
			e.Set = string(a.text())
		case nl.IPSET_ATTR_TIMEOUT:
			e.Timeout = a.u32()
		case nl.IPSET_ATTR_COMMENT:
			e.Comment = string(a.text())
		}
	}
	if a.err != nil {
		return a.err
	}
	if !ip.IsValid() {
		return nil
	}
	if bits < 0 {
		bits = ip.BitLen()
	}
	e.Prefix = netip.PrefixFrom(ip, bits)
	return nil
}

func parseAddress(data []byte) (netip.Addr, error) {
	a := attrs{rest: data}
	if !a.next() {
		return netip.Addr{}, errors.New("element has no address")
	}
	ip, ok := netip.AddrFromSlice(a.value)
	if !ok {
		return netip.Addr{}, errShort
	}
	return ip, nil
}
