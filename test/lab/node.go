package lab

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/pkg/errors"
)

// bridgeName is a node's pod bridge, when pods are attached by one.
const bridgeName = "cni0"

// Node is a node of the cluster: a host that forwards between its pods, the other nodes and the outside.
type Node struct {
	*Host
	ranges []netip.Prefix // of its pods, one a family

	mu       sync.Mutex          // guards the fields below
	occupied map[netip.Addr]*Pod // address -> the pod that has it
	last     int                 // number of the last address given out
}

// PodRanges returns the ranges that the node's pods have addresses from, one a family: of node N these are
// 10.32.N.0/24 and fd10:32:0:N::/64.
func (n *Node) PodRanges() []netip.Prefix { return n.ranges }

// PodInterface returns what packets from and to the node's pods pass: cni0, or "" if each pod has an interface of its
// own.
func (n *Node) PodInterface() string {
	if n.harness.config.Attach == Bridge {
		return bridgeName
	}
	return ""
}

// newNode makes node number i: 172.31.0.1i and fd31::1i.
func (w *Network) newNode(i int) (*Node, error) {
	h, err := w.newHost(fmt.Sprintf("node%d", i))
	if err != nil {
		return nil, err
	}
	n := &Node{Host: h, occupied: map[netip.Addr]*Pod{}, last: 1}
	var addrs []netip.Prefix
	if w.config.IPv4 {
		addrs = append(addrs, netip.MustParsePrefix(fmt.Sprintf("172.31.0.1%d/24", i)))
		n.ranges = append(n.ranges, netip.MustParsePrefix(fmt.Sprintf("10.32.%d.0/24", i)))
	}
	if w.config.IPv6 {
		addrs = append(addrs, netip.MustParsePrefix(fmt.Sprintf("fd31::1%d/64", i)))
		n.ranges = append(n.ranges, netip.MustParsePrefix(fmt.Sprintf("fd10:32:0:%d::/64", i)))
	}
	for _, addr := range addrs {
		h.addrs = append(h.addrs, addr.Addr())
	}
	if err := h.inside(func() error {
		return setSysctls(map[string]string{
			"net/ipv4/ip_forward":                 "1",
			"net/ipv6/conf/all/forwarding":        "1",
			"net/bridge/bridge-nf-call-iptables":  "1",
			"net/bridge/bridge-nf-call-ip6tables": "1",
		})
	}); err != nil {
		return nil, err
	}
	if err := w.plug(h, addrs); err != nil {
		return nil, err
	}
	if w.config.Attach == Bridge {
		if err := h.inside(n.addPodBridge); err != nil {
			return nil, err
		}
	}
	return n, w.connect(n)
}

func (n *Node) addPodBridge() error {
	if err := addBridge(bridgeName, hardwareAddr(n.gateway(n.ranges[0]))); err != nil {
		return err
	}
	var addrs []netip.Prefix
	for _, r := range n.ranges {
		addrs = append(addrs, netip.PrefixFrom(n.gateway(r), r.Bits()))
	}
	return raise(bridgeName, addrs...)
}

// gateway returns the bridge's address in a range, the first.
func (n *Node) gateway(r netip.Prefix) netip.Addr { return r.Addr().Next() }

// connect makes the routes between a new node and those before it.
func (w *Network) connect(n *Node) error {
	for _, other := range w.nodes {
		if err := n.inside(other.routesThrough); err != nil {
			return err
		}
		if err := other.inside(n.routesThrough); err != nil {
			return err
		}
	}
	return nil
}

// routesThrough adds, in the calling thread's namespace, the routes to the node's pods by way of the node.
func (n *Node) routesThrough() error {
	for _, r := range n.ranges {
		if err := n.routeThrough(r); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) routeThrough(to netip.Prefix) error {
	return addRoute(to, n.Addr(familyOf(to.Addr())), podInterface, netip.Addr{})
}

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return 4
	}
	return 6
}

// claim gives a pod the addresses it asked for, or the next free one of every family.
func (n *Node) claim(p *Pod, wanted []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(wanted) == 0 {
		var err error
		if wanted, err = n.nextAddrs(); err != nil {
			return err
		}
	}
	for _, addr := range wanted {
		if holder := n.occupied[addr]; holder != nil {
			return errors.Errorf("address %s belongs to pod %s", addr, holder.name)
		}
		if addr.Is4() && !n.harness.config.IPv4 || addr.Is6() && !n.harness.config.IPv6 {
			return errors.Errorf("address %s is of a family that this network does not have", addr)
		}
	}
	for _, addr := range wanted {
		n.occupied[addr] = p
	}
	p.addrs = wanted
	return nil
}

// nextAddrs returns one free address of each range, all with the same number. Numbers are used again only after all
// others have been.
func (n *Node) nextAddrs() ([]netip.Addr, error) {
	const first, last = 2, 253 // tests give the one after it to objects without a pod
	for range last {
		n.last++
		if n.last > last {
			n.last = first
		}
		var addrs []netip.Addr
		free := true
		for _, r := range n.ranges {
			raw := r.Addr().AsSlice()
			raw[len(raw)-1] = byte(n.last)
			addr, _ := netip.AddrFromSlice(raw)
			addrs = append(addrs, addr)
			free = free && n.occupied[addr] == nil
		}
		if free {
			return addrs, nil
		}
	}
	return nil, errors.New("the node has no free address left")
}

func (n *Node) release(p *Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, addr := range p.addrs {
		if n.occupied[addr] == p {
			delete(n.occupied, addr)
		}
	}
}

// inRange reports whether the node's own routes cover an address.
func (n *Node) inRange(addr netip.Addr) bool {
	for _, r := range n.ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}
