package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// kernelVerdict is what a node's chains and sets do with a flow.
type kernelVerdict struct {
	Node string       `json:"node"`
	Flow explain.Flow `json:"flow"`
	// Asked says whether the node forwards the packet from or to a pod of its own; else it has no part in it.
	Asked bool `json:"asked"`
	// Accepted says whether weave-npc's chains let the packet through, Policies whether the policies do, as far as they are for this node.
	Accepted bool `json:"accepted"`
	Policies bool `json:"policies"`
	// At is the rule that decided: the one that led to what accepts or drops. It is empty if the packet came to the end of FORWARD.
	At string `json:"at,omitempty"`
	// Way are the rules that the packet matched, as chain and number.
	Way []string `json:"way,omitempty"`
	// ByOthers says that a rule of FORWARD that is not ours decided.
	ByOthers bool `json:"by_others,omitempty"`
	// PassedOver are rules of others that could not be judged.
	PassedOver []string `json:"passed_over,omitempty"`
}

// walk asks the kernel.
func (x *explanation) walk(h *holdings, node string, flows []explain.Flow) error {
	for _, f := range flows {
		k, err := h.walk(f, node)
		if err != nil {
			return err
		}
		x.Kernel = append(x.Kernel, k)
		x.Allowed = x.Allowed && (!k.Asked || k.Accepted)
	}
	return nil
}

// walk sends the first packet of a flow through the chains of its family.
func (h *holdings) walk(f explain.Flow, node string) (kernelVerdict, error) {
	f.Node = node
	said := h.world.Explain(f)
	k := kernelVerdict{Node: node, Flow: f, Policies: said.Allowed, Asked: forwards(said)}
	if !k.Asked {
		return k, nil
	}
	family := npc.IPv4
	if f.From.Addr.Is6() {
		family = npc.IPv6
	}
	v, err := walk.Read(h.tables[family], h.sets).Judge(packetOf(f))
	if err != nil {
		return k, errors.Wrap(err, "walking the chains of this node")
	}
	// The rest of FORWARD may drop what we let through: that is not for policies.
	ours := strings.HasPrefix(v.By, naming.ChainPrefix)
	k.Accepted, k.ByOthers = v.Accepted || !ours, v.By != "" && !ours
	for _, s := range v.Way {
		k.Way = append(k.Way, fmt.Sprintf("%s %d", s.Chain, s.Number))
		if !strings.HasPrefix(s.Chain, naming.ChainPrefix+"-DROP-") {
			k.At = fmt.Sprintf("rule %d of %s: %s", s.Number, s.Chain, s.Rule)
		}
	}
	for _, s := range v.PassedOver {
		k.PassedOver = append(k.PassedOver, fmt.Sprintf("%s %d: %s", s.Chain, s.Number, s.Rule))
	}
	return k, nil
}

// forwards says whether a flow is forwarded by the node that was asked, from or to a pod of its own.
func forwards(v explain.Verdict) bool {
	judged := false
	for _, s := range []explain.Side{v.Egress, v.Ingress} {
		switch s.Because {
		case explain.Itself, explain.OwnNode:
			return false
		case explain.NoPod, explain.OtherNode:
		default:
			judged = true
		}
	}
	return judged && v.Flow.From.Addr.IsValid() && v.Flow.To.Addr.IsValid()
}

// packetOf is the first packet of a flow, on the interfaces by which the node reaches its ends.
func packetOf(f explain.Flow) walk.Packet {
	p := walk.Packet{Src: f.From.Addr, Dst: f.To.Addr, Protocol: f.Service.Protocol, DstPort: f.Service.Port,
		In: interfaceTo(f.From.Addr), Out: interfaceTo(f.To.Addr)}
	if p.Protocol == unix.IPPROTO_ICMP && p.Src.Is6() {
		const echoRequest, hops = 128, 64
		p.Protocol, p.ICMPType, p.HopLimit = unix.IPPROTO_ICMPV6, echoRequest, hops
	}
	return p
}

// interfaceTo is the interface by which the node sends to an address; empty if it has no way there.
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

// String is the verdict in lines.
func (k kernelVerdict) String() string {
	family := ""
	if from, to := k.Flow.From.Addr, k.Flow.To.Addr; from.Is4() || to.Is4() {
		family = ", IPv4"
	} else if from.Is6() || to.Is6() {
		family = ", IPv6"
	}
	head := "kernel of " + k.Node + family + ": "
	if !k.Asked {
		return head + "has no part in it: it forwards nothing of this from or to a pod of its own\n"
	}
	does := map[bool]string{true: "lets it through", false: "drops it"}
	say := map[bool]string{true: "allowed", false: "denied"}
	lines := []string{head + does[k.Accepted]}
	if k.At != "" {
		lines = append(lines, "  at "+k.At)
	}
	lines = append(lines, "  way: "+strings.Join(k.Way, ", "))
	if k.ByOthers {
		lines = append(lines, "  a rule that is not weave-npc's decides")
	}
	for _, r := range k.PassedOver {
		lines = append(lines, "  not judged: "+r)
	}
	if k.Accepted == k.Policies {
		lines = append(lines, "  as the policies say, as far as they are for this node")
	} else {
		lines = append(lines, "  DIFFERS from the policies, which say of this node's part: "+say[k.Policies])
	}
	return strings.Join(lines, "\n") + "\n"
}
