package node

import (
	stderrors "errors"
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

// Attachment tells by what the pods of this node are attached.
type Attachment struct {
	// Interface is the interface of the pods as the operator gives it; if it is empty, bridges are found by their addresses.
	Interface string
	// BridgePort is the port of the pods' bridge that leads to the pods of other nodes.
	BridgePort string
	// InRange reports whether an address is in the node's range of pod addresses.
	InRange func(netip.Addr) bool
}

// Bridges returns the names of the bridges that pods of this node are attached to: the one that the operator gives, or those with an
// address in the node's range, which is the pods' gateway there.
func (a Attachment) Bridges() []string {
	if a.Interface != "" {
		if l, err := netlink.LinkByName(a.Interface); err == nil && l.Type() == "bridge" {
			return []string{a.Interface}
		}
		return nil
	}
	links, err := listLinks()
	if err != nil {
		return nil // nothing is known to be wrong
	}
	var bridges []string
	for _, l := range links {
		if l.Type() == "bridge" && a.isGateway(l) {
			bridges = append(bridges, l.Attrs().Name)
		}
	}
	return bridges
}

// isGateway reports whether a link has an address in the node's range of pod addresses.
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

// podPorts returns the indexes, sorted, of those ports of the pods' bridges that lead to pods. bridged is false if there is no such bridge.
func (a Attachment) podPorts() (ports []int, bridged bool, err error) {
	bridges := a.Bridges()
	if len(bridges) == 0 {
		return nil, false, nil
	}
	links, err := listLinks()
	if err != nil {
		return nil, true, err
	}
	byIndex := map[int]netlink.Link{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	for _, l := range links {
		at := l.Attrs()
		bridge := byIndex[at.MasterIndex]
		if bridge == nil || bridge.Type() != "bridge" || !slices.Contains(bridges, bridge.Attrs().Name) {
			continue
		}
		if leadsToPod(l, byIndex) && at.Name != a.BridgePort {
			ports = append(ports, at.Index)
		}
	}
	slices.Sort(ports)
	return ports, true, nil
}

// listLinks returns all interfaces of the network namespace.
func listLinks() (links []netlink.Link, err error) {
	for range listTries {
		if links, err = netlink.LinkList(); !stderrors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return links, errors.Wrap(err, "listing the interfaces of this node")
}
