package ports

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
)

// The sets of a table.
const (
	podPorts    = "pod-ports"
	exemptPorts = "exempt-ports"
	boundPorts  = "bound-ports"
	etherTypes  = "types"
	sources4    = "sources4"   // port, MAC address on a bridge, address
	sources6    = "sources6"   // the same
	portMACs    = "port-macs"  // port, MAC address
	bound4      = "bound4"     // the addresses of sources4 of both tables
	bound6      = "bound6"     // those of sources6, except what only their link knows
	boundMACs   = "bound-macs" // the MAC addresses of portMACs
	reserved4   = "reserved4"  // the addresses of State.Reserved
	reserved6   = "reserved6"
	forged4     = "forged4" // what was forged lately, with the keys of sources4
	forged6     = "forged6"
	forgedARP   = "forged-arp"
	forgedND    = "forged-nd"
	forgedMACs  = "forged-macs"
)

const (
	// forgedFor is how long a forged source is remembered.
	forgedFor = time.Minute
	// mostForged is the most forged sources that a set remembers.
	mostForged = 1024
)

// elements are the keys of a set's elements, with their comments.
type elements map[string]string

// sets returns the sets of the table, without their elements.
func (s structure) sets() []*nftables.Set {
	port := nftables.TypeIFIndex
	from := []nftables.SetDatatype{port}
	if s.bridge() {
		from = append(from, nftables.TypeEtherAddr)
	}
	with := func(addr nftables.SetDatatype) []nftables.SetDatatype { return append(slices.Clone(from), addr) }
	sets := []*nftables.Set{s.set(podPorts, port)}
	if s.OnlyTypes && s.bridge() {
		sets = append(sets, s.set(etherTypes, nftables.TypeEtherType))
	}
	if s.Mode == Off {
		return sets
	}
	sets = append(sets, s.set(exemptPorts, port), s.set(boundPorts, port),
		s.set(sources4, with(nftables.TypeIPAddr)...), s.set(sources6, with(nftables.TypeIP6Addr)...),
		s.set(bound4, nftables.TypeIPAddr), s.set(bound6, nftables.TypeIP6Addr),
		s.set(reserved4, nftables.TypeIPAddr), s.set(reserved6, nftables.TypeIP6Addr),
		s.forgedSet(forged4, with(nftables.TypeIPAddr)), s.forgedSet(forged6, with(nftables.TypeIP6Addr)),
		s.forgedSet(forgedND, with(nftables.TypeIP6Addr)))
	if s.bridge() {
		sets = append(sets, s.set(portMACs, from...), s.set(boundMACs, nftables.TypeEtherAddr),
			s.forgedSet(forgedARP, with(nftables.TypeIPAddr)), s.forgedSet(forgedMACs, from))
	}
	return sets
}

// set returns a set whose keys join values of these types.
func (s structure) set(name string, key ...nftables.SetDatatype) *nftables.Set {
	set := &nftables.Set{Table: s.table(), Name: name, KeyType: key[0], Concatenation: len(key) > 1,
		KeyByteOrder: binaryutil.BigEndian}
	if key[0] == nftables.TypeIFIndex && len(key) == 1 {
		set.KeyByteOrder = binaryutil.NativeEndian
	}
	if len(key) > 1 {
		set.KeyType = nftables.MustConcatSetType(key...)
	}
	return set
}

// forgedSet returns a set that rules fill.
func (s structure) forgedSet(name string, key []nftables.SetDatatype) *nftables.Set {
	set := s.set(name, key...)
	set.Dynamic, set.HasTimeout, set.Timeout, set.Size = true, true, forgedFor, mostForged
	return set
}

// elements returns the elements of the table's sets, except of those that rules fill.
func (s structure) elements() map[string]elements {
	own := s.Routed
	if s.bridge() {
		own = s.Bridged
	}
	all := map[string]elements{podPorts: portKeys(own)}
	if s.OnlyTypes && s.bridge() {
		types := elements{}
		for _, t := range slices.Concat(s.Types, s.ownTypes()) {
			types[string(bigEndian(t))] = ""
		}
		all[etherTypes] = types
	}
	if s.Mode == Off {
		return all
	}
	all[exemptPorts] = portKeys(s.Exempt)
	all[boundPorts] = portKeys(slices.DeleteFunc(slices.Clone(s.Bound), func(p int) bool { return !contains(own, p) }))
	maps.Copy(all, s.sourceKeys())
	all[reserved4], all[reserved6] = elements{}, elements{}
	for _, a := range s.Reserved {
		set := reserved4
		if a.Is6() {
			set = reserved6
		}
		all[set][string(a.AsSlice())] = ""
	}
	return all
}

// sourceKeys returns the elements that stand for bound sources.
func (s structure) sourceKeys() map[string]elements {
	all := map[string]elements{sources4: {}, sources6: {}, bound4: {}, bound6: {}}
	if s.bridge() {
		all[portMACs], all[boundMACs] = elements{}, elements{}
	}
	for source, pod := range s.Sources {
		own, taken := sources4, bound4
		if source.Addr.Is6() {
			own, taken = sources6, bound6
		}
		addr := string(source.Addr.AsSlice())
		// Interfaces that are not on one bridge may have the same link-local addresses.
		if !source.Addr.IsLinkLocalUnicast() || source.Addr.Is4() || source.bridged() && s.bridge() {
			all[taken][addr] = ""
		}
		if source.bridged() != s.bridge() {
			continue
		}
		from := portKey(source.Port)
		if s.bridge() {
			from += string(source.MAC[:]) + "\x00\x00"
			all[portMACs][from] = ""
			all[boundMACs][string(source.MAC[:])] = ""
		}
		all[own][from+addr] = pod
	}
	return all
}

func portKey(port int) string { return string(binary.NativeEndian.AppendUint32(nil, uint32(port))) }

func portKeys(ports []int) elements {
	keys := make(elements, len(ports))
	for _, p := range ports {
		keys[portKey(p)] = ""
	}
	return keys
}

// portsOf returns the ports that are the keys of a set.
func portsOf(keys elements) []int {
	var ports []int
	for k := range keys {
		if len(k) == 4 {
			ports = append(ports, int(binary.NativeEndian.Uint32([]byte(k))))
		}
	}
	return sorted(ports)
}
