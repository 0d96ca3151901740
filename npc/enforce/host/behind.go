package host

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxBehind bounds the prefixes behind uplinks. Addresses beyond that count as pods.
const maxBehind = 4096

// forwarding follows the forwarding databases of bridges.
type forwarding struct {
	// ports holds hardware address -> index of the bridge port at which it was last seen. A bridge forgets silent
	// hosts.
	ports map[string]int
}

// behind returns the addresses that the node routes through uplinks, and those that it looks for on their bridges; both
// are given by their indexes. A routed packet does not show the port by which it will leave the bridge, but the node
// knows the ports of its neighbours, and addresses behind a router are not on the bridge.
func (f *forwarding) behind(uplinks, bridges map[int]bool) (away, onBridge []netip.Prefix, err error) {
	known := map[string]int{}
	behind, here := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for bridge := range bridges {
		neighbours, err := f.neighbours(bridge)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range neighbours {
			a, ok := netip.AddrFromSlice(n.IP)
			port := f.ports[n.HardwareAddr.String()]
			if !ok || len(n.HardwareAddr) == 0 || port == 0 || n.State&(unix.NUD_FAILED|unix.NUD_INCOMPLETE) != 0 {
				continue
			}
			known[n.HardwareAddr.String()] = port
			if a = a.Unmap(); uplinks[port] && !a.IsLinkLocalUnicast() {
				behind[netip.PrefixFrom(a, a.BitLen())] = true
			}
		}
		if err := findRoutes(bridge, behind, here); err != nil {
			return nil, nil, err
		}
	}
	f.ports = known
	if len(here) > maxBehind { // routed prefixes are indistinguishable from those on the bridge
		maps.DeleteFunc(behind, func(p netip.Prefix, _ bool) bool { return !p.IsSingleIP() })
	}
	return sorted(behind), sorted(here), nil
}

// neighbours returns the neighbours of the node on a bridge, and updates their ports.
func (f *forwarding) neighbours(bridge int) ([]netlink.Neigh, error) {
	entries, err := retryInterrupted(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, unix.AF_BRIDGE) })
	if err != nil {
		return nil, errors.Wrap(err, "listing the forwarding database of the pods' bridge")
	}
	if f.ports == nil {
		f.ports = map[string]int{}
	}
	for _, e := range entries {
		if e.MasterIndex == bridge && e.LinkIndex != bridge {
			f.ports[e.HardwareAddr.String()] = e.LinkIndex
		}
	}
	found, err := retryInterrupted(func() ([]netlink.Neigh, error) { return netlink.NeighList(bridge, unix.AF_UNSPEC) })
	return found, errors.Wrap(err, "listing the neighbours on the pods' bridge")
}

// findRoutes adds the prefixes that the node routes through a router on a bridge to behind, and those that it looks for
// on the bridge itself to here.
func findRoutes(bridge int, behind, here map[netip.Prefix]bool) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := retryInterrupted(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: bridge},
				netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return errors.Wrap(err, "listing the routes of this node")
		}
		direct := map[netip.Prefix]bool{} // on the bridge -> whether the route is in a table other than main
		var routed []netip.Prefix
		for _, r := range routes {
			p := prefixOf(r.Dst, family)
			switch {
			case r.Type != unix.RTN_UNICAST || !p.IsValid() || p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast():
			case r.Gw == nil && r.Via == nil:
				here[p], direct[p] = true, direct[p] || r.Table != unix.RT_TABLE_MAIN
			case r.Table == unix.RT_TABLE_MAIN:
				routed = append(routed, p)
			}
		}
		for _, p := range routed {
			within := func(q netip.Prefix) bool { return direct[q] && q.Overlaps(p) }
			if !here[p] && !slices.ContainsFunc(sorted(direct), within) {
				behind[p] = true
			}
		}
	}
	return nil
}

// prefixOf returns the destination of a route. A route without one is for all addresses.
func prefixOf(n *net.IPNet, family int) netip.Prefix {
	if n == nil && family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	if n == nil {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits).Masked()
}

// sorted returns at most maxBehind prefixes, the longest first. Addresses of the others count as pods.
func sorted(prefixes map[netip.Prefix]bool) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for p := range prefixes {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(-cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	return out[:min(len(out), maxBehind)]
}
