package lab

import (
	"net"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// carrier is the interface that an uplink's frames travel by, on both sides.
const carrier = "carrier0"

// AddUplink makes a host that is no pod and has addresses of the node's ranges, behind a port of the pods' bridge by
// the given name. The port is a VXLAN device, as that of an overlay network or of another segment is.
func (n *Node) AddUplink(name, port string) (*Pod, error) {
	h, err := n.harness.newHost(name)
	if err != nil {
		return nil, err
	}
	p := &Pod{Host: h, node: n, port: port}
	err = n.claim(p, nil)
	for _, step := range []func() error{
		func() error { return n.inside(p.plugCarrier) },
		func() error { return n.inside(func() error { return addVXLAN(port, 1, 2, nil) }) },
		func() error { return n.inside(func() error { return enslave(port, bridgeName, false) }) },
		func() error {
			return p.inside(func() error { return addVXLAN(podInterface, 2, 1, hardwareAddr(p.addrs[0])) })
		},
		func() error { return p.inside(p.configureBridged) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		_ = p.Close()
		return nil, errors.Wrapf(err, "attaching %s to the bridge of %s", name, n.name)
	}
	return p, nil
}

// plugCarrier makes the carrier's both ends, in the node's namespace.
func (p *Pod) plugCarrier() error {
	namespace, err := netns.GetFromPath(p.NamespacePath())
	if err != nil {
		return errors.Wrapf(err, "opening the network namespace of %s", p.name)
	}
	defer namespace.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = carrier
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = carrier, netlink.NsFd(int(namespace))
	return errors.Wrapf(netlink.LinkAdd(veth), "making veth %s", carrier)
}

// carrierAddr returns the address of an end of the carrier, 1 or 2.
func carrierAddr(end byte) net.IP { return net.IPv4(169, 254, 77, end) }

// addVXLAN makes a VXLAN device over the carrier, in the calling thread's namespace.
func addVXLAN(name string, own, other byte, addr net.HardwareAddr) error {
	link, err := netlink.LinkByName(carrier)
	if err != nil {
		return errors.Wrapf(err, "finding interface %s", carrier)
	}
	addrs := &net.IPNet{IP: carrierAddr(own).To4(), Mask: net.CIDRMask(30, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: addrs}); err != nil {
		return errors.Wrapf(err, "adding an address to %s", carrier)
	}
	if err := raise(carrier); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, addr
	vxlan := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: 7, VtepDevIndex: link.Attrs().Index, Port: 4789, Learning: true,
		SrcAddr: carrierAddr(own).To4(), Group: carrierAddr(other).To4(),
	}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return errors.Wrapf(err, "making VXLAN device %s", name)
	}
	return raise(name)
}
