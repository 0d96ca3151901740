package lab

import (
	"net/netip"

	"github.com/pkg/errors"
)

// Pod is a host behind a node.
type Pod struct {
	*Host
	node *Node
	port string // the interface on the node
}

// PodConfig is what distinguishes a pod from others.
type PodConfig struct {
	// Addrs are the pod's addresses; none means the next free one of each of the node's ranges. Those outside the
	// node's ranges are routed to it too.
	Addrs []netip.Addr
	// Port is the name of the pod's interface on its node; empty means one that begins with veth.
	Port string
}

// Node returns the pod's node.
func (p *Pod) Node() *Node { return p.node }

// Port returns the name of the pod's interface on its node.
func (p *Pod) Port() string { return p.port }

// AddPod makes a pod and returns when its addresses can be used. The name is free ("shop/web"), unique in the network.
func (n *Node) AddPod(name string, config PodConfig) (*Pod, error) {
	h, err := n.harness.newHost(name)
	if err != nil {
		return nil, err
	}
	p := &Pod{Host: h, node: n, port: config.Port}
	if p.port == "" {
		p.port = portName("veth", h.netns)
	}
	err = n.claim(p, config.Addrs)
	if err == nil {
		err = h.inside(listenToRouters)
	}
	if err == nil {
		err = p.attach()
	}
	if err != nil {
		_ = p.Close()
		return nil, errors.Wrapf(err, "attaching pod %s to %s", name, n.name)
	}
	return p, nil
}

// Close removes the pod, first of all its interface, so that its addresses are free when Close returns.
func (p *Pod) Close() error {
	err := p.node.inside(func() error { return removeLink(p.port) })
	if err == nil {
		err = p.routeStrays(func(addr netip.Addr) error { return removeRoute(single(addr)) })
	}
	p.node.release(p)
	if removed := p.remove(); err == nil {
		err = removed
	}
	return errors.Wrapf(err, "closing pod %s", p.name)
}

func (p *Pod) attach() error {
	steps := []func() error{
		func() error { return p.node.inside(p.plugNode) },
		func() error { return p.inside(p.configure) },
		func() error { return p.node.inside(p.routeNode) },
		func() error {
			return p.routeStrays(func(addr netip.Addr) error { return p.node.routeThrough(single(addr)) })
		},
		func() error { return p.inside(func() error { return awaitUp(podInterface) }) },
		func() error { return p.node.inside(func() error { return awaitUp(p.port) }) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// listenToRouters makes a pod take what routers send, as the kernel does by default and as pods do. It does not ask
// them.
func listenToRouters() error {
	return setSysctls(map[string]string{
		"net/ipv6/conf/all/accept_ra":            "1",
		"net/ipv6/conf/default/accept_ra":        "1",
		"net/ipv6/conf/all/accept_redirects":     "1",
		"net/ipv6/conf/default/accept_redirects": "1",
	})
}

// routedGateways returns the gateways of a pod without a bridge: the same on every node and for every pod.
func routedGateways() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("169.254.1.1/32"), netip.MustParsePrefix("fe80::1/64")}
}

// plugNode makes the pod's interface on the node, in the node's namespace.
func (p *Pod) plugNode() error {
	if err := addVeth(p.port, p.Host, hardwareAddr(p.addrs[0])); err != nil {
		return err
	}
	if p.harness.config.Attach == Bridge {
		return enslave(p.port, bridgeName, true)
	}
	return raise(p.port, routedGateways()...)
}

// configure sets up the pod's interface, in the pod's namespace.
func (p *Pod) configure() error {
	if p.harness.config.Attach == Bridge {
		return p.configureBridged()
	}
	if err := raise(podInterface, singles(p.addrs)...); err != nil {
		return err
	}
	for _, gateway := range routedGateways() {
		if !p.Addr(familyOf(gateway.Addr())).IsValid() {
			continue
		}
		if err := addRoute(everything(gateway.Addr()), gateway.Addr(), podInterface, netip.Addr{}); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pod) configureBridged() error {
	var addrs []netip.Prefix
	for _, addr := range p.addrs {
		prefix := single(addr)
		for _, r := range p.node.ranges {
			if r.Contains(addr) {
				prefix = netip.PrefixFrom(addr, r.Bits())
			}
		}
		addrs = append(addrs, prefix)
	}
	if err := raise(podInterface, addrs...); err != nil {
		return err
	}
	for _, r := range p.node.ranges {
		if !p.Addr(familyOf(r.Addr())).IsValid() {
			continue
		}
		if err := addRoute(everything(r.Addr()), p.node.gateway(r), podInterface, netip.Addr{}); err != nil {
			return err
		}
	}
	return nil
}

// routeNode makes the node's own routes to the pod, in the node's namespace.
func (p *Pod) routeNode() error {
	device := bridgeName
	if p.harness.config.Attach == Routed {
		device = p.port
	}
	for _, addr := range p.addrs {
		if device == bridgeName && p.node.inRange(addr) {
			continue // the bridge's own route
		}
		if err := addRoute(single(addr), netip.Addr{}, device, p.node.Addr(familyOf(addr))); err != nil {
			return err
		}
	}
	return nil
}

// routeStrays calls f, on every host of the switch but the pod's node, for each address that is not in the node's
// ranges.
func (p *Pod) routeStrays(f func(netip.Addr) error) error {
	for _, addr := range p.addrs {
		if p.node.inRange(addr) {
			continue
		}
		hosts := []*Host{p.harness.outside}
		for _, n := range p.harness.nodes {
			hosts = append(hosts, n.Host)
		}
		for _, h := range hosts {
			if h == nil || h == p.node.Host {
				continue
			}
			if err := h.inside(func() error { return f(addr) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// everything returns the default route's destination, of the family of an address.
func everything(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.MustParsePrefix("0.0.0.0/0")
	}
	return netip.MustParsePrefix("::/0")
}
