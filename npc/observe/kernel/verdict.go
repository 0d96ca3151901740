package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// Verdict sends the first packet of a flow through the chains of its family. It needs the objects; see Describe.
func (s *State) Verdict(f flow.Flow, node string) (kernelview.FlowTrace, error) {
	f.Node = node
	prescribed := explain.Explain(s.purpose.Cluster.View(), f)
	v := kernelview.FlowTrace{Node: node, Flow: f, Policies: prescribed.Allowed, Asked: prescribed.Forwarded()}
	table := s.tables[npc.FamilyOf(f.From.Addr)]
	if prescribed.ToNode() && (!prescribed.Allowed || evaluatesNode(table)) {
		v.Asked, v.ToNode = true, true
	}
	if !v.Asked {
		return v, nil
	}
	v.Unbound = s.unbound(f.From.Addr)
	packet := packetOf(f)
	if v.ToNode {
		packet.ToNode, packet.Out = true, ""
	}
	result, err := simulate.Read(table, s.sets).Simulate(packet)
	if err != nil {
		return v, errors.Wrap(err, "walking the chains of this node")
	}
	// The rest of FORWARD or INPUT may drop what weave-npc lets through; policies do not prescribe that.
	own := strings.HasPrefix(result.By, naming.ChainPrefix)
	v.Accepted, v.ByOthers = result.Accepted || !own, result.By != "" && !own
	for _, step := range result.Trace {
		v.Trace = append(v.Trace, fmt.Sprintf("%s %d", step.Chain, step.Number))
		if !strings.HasPrefix(step.Chain, naming.ChainPrefix+"-DROP-") {
			v.At = fmt.Sprintf("rule %d of %s: %s", step.Number, step.Chain, step.Rule)
		}
	}
	for _, step := range result.PassedOver {
		v.PassedOver = append(v.PassedOver, fmt.Sprintf("%s %d: %s", step.Chain, step.Number, step.Rule))
	}
	return v, nil
}

// evaluatesNode reports whether what pods send to the node is led to weave-npc.
func evaluatesNode(table iptables.Seen) bool {
	return slices.ContainsFunc(table.Hooks[naming.NodeHookChain], func(rule string) bool {
		m := ruleTarget.FindStringSubmatch(rule)
		return m != nil && strings.HasPrefix(m[2], naming.ChainPrefix)
	})
}

// packetOf returns the first packet of a flow, on the interfaces by which this node reaches the ends.
func packetOf(f flow.Flow) simulate.Packet {
	p := simulate.Packet{Src: f.From.Addr, Dst: f.To.Addr, Protocol: f.Service.Protocol, DstPort: f.Service.Port,
		In: interfaceTo(f.From.Addr), Out: interfaceTo(f.To.Addr)}
	if p.Protocol == unix.IPPROTO_ICMP && p.Src.Is6() {
		const echoRequest, hops = 128, 64
		p.Protocol, p.ICMPType, p.HopLimit = unix.IPPROTO_ICMPV6, echoRequest, hops
	}
	return p
}

// interfaceTo returns the interface by which this node sends to an address; it is empty if there is no route.
func interfaceTo(a netip.Addr) string {
	routes, err := netlink.RouteGet(net.IP(a.AsSlice()))
	if err != nil || len(routes) == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}
