package kernelstate

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
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// Verdict is what the chains and sets of a node do with a flow.
type Verdict struct {
	Node string    `json:"node"`
	Flow flow.Flow `json:"flow"`
	// Asked reports whether the node forwards the packet from or to a local pod, or judges what a local pod sends to it. If not, the fields
	// below are empty.
	Asked bool `json:"asked"`
	// ToNode is set if a local pod sends the packet to the node itself, so that it passes INPUT. Others pass FORWARD.
	ToNode bool `json:"to_node,omitempty"`
	// Accepted reports whether weave-npc's chains let the packet through, Policies whether the policies do as far as this node enforces them.
	Accepted bool `json:"accepted"`
	Policies bool `json:"policies"`
	// At is the rule that led to the verdict. It is empty if the packet reached the end of FORWARD or INPUT.
	At string `json:"at,omitempty"`
	// Trace are the rules that the packet matched, as chain and number.
	Trace []string `json:"way,omitempty"`
	// ByOthers reports whether a rule of FORWARD or INPUT that is not weave-npc's decided.
	ByOthers bool `json:"by_others,omitempty"`
	// PassedOver are rules of other programs that could not be evaluated.
	PassedOver []string `json:"passed_over,omitempty"`
}

// Verdict sends the first packet of a flow through the chains of its family. It needs the objects; see Describe.
func (s *State) Verdict(f flow.Flow, node string) (Verdict, error) {
	f.Node = node
	prescribed := explain.Explain(s.purpose.Cluster.View(), f)
	v := Verdict{Node: node, Flow: f, Policies: prescribed.Allowed, Asked: prescribed.Forwarded()}
	table := s.tables[traffic.FamilyOf(f.From.Addr)]
	if prescribed.ToNode() && (!prescribed.Allowed || judgesNode(table)) {
		v.Asked, v.ToNode = true, true
	}
	if !v.Asked {
		return v, nil
	}
	packet := packetOf(f)
	if v.ToNode {
		packet.ToNode, packet.Out = true, ""
	}
	result, err := walk.Read(table, s.sets).Simulate(packet)
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

// judgesNode reports whether what pods send to the node is led to weave-npc.
func judgesNode(table iptables.Seen) bool {
	return slices.ContainsFunc(table.Hooks[naming.NodeHookChain], func(rule string) bool {
		m := ruleTarget.FindStringSubmatch(rule)
		return m != nil && strings.HasPrefix(m[2], naming.ChainPrefix)
	})
}

// packetOf returns the first packet of a flow, on the interfaces by which this node reaches the ends.
func packetOf(f flow.Flow) walk.Packet {
	p := walk.Packet{Src: f.From.Addr, Dst: f.To.Addr, Protocol: f.Service.Protocol, DstPort: f.Service.Port,
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
