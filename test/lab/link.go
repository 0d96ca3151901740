package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// podInterface is the interface of every pod, and of every host on the switch.
const podInterface = "eth0"

// The functions of this file work in the calling thread's network namespace.

// addBridge makes a bridge with no spanning tree and no multicast snooping. A bridge without an address of its own
// would take that of one of its ports, and change it.
func addBridge(name string, addr net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, addr
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(bridge); err != nil {
		return errors.Wrapf(err, "making bridge %s", name)
	}
	return raise(name)
}

// addVeth makes a pair whose other end is another host's eth0, and sets this end up.
func addVeth(name string, peer *Host, peerAddr net.HardwareAddr) error {
	namespace, err := netns.GetFromPath(filepath.Join(netnsDir, peer.netns))
	if err != nil {
		return errors.Wrapf(err, "opening the network namespace of %s", peer.name)
	}
	defer namespace.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = podInterface
	veth.PeerNamespace = netlink.NsFd(int(namespace))
	veth.PeerHardwareAddr = peerAddr
	if err := netlink.LinkAdd(veth); err != nil {
		return errors.Wrapf(err, "making veth %s", name)
	}
	return raise(name)
}

// raise gives an interface addresses, without duplicate address detection, and sets it up.
func raise(name string, addrs ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return errors.Wrapf(err, "finding interface %s", name)
	}
	for _, addr := range addrs {
		err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr), Flags: unix.IFA_F_NODAD})
		if err != nil {
			return errors.Wrapf(err, "adding address %s to %s", addr, name)
		}
	}
	return errors.Wrapf(netlink.LinkSetUp(link), "setting %s up", name)
}

// enslave makes an interface a port of a bridge. With hairpin, a frame may leave by the port it came from.
func enslave(port, bridge string, hairpin bool) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return errors.Wrapf(err, "finding interface %s", port)
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return errors.Wrapf(err, "finding bridge %s", bridge)
	}
	if err := netlink.LinkSetMaster(link, master); err != nil {
		return errors.Wrapf(err, "making %s a port of %s", port, bridge)
	}
	return errors.Wrapf(netlink.LinkSetHairpin(link, hairpin), "setting hairpin mode of %s", port)
}

// addRoute adds or replaces a route. Without a gateway the destination is on the link; source may be the zero Addr.
func addRoute(to netip.Prefix, gateway netip.Addr, device string, source netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return errors.Wrapf(err, "finding interface %s", device)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Src: source.AsSlice()}
	if gateway.IsValid() {
		route.Gw = gateway.AsSlice()
		route.Flags = int(netlink.FLAG_ONLINK)
	} else if to.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	return errors.Wrapf(netlink.RouteReplace(route), "adding route %s by %s to %s", to, gateway, device)
}

// removeRoute removes a route; one that is not there is no error.
func removeRoute(to netip.Prefix) error {
	err := netlink.RouteDel(&netlink.Route{Dst: ipNet(to)})
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return errors.Wrapf(err, "removing route %s", to)
}

// removeLink removes an interface, and with a veth its other end; one that is not there is no error.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return errors.Wrapf(err, "finding interface %s", name)
	}
	return errors.Wrapf(netlink.LinkDel(link), "removing interface %s", name)
}

// awaitUp waits until the kernel has seen an interface's carrier and finished with its addresses.
func awaitUp(name string) error {
	for range 5000 {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return errors.Wrapf(err, "finding interface %s", name)
		}
		usable := link.Attrs().OperState == netlink.OperUp
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			return errors.Wrapf(err, "listing the addresses of %s", name)
		}
		for _, addr := range addrs {
			usable = usable && addr.Flags&unix.IFA_F_TENTATIVE == 0
		}
		if usable {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.Errorf("interface %s does not come up", name)
}

// hardwareAddr derives a locally administered address from an IP address, so that neighbours who remember an address
// find whoever has it next.
func hardwareAddr(addr netip.Addr) net.HardwareAddr {
	digest := sha256.Sum256(addr.AsSlice())
	return append(net.HardwareAddr{0x0a}, digest[:5]...)
}

// portName derives the name of an interface, at most 15 characters, from a namespace's name.
func portName(prefix, namespace string) string {
	digest := sha256.Sum256([]byte(namespace))
	return prefix + hex.EncodeToString(digest[:4])
}

// singles makes a prefix of each address that holds it alone.
func singles(addrs []netip.Addr) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, addr := range addrs {
		prefixes = append(prefixes, single(addr))
	}
	return prefixes
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
