package host

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Attachment describes how the pods of this node are attached.
type Attachment struct {
	// Interface is the pods' interface as the operator gives it. If it is empty, bridges are found by their addresses.
	Interface string
	// BridgePort is the port of the pods' bridge that leads to the pods of other nodes.
	BridgePort string
	// InRange reports whether an address is in the node's range of pod addresses.
	InRange func(netip.Addr) bool
}

// Bridges returns the names of the bridges that pods of this node are attached to: the operator's, or those with an
// address in the node's range, where the bridge is the pods' gateway.
func (a Attachment) Bridges() []string {
	if a.Interface != "" {
		return a.namedBridge()
	}
	list, err := listLinks()
	if err != nil {
		return nil // no problem is known
	}
	return a.gateways(list)
}

// namedBridge returns the operator's interface if it is a bridge.
func (a Attachment) namedBridge() []string {
	if l, err := netlink.LinkByName(a.Interface); err == nil && l.Type() == "bridge" {
		return []string{a.Interface}
	}
	return nil
}

// gateways returns the names of the bridges with an address in the node's range of pod addresses.
func (a Attachment) gateways(list links) []string {
	var bridges []string
	for _, l := range list.all {
		if l.Type() == "bridge" && a.isGateway(l) {
			bridges = append(bridges, l.Attrs().Name)
		}
	}
	return bridges
}

// isGateway reports whether an interface has an address in the node's range of pod addresses.
func (a Attachment) isGateway(l netlink.Link) bool {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(addr netlink.Addr) bool {
		ip, ok := netip.AddrFromSlice(addr.IP)
		return ok && a.InRange(ip.Unmap())
	})
}
