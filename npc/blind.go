package npc

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

// Blind says why packets of local pods do not pass our chains, and the way out; empty if nothing is known to
// speak against it.
func (m *Model) Blind(fs []Family) string {
	if _, err := netlink.LinkByName("kube-ipvs0"); err == nil {
		return "kube-proxy runs in IPVS mode (there is a kube-ipvs0): what it forwards to pods does not pass FORWARD; " +
			"use its iptables or nftables mode"
	}
	for _, bridge := range m.PodBridges() {
		for _, f := range fs {
			sysctl, port := "bridge-nf-call-iptables", "nf_call_iptables"
			if f == IPv6 {
				sysctl, port = "bridge-nf-call-ip6tables", "nf_call_ip6tables"
			}
			// The bridge's own setting counts beside the sysctl.
			if !isSet(filepath.Join("/proc/sys/net/bridge", sysctl)) && !isSet(filepath.Join("/sys/class/net", bridge, "bridge", port)) {
				return "what " + bridge + " passes from pod to pod does not pass ip(6)tables: " +
					"load br_netfilter and set net.bridge." + sysctl + "=1"
			}
		}
	}
	return ""
}

// PodBridges are the bridges that pods of this node are attached to: the one that we are told, or those with an address in the node's
// range, which is the pods' gateway there.
func (m *Model) PodBridges() []string {
	if m.PodInterface != "" {
		if isBridge(m.PodInterface) {
			return []string{m.PodInterface}
		}
		return nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil // nothing speaks against it
	}
	var bridges []string
	for _, l := range links {
		if l.Type() == "bridge" && m.isGateway(l) {
			bridges = append(bridges, l.Attrs().Name)
		}
	}
	return bridges
}

// isGateway says whether a link has an address in the node's range of pod addresses.
func (m *Model) isGateway(l netlink.Link) bool {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		ip, ok := netip.AddrFromSlice(a.IP)
		return ok && m.scope().Contains(ip.Unmap())
	})
}

func isBridge(name string) bool {
	l, err := netlink.LinkByName(name)
	return err == nil && l.Type() == "bridge"
}

// isSet says whether a sysctl is there and is not 0.
func isSet(path string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

// Booting says whether no pod can have run on this node since it came up: nothing that leads into another network namespace is attached
// to it, but for uplinks, which a node has that is itself a container. In doubt it is not.
func Booting() bool {
	links, err := netlink.LinkList()
	if err != nil {
		return false
	}
	uplinks, err := uplinks()
	if err != nil {
		return false
	}
	for _, l := range links {
		// A veth whose other end is here as well joins two bridges.
		if l.Type() == "veth" && l.Attrs().NetNsID >= 0 && !uplinks[l.Attrs().Index] {
			return false
		}
	}
	return true
}

// uplinks are the interfaces, by their indexes, that a default route leads out of.
func uplinks() (map[int]bool, error) {
	out := map[int]bool{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return nil, errors.Wrap(err, "listing the routes of this node")
		}
		for _, r := range routes {
			if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
				continue
			}
			out[r.LinkIndex] = true
			for _, hop := range r.MultiPath {
				out[hop.LinkIndex] = true
			}
		}
	}
	return out, nil
}

// TCPLiberal says whether conntrack takes TCP segments out of window as valid.
func TCPLiberal() bool { return isSet("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal") }
