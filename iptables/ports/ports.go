// Package ports writes and reads the tables of nftables that look at what pods send, at the ports where it arrives.
//
//	have, whole, err := ports.Tables{}.Read()
//	if !whole || !have.Equal(want) {
//		err = ports.Tables{}.Write(have, want, whole)
//	}
//
// Two tables, both named weave-npc, are in the network namespace of the calling thread:
//
//   - The one of the bridge family sees frames before bridge netfilter does and before the bridge learns MAC addresses.
//     It drops frames that pass no ip(6)tables, messages that only routers send, and frames from a source that is not
//     bound to the port.
//   - The one of the inet family sees packets before defragmentation and connection tracking. It binds the sources of
//     pods whose interfaces are not on a bridge, and exists only if there is one.
package ports

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Mode defines what happens to a frame whose source is not bound to its port.
type Mode int

const (
	// Off looks at no source.
	Off Mode = iota
	// Audit counts such frames, and passes them unless the source is reserved.
	Audit
	// On drops them.
	On
)

// String returns the mode as the flag has it.
func (m Mode) String() string {
	switch m {
	case Audit:
		return "audit"
	case On:
		return "on"
	}
	return "off"
}

// MAC is the hardware address of an Ethernet frame.
type MAC [6]byte

// Source is an address that frames of a port may come from.
type Source struct {
	Port int // the index of the interface
	MAC  MAC // zero for a port that is not on a bridge
	Addr netip.Addr
}

// State is what the tables hold.
type State struct {
	Mode      Mode
	AllowVLAN bool // pass frames of pods with a VLAN tag, from their own MAC address
	// OnlyTypes drops frames of pods that are not Ethernet II frames of IPv4, IPv6, ARP or one of Types.
	OnlyTypes bool
	Types     []uint16

	Bridged []int // the ports of pods on bridges
	Routed  []int // the interfaces of pods that are not on a bridge
	Bound   []int // those of both whose sources are bound
	// Exempt are interfaces whose sources are not looked at: uplinks, bridges, the loopback interface and others of the
	// node, and those of pods that route. A source that is bound to a pod is refused at every other interface.
	Exempt []int
	// Sources are the bound sources, each with its pod as "namespace/name".
	Sources map[Source]string
	// Reserved are addresses that no port may send from unless it is exempt or they are bound to it, in Audit too.
	Reserved []netip.Addr
}

// longestOwner is the number of bytes that an element's comment has room for.
const longestOwner = 250

// owner returns what the tables hold as the name of a pod: a long one is shortened.
func owner(pod string) string {
	if len(pod) <= longestOwner {
		return pod
	}
	sum := sha256.Sum256([]byte(pod))
	digest := "#" + hex.EncodeToString(sum[:8])
	return pod[:longestOwner-len(digest)] + digest
}

// Equal reports whether two states are written as the same tables.
func (s State) Equal(other State) bool {
	a, b := s.normal(), other.normal()
	return a.sameRules(b) && slices.Equal(a.Types, b.Types) && slices.Equal(a.Bridged, b.Bridged) &&
		slices.Equal(a.Routed, b.Routed) && slices.Equal(a.Bound, b.Bound) && slices.Equal(a.Exempt, b.Exempt) &&
		maps.Equal(a.Sources, b.Sources) && slices.Equal(a.Reserved, b.Reserved)
}

// sameRules reports whether two states have the same rules for frames.
func (s State) sameRules(other State) bool {
	return s.Mode == other.Mode && s.AllowVLAN == other.AllowVLAN && s.OnlyTypes == other.OnlyTypes
}

// normal returns the part of the state that the tables hold, with sorted lists.
func (s State) normal() State {
	n := State{Mode: s.Mode, AllowVLAN: s.AllowVLAN, OnlyTypes: s.OnlyTypes, Bridged: sorted(s.Bridged)}
	if s.OnlyTypes {
		n.Types = slices.DeleteFunc(sorted(s.Types), func(t uint16) bool { return slices.Contains(s.ownTypes(), t) })
	}
	if s.Mode == Off {
		return n
	}
	n.Routed, n.Exempt = sorted(s.Routed), sorted(s.Exempt)
	n.Bound = slices.DeleteFunc(sorted(s.Bound), func(port int) bool {
		return !contains(n.Bridged, port) && !contains(n.Routed, port)
	})
	for _, a := range s.Reserved {
		n.Reserved = append(n.Reserved, a.Unmap().WithZone(""))
	}
	slices.SortFunc(n.Reserved, netip.Addr.Compare)
	n.Reserved = slices.Compact(n.Reserved)
	n.Sources = make(map[Source]string, len(s.Sources))
	for source, pod := range s.Sources {
		source.Addr = source.Addr.Unmap().WithZone("")
		ports := n.Routed
		if source.bridged() {
			ports = n.Bridged
		}
		if source.Addr.IsValid() && contains(ports, source.Port) {
			n.Sources[source] = owner(pod)
		}
	}
	return n
}

// ownTypes returns the EtherTypes that pods may send whatever Types has.
func (s State) ownTypes() []uint16 {
	types := []uint16{unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_ARP}
	if s.AllowVLAN {
		types = append(types, unix.ETH_P_8021Q, unix.ETH_P_8021AD)
	}
	return types
}

// bridged reports whether the source is that of a port on a bridge.
func (s Source) bridged() bool { return s.MAC != MAC{} }

// compare orders sources by their ports and addresses.
func (s Source) compare(other Source) int {
	if s.Port != other.Port {
		return s.Port - other.Port
	}
	if c := s.Addr.Compare(other.Addr); c != 0 {
		return c
	}
	return bytes.Compare(s.MAC[:], other.MAC[:])
}

func sorted[T int | uint16](list []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

func contains(sorted []int, port int) bool {
	_, found := slices.BinarySearch(sorted, port)
	return found
}
