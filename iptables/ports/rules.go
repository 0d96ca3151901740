package ports

import (
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// The chains of a table. The first one is the one that the kernel enters.
const (
	entry      = "prerouting"
	routerOnly = "router-only"
	sources    = "sources"
	bound      = "bound"
	neighbours = "neighbours"
	joining    = "joining"
	forged     = "forged"
)

// chain is a chain of rules.
type chain struct {
	name  string
	rules []rule
}

// rule is a rule, which ends with a verdict or notes an element in a set.
type rule struct {
	exprs   []expr.Any
	comment string
}

// userData returns the rule's comment as nft writes it.
func (r rule) userData() []byte {
	if r.comment == "" {
		return nil
	}
	return userdata.AppendString(nil, userdata.TypeComment, r.comment)
}

func (c *chain) add(end expr.Any, matches ...[]expr.Any) {
	c.rules = append(c.rules, rule{exprs: append(all(matches...), end)})
}

func (c *chain) accept(matches ...[]expr.Any) {
	c.add(&expr.Verdict{Kind: expr.VerdictAccept}, matches...)
}

func (c *chain) leave(matches ...[]expr.Any) {
	c.add(&expr.Verdict{Kind: expr.VerdictReturn}, matches...)
}

func (c *chain) enter(to string, matches ...[]expr.Any) {
	c.add(&expr.Verdict{Kind: expr.VerdictGoto, Chain: to}, matches...)
}

// drop counts frames and drops them.
func (c *chain) drop(why Reason, matches ...[]expr.Any) { c.count(expr.VerdictDrop, why, matches...) }

func (c *chain) count(verdict expr.VerdictKind, why Reason, matches ...[]expr.Any) {
	exprs := append(all(matches...), &expr.Counter{}, &expr.Verdict{Kind: verdict})
	c.rules = append(c.rules, rule{exprs: exprs, comment: why.comment()})
}

// structure is the part of a State on which a table depends.
type structure struct {
	State
	family
}

// chains returns the chains of the table.
func (s structure) chains() []chain {
	if !s.bridge() {
		return []chain{s.routed(), s.sources(), s.bound(), s.joining(), s.forged()}
	}
	if s.Mode == Off {
		return []chain{s.bridged(), s.routerOnly()}
	}
	return []chain{s.bridged(), s.routerOnly(), s.sources(), s.bound(), s.neighbours(), s.joining(), s.forged()}
}

// bridged returns the chain for all frames that arrive at ports of bridges. If sources are bound, nearly all frames
// leave it by the first rules: a source has a port, so that it need not be looked up alone.
func (s structure) bridged() chain {
	c := chain{name: entry}
	if s.Mode == Off {
		c.accept(keyNotIn(podPorts))
	} else {
		c.accept(s.packet(unix.ETH_P_IP), s.source(sources4, source4()))
		c.accept(s.packet(unix.ETH_P_IPV6), transport(expr.CmpOpNeq, unix.IPPROTO_ICMPV6), s.source(sources6, source6()))
		c.accept(s.packet(unix.ETH_P_IPV6), icmp(expr.CmpOpLt, routerSolicitation), s.source(sources6, source6()))
		c.enter(neighbours, s.packet(unix.ETH_P_IPV6), icmp(expr.CmpOpGte, neighbourSolicitation),
			icmp(expr.CmpOpLte, neighbourAdvert), s.source(sources6, source6()))
		c.accept(s.arp(), s.source(sources4, arpSender()), keyIn(sources4, arpHardware(), arpSender()))
		c.enter(sources, keyNotIn(podPorts))
	}
	if !s.AllowVLAN {
		c.drop(byVLAN, s.packet(unix.ETH_P_8021Q))
		c.drop(byVLAN, s.packet(unix.ETH_P_8021AD))
	}
	if s.OnlyTypes {
		c.drop(byType, etherType().notIn(etherTypes))
	}
	c.add(&expr.Verdict{Kind: expr.VerdictJump, Chain: routerOnly}, s.inside(unix.ETH_P_IPV6))
	if s.Mode != Off {
		c.enter(sources)
	}
	return c
}

// routed returns the chain for all packets that arrive at interfaces.
func (s structure) routed() chain {
	c := chain{name: entry}
	c.accept(keyIn(exemptPorts))
	c.accept(s.packet(unix.ETH_P_IP), s.source(sources4, source4()))
	c.accept(s.packet(unix.ETH_P_IPV6), s.source(sources6, source6()))
	c.enter(sources)
	return c
}

// routerOnly returns the chain for IPv6 packets of pods. With a router advertisement, a pod gives all pods of the bridge
// an address that no API object has, and with a redirect it becomes their router.
func (s structure) routerOnly() chain {
	c := chain{name: routerOnly}
	c.leave(transport(expr.CmpOpNeq, unix.IPPROTO_ICMPV6))
	c.drop(byRouter, icmp(expr.CmpOpEq, routerAdvertisement))
	c.drop(byRouter, icmp(expr.CmpOpEq, redirect))
	c.leave(icmp(expr.CmpOpGte, 0))
	// The type of the remaining packets cannot be read. That is normal for all fragments except the first. A first
	// fragment that ends before the type hides it: conntrack reassembles the packet and may pass it on whole.
	c.leave(laterFragment())
	c.drop(byHidden)
	return c
}

// sources returns the chain for frames whose source is not bound to their port. A port that is not bound, because it is
// not known yet, may send from any source that is neither reserved nor bound to another port.
func (s structure) sources() chain {
	c := chain{name: sources}
	if s.bridge() {
		c.accept(keyIn(exemptPorts))
	}
	c.enter(bound, keyIn(boundPorts))
	if s.bridge() {
		c.enter(forged, hardwareSource().in(boundMACs))
	}
	c.enter(forged, s.inside(unix.ETH_P_IP), source4().in(bound4))
	c.enter(forged, s.inside(unix.ETH_P_IPV6), source6().in(bound6))
	c.enter(forged, s.inside(unix.ETH_P_IP), source4().in(reserved4))
	c.enter(forged, s.inside(unix.ETH_P_IPV6), source6().in(reserved6))
	if s.bridge() {
		c.enter(forged, s.icmp6(neighbourAdvert), target().in(bound6))
		c.enter(forged, s.icmp6(neighbourSolicitation), source6().is(expr.CmpOpEq, zero(16)...), target().in(bound6))
		c.enter(forged, s.inside(unix.ETH_P_ARP), arpSender().in(bound4))
		c.enter(forged, s.inside(unix.ETH_P_ARP), arpHardware().in(boundMACs))
	}
	return c
}

// bound returns the chain for frames of bound ports that the first rules did not accept.
func (s structure) bound() chain {
	c := chain{name: bound}
	if s.bridge() {
		c.enter(neighbours, s.packet(unix.ETH_P_IPV6), s.source(sources6, source6()))
		c.enter(forged, keyNotIn(portMACs, hardwareSource()))
	}
	dhcp := field{expr.PayloadBaseTransportHeader, 0, 4}
	c.accept(s.packet(unix.ETH_P_IP), source4().is(expr.CmpOpEq, zero(4)...), transport(expr.CmpOpEq, unix.IPPROTO_UDP),
		dhcp.is(expr.CmpOpEq, 0, 68, 0, 67))
	c.enter(joining, s.packet(unix.ETH_P_IPV6), transport(expr.CmpOpEq, unix.IPPROTO_ICMPV6))
	if s.bridge() {
		c.accept(s.arp(), arpSender().is(expr.CmpOpEq, zero(4)...), keyIn(portMACs, arpHardware()))
		c.accept(etherType().is(expr.CmpOpNeq, bigEndian(unix.ETH_P_IP)...),
			etherType().is(expr.CmpOpNeq, bigEndian(unix.ETH_P_IPV6)...),
			etherType().is(expr.CmpOpNeq, bigEndian(unix.ETH_P_ARP)...))
	}
	c.enter(forged)
	return c
}

// neighbours returns the chain for ICMPv6 packets from a bound source: what it announces must be bound, too. Hosts
// ignore neighbour discovery in fragments, and one fragment does not show what it announces.
func (s structure) neighbours() chain {
	c := chain{name: neighbours}
	c.accept(laterFragment())
	c.accept(icmp(expr.CmpOpLt, neighbourSolicitation)) // a router solicitation
	c.accept(icmp(expr.CmpOpGt, neighbourAdvert))
	c.refuse(s, byNeighbour, fragment())
	readable := target().is(expr.CmpOpGte, zero(16)...)
	c.accept(icmp(expr.CmpOpEq, neighbourSolicitation), readable)
	c.accept(icmp(expr.CmpOpEq, neighbourAdvert), s.source(sources6, target()))
	c.enter(forged, icmp(expr.CmpOpEq, neighbourAdvert), readable)
	c.refuse(s, byNeighbour)
	return c
}

// joining returns the chain for ICMPv6 packets of bound ports from no address, or from one that is not bound: a pod
// looks for duplicates of an address, for routers, and joins groups before the address counts as its own.
func (s structure) joining() chain {
	c := chain{name: joining}
	none := source6().is(expr.CmpOpEq, zero(16)...)
	c.enter(forged, fragment())
	solicitation := all(icmp(expr.CmpOpEq, neighbourSolicitation), hopLimit(255), none)
	c.accept(solicitation, s.source(sources6, target()))
	c.accept(solicitation, target().notIn(bound6))
	c.enter(forged, source6().in(bound6))
	c.enter(forged, source6().is(expr.CmpOpNeq, zero(16)...), linkLocal(expr.CmpOpNeq))
	c.accept(icmp(expr.CmpOpEq, routerSolicitation), hopLimit(255))
	c.accept(icmp(expr.CmpOpGte, listenerReport), icmp(expr.CmpOpLte, listenerDone), hopLimit(1))
	c.accept(icmp(expr.CmpOpEq, listenerReportV2), hopLimit(1))
	c.enter(forged)
	return c
}

// forged returns the chain that notes forged sources, and drops the frames, in Audit those from reserved sources alone.
// A rule for itself notes them: it ends without a match if the set is full.
func (s structure) forged() chain {
	c := chain{name: forged}
	note := func(why Reason, set string, fields []field, reserved []expr.Any, matches ...[]expr.Any) {
		c.add(&expr.Dynset{SrcRegKey: register(0), SetName: set, Operation: unix.NFT_DYNSET_OP_UPDATE},
			append(matches, key(fields...))...)
		if s.Mode == Audit && reserved != nil {
			c.drop(why, append(matches, reserved)...)
		}
		c.refuse(s, why, matches...)
	}
	if s.bridge() {
		note(byNeighbour, forgedND, s.from(target()), nil, s.icmp6(neighbourAdvert))
	}
	note(byNeighbour, forgedND, s.from(target()), nil, s.icmp6(neighbourSolicitation),
		source6().is(expr.CmpOpEq, zero(16)...))
	note(byIP, forged4, s.from(source4()), source4().in(reserved4), s.inside(unix.ETH_P_IP))
	note(byIP, forged6, s.from(source6()), source6().in(reserved6), s.inside(unix.ETH_P_IPV6))
	if s.bridge() {
		note(byARP, forgedARP, []field{arpHardware(), arpSender()}, nil, s.arp())
		note(byMAC, forgedMACs, []field{hardwareSource()}, nil)
	}
	return c
}

// refuse counts frames with a forged source and drops them, unless in Audit.
func (c *chain) refuse(s structure, why Reason, matches ...[]expr.Any) {
	verdict := expr.VerdictDrop
	if s.Mode == Audit {
		verdict = expr.VerdictAccept
	}
	c.count(verdict, why, matches...)
}
