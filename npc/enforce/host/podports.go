package host

import (
	"net"
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ifaTargetNetNSID is IFA_TARGET_NETNSID of linux/if_addr.h.
const ifaTargetNetNSID = 10

// Ports are the interfaces of a node, divided by what is behind them. Each list is sorted by index.
type Ports struct {
	// Pods lead to pods: ports of the pods' bridges, and interfaces with routes whose other end is in another network
	// namespace.
	Pods []Port
	// Others are the indexes of all other interfaces.
	Others []int
	// Bridged is set if there is a bridge of pods.
	Bridged bool
	// MACs are the hardware addresses of the other interfaces.
	MACs []net.HardwareAddr
}

// Port is an interface of the node that leads to a pod.
type Port struct {
	Index int
	Name  string
	// Bridge is set if the interface is the port of a bridge.
	Bridge bool

	// NetNSID is the kernel's number of the network namespace behind the port; negative if there is none.
	NetNSID int

	peer int // the index of the other end
}

// Behind is what the kernel has at the other end of a port.
type Behind struct {
	MAC net.HardwareAddr
	// Addrs are the addresses of the other end, in the kernel's order.
	Addrs []netip.Addr
	// Elsewhere are the addresses of the other interfaces of its network namespace, loopback apart.
	Elsewhere []netip.Addr
}

// Ports returns the interfaces in the network namespace of the calling thread.
func (a Attachment) Ports() (Ports, error) {
	list, err := listLinks()
	if err != nil {
		return Ports{}, err
	}
	away, err := uplinks()
	if err != nil {
		return Ports{}, err
	}
	bridges := a.namedBridge()
	if a.Interface == "" {
		bridges = a.gateways(list)
	}
	bridged := map[int]bool{} // by index
	pods, _ := list.ports(bridges, a.BridgePort)
	for _, p := range pods {
		bridged[p.Attrs().Index] = true
	}
	out := Ports{Bridged: len(bridges) > 0}
	for _, l := range list.all {
		at := l.Attrs()
		if !bridged[at.Index] && !routedToPod(l, away) {
			out.Others = append(out.Others, at.Index)
			if len(at.HardwareAddr) > 0 {
				out.MACs = append(out.MACs, at.HardwareAddr)
			}
			continue
		}
		out.Pods = append(out.Pods, Port{Index: at.Index, Name: at.Name, Bridge: bridged[at.Index], NetNSID: at.NetNsID,
			peer: at.ParentIndex})
	}
	slices.Sort(out.Others)
	slices.SortFunc(out.Pods, func(p, q Port) int { return p.Index - q.Index })
	return out, nil
}

// routedToPod reports whether a pod may be behind an interface that is no port of a bridge. The default route of a node
// that is itself a container leads through such an interface too.
func routedToPod(l netlink.Link, uplinks map[int]bool) bool {
	a := l.Attrs()
	return (l.Type() == "veth" || l.Type() == "netkit") && a.MasterIndex == 0 && a.NetNsID >= 0 && !uplinks[a.Index]
}

// Reader asks the kernel what is behind ports. CAP_NET_ADMIN is enough for that.
type Reader struct {
	socket *nl.SocketHandle
}

// NewReader returns a reader for the network namespace of the calling thread. Close frees it.
func NewReader() (*Reader, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Wrap(err, "opening a netlink socket for what is behind the ports of pods")
	}
	// Without strict checking the kernel ignores the namespace, and lists the node's own addresses.
	if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		s.Close()
		return nil, errors.Wrap(err, "asking for strict checks of netlink requests")
	}
	return &Reader{&nl.SocketHandle{Socket: s}}, nil
}

// Close frees the reader.
func (r *Reader) Close() { r.socket.Close() }

// Behind returns what is at the other end of a port. It has no addresses if that is not in a network namespace that the
// kernel has a number for.
func (r *Reader) Behind(p Port) (Behind, error) {
	if p.NetNSID < 0 || p.peer == 0 {
		return Behind{}, nil
	}
	var b Behind
	loopback := map[int]bool{}
	links, err := r.dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		unix.IFLA_TARGET_NETNSID, p.NetNSID)
	if err != nil {
		return Behind{}, errors.Wrapf(err, "listing the interfaces behind %s", p.Name)
	}
	for _, m := range links {
		l, err := netlink.LinkDeserialize(&unix.NlMsghdr{Type: unix.RTM_NEWLINK}, m)
		if err != nil {
			return Behind{}, errors.Wrapf(err, "reading the interfaces behind %s", p.Name)
		}
		loopback[l.Attrs().Index] = l.Attrs().Flags&net.FlagLoopback != 0
		if l.Attrs().Index == p.peer {
			b.MAC = l.Attrs().HardwareAddr
		}
	}
	addrs, err := r.dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC), ifaTargetNetNSID, p.NetNSID)
	if err != nil {
		return Behind{}, errors.Wrapf(err, "listing the addresses behind %s", p.Name)
	}
	for _, m := range addrs {
		switch index, a := addressOf(m); {
		case !a.IsValid() || loopback[index]:
		case index == p.peer:
			b.Addrs = append(b.Addrs, a)
		default:
			b.Elsewhere = append(b.Elsewhere, a)
		}
	}
	return b, nil
}

// dump lists what is in a network namespace, given by its id.
func (r *Reader) dump(request, reply int, header nl.NetlinkRequestData, attr, netnsID int) ([][]byte, error) {
	return retryInterrupted(func() ([][]byte, error) {
		q := nl.NewNetlinkRequest(request, unix.NLM_F_DUMP)
		q.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: r.socket}
		q.AddData(header)
		q.AddData(nl.NewRtAttr(attr, nl.Uint32Attr(uint32(netnsID))))
		return q.Execute(unix.NETLINK_ROUTE, uint16(reply))
	})
}

// addressOf returns the address in a message, and the index of its interface. An interface's own address is
// IFA_LOCAL: where the kernel has a peer's too, IFA_ADDRESS is that.
func addressOf(m []byte) (index int, a netip.Addr) {
	header := nl.DeserializeIfAddrmsg(m)
	attrs, err := nl.ParseRouteAttr(m[header.Len():])
	if err != nil {
		return 0, netip.Addr{}
	}
	for _, attr := range attrs {
		if kind := attr.Attr.Type; kind == unix.IFA_LOCAL || kind == unix.IFA_ADDRESS && !a.IsValid() {
			a, _ = netip.AddrFromSlice(attr.Value)
		}
	}
	return int(header.Index), a
}
