package ipset

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Family is the address family of a set, by its NFPROTO number.
type Family uint8

// The families that a set of addresses can have.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

// String returns the name that ipset(8) gives the family.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "inet"
	case IPv6:
		return "inet6"
	}
	return "family-" + strconv.Itoa(int(f))
}

// Type is the type of a set, by the name that ipset(8) gives it.
type Type string

// The types that this package can create. Sets of other types are listed too, with the entries that can be parsed.
const (
	HashIP     Type = "hash:ip"
	HashNet    Type = "hash:net"
	HashIPPort Type = "hash:ip,port"
	ListSet    Type = "list:set"
)

// Limits of the kernel, from linux/netfilter/ipset/ip_set.h. The last two are the meanings of a Size of 0.
const (
	maxName     = 31
	maxComment  = 255
	maxTimeout  = math.MaxInt32 / 1000 // the kernel counts milliseconds
	maxElements = math.MaxUint32
	maxMembers  = 65535 // a network namespace holds at most 65,534 sets
)

// revision returns the lowest revision of the type that supports every feature in use: comment, nomatch, every protocol
// with ports. ipset(8) cannot list a set of a revision newer than itself.
func (t Type) revision() (uint8, bool) {
	switch t {
	case HashIP, ListSet:
		return 2, true
	case HashIPPort:
		return 3, true
	case HashNet:
		return 4, true
	}
	return 0, false
}

// maxSize returns the meaning of a Size of 0.
func (t Type) maxSize() uint32 {
	if t == ListSet {
		return maxMembers
	}
	return maxElements
}

// Set is the specification of a set.
type Set struct {
	Name   string // 1 to 31 bytes
	Type   Type
	Family Family // 0 and ignored for list:set
	// Size limits the number of elements (maxelem; size for list:set, where current kernels ignore it). 0 stands for
	// the maximum, in listings too. It is a limit and not an allocation.
	Size uint32
	// Timeout is the number of seconds after which an element expires that was not added again; 0 for never. A list:set
	// has none.
	Timeout uint32
}

// limit returns the size in the kernel's terms.
func (s Set) limit() uint32 {
	if s.Size == 0 {
		return s.Type.maxSize()
	}
	return s.Size
}

// String returns the line for `ipset restore` that creates the set.
func (s Set) String() string {
	if s.Type == ListSet {
		return fmt.Sprintf("create %s %s size %d comment", word(s.Name), s.Type, s.limit())
	}
	timeout := ""
	if s.Timeout > 0 {
		timeout = fmt.Sprintf(" timeout %d", s.Timeout)
	}
	return fmt.Sprintf("create %s %s family %s maxelem %d%s comment",
		word(s.Name), printable(string(s.Type)), s.Family, s.limit(), timeout)
}

// Entry identifies one element of a set. It is comparable and can be the key of a map.
type Entry struct {
	Prefix netip.Prefix // the address, of full length, in hash:ip and hash:ip,port; the network in hash:net
	Proto  uint8        // hash:ip,port: the number of the protocol
	Port   uint16       // hash:ip,port
	Set    string       // list:set: the name of the member
}

// Addr returns the entry of an address in a hash:ip set. An IPv4-mapped IPv6 address counts as IPv4.
func Addr(a netip.Addr) Entry {
	a = a.Unmap()
	return Entry{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

// Net returns the entry of a network in a hash:net set. It clears the host bits.
func Net(p netip.Prefix) Entry { return Entry{Prefix: p.Masked()} }

// AddrPort returns the entry of an address, a protocol number and a port in a hash:ip,port set.
func AddrPort(a netip.Addr, proto uint8, port uint16) Entry {
	e := Addr(a)
	e.Proto, e.Port = proto, port
	return e
}

// Member returns the entry of a set in a list:set.
func Member(name string) Entry { return Entry{Set: name} }

// String returns the entry as `ipset list` prints it: 10.0.0.1, 10.0.0.0/8, 10.0.0.1,tcp:80 or the name of a set.
func (e Entry) String() string {
	if e.Set != "" {
		return word(e.Set)
	}
	text := e.Prefix.Addr().String()
	if !e.Prefix.IsSingleIP() {
		text = e.Prefix.String()
	}
	if e.Proto == 0 {
		return text
	}
	name, _ := protocol(e.Proto)
	return text + "," + name + ":" + strconv.Itoa(int(e.Port))
}

// protocol returns the name of a protocol as in /etc/protocols, and whether it has ports. The name of a protocol
// without ports is its number.
func protocol(number uint8) (string, bool) {
	switch number {
	case unix.IPPROTO_TCP:
		return "tcp", true
	case unix.IPPROTO_UDP:
		return "udp", true
	case unix.IPPROTO_SCTP:
		return "sctp", true
	case unix.IPPROTO_UDPLITE:
		return "udplite", true
	}
	return strconv.Itoa(int(number)), false
}

// Attr holds the attributes of an element that are no part of its identity.
type Attr struct {
	Comment string // at most 255 bytes, without NUL
	NoMatch bool   // hash:net: an exception from a larger network of the set
	// Timeout is the number of seconds after which the element expires, at most 2,147,483, in a set with a timeout; 0 for
	// the set's. In listings it is what is left of it, and 0 if the element never expires.
	Timeout uint32
}

// Element is one element of a set.
type Element struct {
	Entry
	Attr
}

// String returns the element as `ipset save` prints it.
func (e Element) String() string {
	text := e.Entry.String()
	if e.Timeout > 0 {
		text += " timeout " + strconv.FormatUint(uint64(e.Timeout), 10)
	}
	if e.NoMatch {
		text += " nomatch"
	}
	if e.Comment != "" {
		text += ` comment "` + printable(e.Comment) + `"`
	}
	return text
}

// Header is a set and its state.
type Header struct {
	Set
	Comments   bool   // whether the set has the comment extension
	Other      string // differences from the options of Create, in words; empty if there are none
	Elements   uint32 // number of elements
	References uint32 // number of rules and sets that refer to the set
}

// Mismatch returns in words why the set cannot stand for one that is wanted; empty if it can.
func (h Header) Mismatch(want Set) string {
	switch {
	case h.Type != want.Type:
		return fmt.Sprintf("is a %s, not a %s", h.Type, want.Type)
	case want.Type != ListSet && h.Family != want.Family:
		return fmt.Sprintf("is of family %s, not %s", h.Family, want.Family)
	case want.Type != ListSet && h.Size != want.Size:
		return fmt.Sprintf("takes %d members at most", h.Size)
	case h.Timeout != want.Timeout:
		return fmt.Sprintf("has a timeout of %d s, not %d s", h.Timeout, want.Timeout)
	case h.Other != "":
		return "has other options than ours: " + h.Other
	}
	return ""
}

// Listing is a set with all its elements, in the kernel's order.
type Listing struct {
	Header
	Members []Element
}

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds of operations.
const (
	// Create creates a set and adds Elements as Add does. It succeeds if the very same set exists already. If the
	// existing set differs in type, family, size or options, the error is ErrExists, and Elements may have been added
	// to the existing set.
	Create OpKind = iota + 1
	// Add adds Elements. It replaces the comment and nomatch of elements that are in the set already, and their timeout,
	// which starts again and may end earlier than before.
	Add
	// Delete removes Elements, by their Entry. An element that is not in the set is no error.
	Delete
	// Flush removes all elements. A set that does not exist is no error.
	Flush
	// Destroy removes the set. A set that does not exist is no error.
	Destroy
)

// String returns the corresponding command of ipset(8).
func (k OpKind) String() string {
	switch k {
	case Create:
		return "create"
	case Add:
		return "add"
	case Delete:
		return "del"
	case Flush:
		return "flush"
	case Destroy:
		return "destroy"
	}
	return "kind-" + strconv.Itoa(int(k))
}

// Op is one operation on one set. Flush and Destroy need only the set's name; Create, Add and Delete its type and
// family, against which the elements are checked.
type Op struct {
	Kind     OpKind
	Set      Set
	Elements []Element // Create, Add, Delete
}

// String returns the lines for `ipset restore -exist` that do the same, without a final newline. Quotation marks and
// control characters, which that format cannot hold, are printed as question marks.
func (o Op) String() string {
	lines := make([]string, 0, 1+len(o.Elements))
	name := word(o.Set.Name)
	switch o.Kind {
	case Create:
		lines = append(lines, o.Set.String())
		for _, e := range o.Elements {
			lines = append(lines, "add "+name+" "+e.String())
		}
	case Add:
		for _, e := range o.Elements {
			lines = append(lines, "add "+name+" "+e.String())
		}
	case Delete:
		for _, e := range o.Elements {
			lines = append(lines, "del "+name+" "+e.Entry.String())
		}
	default:
		lines = append(lines, o.Kind.String()+" "+name)
	}
	return strings.Join(lines, "\n")
}

// word returns a name as one argument of ipset(8).
func word(name string) string {
	if strings.Contains(name, " ") {
		return `"` + printable(name) + `"`
	}
	return printable(name)
}

// printable replaces characters that would end a quoted string or a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '"' || r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
