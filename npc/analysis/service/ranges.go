package service

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc/cluster"
)

// addrRange is a range of addresses that belong to the cluster.
type addrRange struct {
	netip.Prefix
	// Of names what has these addresses: pods or Services.
	Of string
}

// findRanges returns the ranges of the cluster's addresses. Those of pods are in the nodes, or around the pods of nodes
// without ranges; those of Services are around the Services.
func findRanges(v *cluster.View, services []*corev1.Service, nodes []*corev1.Node) []addrRange {
	var out []addrRange
	add := func(p netip.Prefix, of string) {
		if r := (addrRange{p.Masked(), of}); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, n := range nodes {
		for _, text := range append(slices.Clone(n.Spec.PodCIDRs), n.Spec.PodCIDR) {
			if p, err := netip.ParsePrefix(text); err == nil {
				add(p, "pods")
			}
		}
	}
	known := slices.Clone(out)
	for _, p := range v.Pods {
		for _, a := range p.Claims() {
			if !slices.ContainsFunc(known, func(r addrRange) bool { return r.Contains(a) }) {
				add(around(a), "pods")
			}
		}
	}
	for _, is4 := range []bool{true, false} {
		if p := serviceRange(services, is4); p.IsValid() {
			add(p, "Services")
		}
	}
	return out
}

// around returns the range that an address is probably from.
func around(a netip.Addr) netip.Prefix {
	const bits4, bits6 = 24, 64
	if a.Is4() {
		return netip.PrefixFrom(a, bits4)
	}
	return netip.PrefixFrom(a, bits6)
}

// serviceRange returns the smallest range with all cluster IPs of a family, and at least the one around an address. It
// is invalid if they have too little in common.
func serviceRange(services []*corev1.Service, is4 bool) (out netip.Prefix) {
	for _, s := range services {
		for _, text := range clusterIPs(s) {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Is4() != is4 {
				continue
			}
			if !out.IsValid() {
				out = around(a)
			}
			for !out.Contains(a) {
				out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
			}
		}
	}
	const least = 8
	if out.Bits() < least {
		return netip.Prefix{}
	}
	return out
}

func clusterIPs(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) == 0 {
		return []string{s.Spec.ClusterIP}
	}
	return s.Spec.ClusterIPs
}

// Doubt returns the reason to doubt that an address is outside of the cluster: it is in the range of pods or Services,
// but none has it, or no packet that passes a node has it. It is empty if there is no such reason.
func (x *Network) Doubt(a netip.Addr) string {
	if !a.IsValid() || x.nodes[a] || a.IsMulticast() {
		return ""
	}
	if kind := confined(a); kind != "" {
		return a.String() + " is " + kind
	}
	for _, p := range x.view.Pods {
		if slices.Contains(p.Claims(), a) {
			return ""
		}
	}
	for _, s := range x.services {
		if x.via(s, a) != "" {
			return ""
		}
	}
	for _, r := range x.ranges {
		if r.Contains(a) {
			return fmt.Sprintf("no pod, Service or node has address %s, which is in the range of %s, %s", a, r.Of,
				r.Prefix)
		}
	}
	return ""
}

// confined describes an address that packets between pods, nodes and what is outside do not have; it is empty for
// others. Clouds and DNS servers of nodes have link-local addresses of IPv4, to which policies apply.
func confined(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "a loopback address, whose packets do not leave a pod or node"
	case a.IsUnspecified():
		return "the unspecified address, which no packet on a network has"
	case a.Is6() && a.IsLinkLocalUnicast():
		return "a link-local address, whose packets no node passes on"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address, whose packets no node passes on"
	}
	return ""
}
