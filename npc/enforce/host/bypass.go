package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/npc"
)

// BypassReason returns why packets of local pods bypass iptables, and what to do about it. It is empty if no reason is
// known. It asks ofNode whether an address is a node's.
func (a Attachment) BypassReason(fs []npc.Family, ofNode func(netip.Addr) bool) string {
	if _, err := netlink.LinkByName("kube-ipvs0"); err == nil {
		return "kube-proxy runs in IPVS mode (there is a kube-ipvs0): " +
			"what it forwards to pods does not pass FORWARD; " +
			"use its iptables or nftables mode"
	}
	if why := ipvsReason(ofNode); why != "" {
		return why
	}
	for _, bridge := range a.Bridges() {
		for _, f := range fs {
			sysctl, port := "bridge-nf-call-iptables", "nf_call_iptables"
			if f == npc.IPv6 {
				sysctl, port = "bridge-nf-call-ip6tables", "nf_call_ip6tables"
			}
			// Either the sysctl or the bridge's own setting is enough.
			if !isSet(filepath.Join("/proc/sys/net/bridge", sysctl)) &&
				!isSet(filepath.Join("/sys/class/net", bridge, "bridge", port)) {
				return "what " + bridge + " passes from pod to pod does not pass ip(6)tables: " +
					"load br_netfilter and set net.bridge." + sysctl + "=1"
			}
		}
	}
	return ""
}

// isSet reports whether a sysctl exists and is not 0.
func isSet(path string) bool {
	b, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

// TCPLiberal reports whether conntrack accepts TCP segments outside of the window as valid.
func TCPLiberal() bool { return isSet("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal") }

// Booting reports whether no pod can have run on this node since it came up: no interface leads into another network
// namespace, except the uplinks of a node that is itself a container. If in doubt, it returns false.
func Booting() bool {
	list, err := listLinks()
	if err != nil {
		return false
	}
	uplinks, err := uplinks()
	if err != nil {
		return false
	}
	for _, l := range list.all {
		// A veth with both ends in this namespace joins two bridges.
		if l.Type() == "veth" && l.Attrs().NetNsID >= 0 && !uplinks[l.Attrs().Index] {
			return false
		}
	}
	return true
}

// uplinks returns the indexes of the interfaces of default routes.
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
