package npc

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

// Blind says why packets of local pods do not pass our chains, and the way out; empty if nothing is known to
// speak against it.
func Blind(c Config, fs []Family) string {
	if _, err := netlink.LinkByName("kube-ipvs0"); err == nil {
		return "kube-proxy runs in IPVS mode (there is a kube-ipvs0): what it forwards to pods does not pass FORWARD; " +
			"use its iptables or nftables mode"
	}
	if c.PodInterface == "" || !isBridge(c.PodInterface) {
		return ""
	}
	for _, f := range fs {
		sysctl, port := "bridge-nf-call-iptables", "nf_call_iptables"
		if f == IPv6 {
			sysctl, port = "bridge-nf-call-ip6tables", "nf_call_ip6tables"
		}
		// The bridge's own setting counts beside the sysctl.
		if !isSet(filepath.Join("/proc/sys/net/bridge", sysctl)) &&
			!isSet(filepath.Join("/sys/class/net", c.PodInterface, "bridge", port)) {
			return "what " + c.PodInterface + " passes from pod to pod does not pass ip(6)tables: " +
				"load br_netfilter and set net.bridge." + sysctl + "=1"
		}
	}
	return ""
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

// Booting says whether no pod can have run on this node since it came up: nothing is attached to anything.
func Booting() bool {
	links, err := netlink.LinkList()
	if err != nil {
		return false
	}
	for _, l := range links {
		if l.Type() == "veth" {
			return false
		}
	}
	return true
}

// TCPLiberal says whether conntrack takes TCP segments out of window as valid.
func TCPLiberal() bool { return isSet("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal") }
