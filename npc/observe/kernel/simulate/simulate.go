// Package simulate sends packets through the chains of a filter table and the sets that they match, in memory.
//
//	t := simulate.Read(state, listings)            // a kernel's chains and sets
//	v, err := t.Simulate(simulate.Packet{Src: a, Dst: b, Protocol: 6, DstPort: 80})
//	v.Accepted, v.By, v.Trace
//
// It knows the rules that weave-npc writes and the usual ones of other programs. It does not know what they are for.
package simulate

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// Table is one family's filter table, and the sets of all families.
type Table struct {
	Sets map[string]*Set // by name
	// Chains holds the rules of each chain, as iptables arguments without the chain.
	Chains map[string][]string
	// Policies holds the policies of builtin chains. ACCEPT is the default.
	Policies map[string]string
	// Lenient skips rules that cannot be parsed or that jump to unknown chains, such as those of other programs. A
	// verdict lists them.
	Lenient bool
	parsed  map[string]rule // text -> rule, of all rules ever met
}

// Set is a set and its members.
type Set struct {
	ipset.Set
	Members map[ipset.Entry]ipset.Attr
}

// Read returns a lenient table of what was read from the kernel.
func Read(seen iptables.Seen, listings []ipset.Listing) *Table {
	t := &Table{Sets: map[string]*Set{}, Chains: map[string][]string{}, Policies: seen.Policies, Lenient: true}
	for _, l := range listings {
		s := &Set{Set: l.Set, Members: map[ipset.Entry]ipset.Attr{}}
		for _, e := range l.Members {
			s.Members[e.Entry] = e.Attr
		}
		t.Sets[s.Name] = s
	}
	t.put(hook, seen.Hooks[hook])
	t.put(nodeHook, seen.Hooks[nodeHook])
	for name, c := range seen.Chains {
		t.put(name, c.Text)
	}
	return t
}

// put adds a chain with rules as iptables prints them.
func (t *Table) put(chain string, printed []string) {
	t.Chains[chain] = nil
	for _, r := range printed {
		t.Chains[chain] = append(t.Chains[chain], strings.TrimPrefix(r, "-A "+chain+" "))
	}
}

// hook is the chain that packets enter first that are forwarded, and nodeHook that of packets to the node itself.
const (
	hook     = "FORWARD"
	nodeHook = "INPUT"
)

// Packet is what a rule can see of a packet.
type Packet struct {
	Src, Dst netip.Addr
	Protocol uint8
	// SrcPort and DstPort count for TCP, UDP and SCTP.
	SrcPort, DstPort uint16
	// Broadcast is set if the node's routes have the destination as the broadcast address of a network, ToAll if the
	// frame is a broadcast, ToGroup if it is to a group.
	Broadcast, ToAll, ToGroup bool
	// ToNode is set if the destination is an address of the node.
	ToNode bool
	// ICMPType and HopLimit count for ICMPv6.
	ICMPType, HopLimit uint8
	// Helper is the helper that expects the connection; empty if none does.
	Helper string
	// Quoted is the destination of the packet that an ICMP error quotes.
	Quoted netip.Addr
	// State is the connection's: NEW if empty, or ESTABLISHED, RELATED, INVALID, UNTRACKED. DNAT is set if its
	// destination was translated.
	State string
	DNAT  bool
	// Mark is the connection's mark.
	Mark uint32
	// In and Out are the interfaces, PhysIn and PhysOut the ports of the bridge if a bridge forwards the packet.
	In, Out, PhysIn, PhysOut string
}

// PacketTrace is what happens to a packet.
type PacketTrace struct {
	Accepted bool
	// By is the rule that decided, as chain and arguments; empty if none did.
	By string
	// Logged is the NFLOG group that the packet was sent to; 0 if none.
	Logged int
	// Trace are the rules that matched, in order.
	Trace []Step
	// tried is the number of rules that were tried, in all chains.
	tried int
	// PassedOver are rules that were not evaluated.
	PassedOver []Step
}

// Step is a rule that a packet met.
type Step struct {
	Chain string
	// Number counts the chain's rules from 1.
	Number int
	Rule   string
	// Tried is the number of rules, in all chains, that the packet was tried against so far, including this one.
	Tried int
}

// Simulate sends a packet through FORWARD, or through INPUT if it is to the node.
func (t *Table) Simulate(p Packet) (PacketTrace, error) {
	first := hook
	if p.ToNode {
		first = nodeHook
	}
	v := PacketTrace{Accepted: t.Policies[first] != "DROP"}
	_, err := t.walk(first, p, &v, 0)
	return v, err
}

// walk sends a packet through a chain and reports whether it was decided there.
func (t *Table) walk(chain string, p Packet, v *PacketTrace, depth int) (bool, error) {
	if depth > 20 {
		return false, errors.Errorf("chain %s: a loop", chain)
	}
	for i, text := range t.Chains[chain] {
		step := Step{chain, i + 1, text, v.tried + 1}
		r, err := t.parse(text)
		if err != nil {
			if t.Lenient {
				v.PassedOver = append(v.PassedOver, step)
				continue
			}
			return false, errors.Wrapf(err, "%s %s", chain, text)
		}
		v.tried++
		if !r.matches(t, p) {
			continue
		}
		v.Trace = append(v.Trace, step)
		switch r.target {
		case "", "MARK":
		case "ACCEPT", "NFQUEUE", "DROP", "REJECT": // what is queued passes later
			v.Accepted, v.By = r.target == "ACCEPT" || r.target == "NFQUEUE", chain+" "+text
			return true, nil
		case "RETURN":
			return false, nil
		case "NFLOG":
			v.Logged = r.group
		default:
			if _, known := t.Chains[r.jump]; !known && t.Lenient {
				v.PassedOver = append(v.PassedOver, step)
			}
			decided, err := t.walk(r.jump, p, v, depth+1)
			if decided || err != nil || r.goes {
				return decided, err
			}
		}
	}
	return false, nil
}

// rule is a parsed rule.
type rule struct {
	matchers []func(*Table, Packet) bool
	target   string
	// jump is the chain that it leads to; goes is set if the packet does not come back.
	jump  string
	goes  bool
	group int
}

type setMatch struct{ name, dirs string }

func (r rule) matches(t *Table, p Packet) bool {
	return !slices.ContainsFunc(r.matchers, func(m func(*Table, Packet) bool) bool { return !m(t, p) })
}

// parse parses a rule, or returns it if it was parsed before.
func (t *Table) parse(text string) (rule, error) {
	r, ok := t.parsed[text]
	if ok {
		return r, nil
	}
	r, err := parse(text)
	if err != nil {
		return r, err
	}
	if t.parsed == nil {
		t.parsed = map[string]rule{}
	}
	t.parsed[text] = r
	return r, nil
}

// parse parses a rule. An unknown option is an error, so that no rule is evaluated in part.
func parse(text string) (rule, error) {
	words, err := iptables.Words(text)
	if err != nil {
		return rule{}, err
	}
	var r rule
	not := false
	add := func(m func(*Table, Packet) bool) {
		if not {
			is := m
			m = func(t *Table, p Packet) bool { return !is(t, p) }
		}
		r.matchers, not = append(r.matchers, m), false
	}
	for len(words) > 0 {
		if words[0] == "!" && !not {
			words, not = words[1:], true
			continue
		}
		option := words[0]
		n, known := arguments[option]
		if !known || len(words) < n+1 {
			return rule{}, errors.Errorf("cannot read %q", option)
		}
		args := words[1 : n+1]
		words = words[n+1:]
		switch option {
		case "-j", "-g":
			r.target, r.goes = args[0], option == "-g"
			if !slices.Contains([]string{"ACCEPT", "DROP", "RETURN", "NFLOG", "MARK", "REJECT", "NFQUEUE"}, args[0]) {
				r.jump = args[0]
			}
		case "-p":
			var protocol uint8
			protocol, err = protocolOf(args[0])
			add(func(_ *Table, p Packet) bool { return p.Protocol == protocol })
		case "-s", "-d":
			_, err = netip.ParsePrefix(args[0])
			add(matcher(option, args))
		case "--nflog-group":
			r.group, err = strconv.Atoi(args[0])
		case "--match-set":
			s := setMatch{args[0], args[1]}
			add(func(t *Table, p Packet) bool { return t.test(s, p) })
		default:
			if m := matcher(option, args); m != nil {
				add(m)
			}
		}
		if not {
			return rule{}, errors.Errorf("cannot read an exclamation mark before %q", option)
		}
		if err != nil {
			return rule{}, err
		}
	}
	return r, nil
}

// arguments is the number of arguments of each option.
var arguments = map[string]int{
	"-m": 1, "--comment": 1, "-j": 1, "-g": 1,
	"--nflog-group": 1, "--nflog-prefix": 1, "--nflog-size": 1, "--set-xmark": 1,
	"--reject-with": 1, "--mark": 1, "--tcp-flags": 2,
	"--match-set": 2, "-p": 1,
	"--sport": 1, "--dport": 1, "--dports": 1, "--ctstate": 1, "--ctdir": 1, "-s": 1, "-d": 1, "-i": 1, "-o": 1,
	"--icmpv6-type": 1, "--hl-eq": 1, "--bytecode": 1, "--helper": 1,
	"--physdev-is-bridged": 0, "--physdev-in": 1, "--physdev-out": 1, "--dst-type": 1, "--pkt-type": 1,
	"--hashlimit-upto": 1, "--hashlimit-above": 1, "--hashlimit-burst": 1, "--hashlimit-mode": 1, "--hashlimit-name": 1,
	"--hex-string": 1, "--algo": 1, "--icase": 0, "--queue-num": 1,
	"--hashlimit-htable-expire": 1, "--hashlimit-htable-size": 1, "--hashlimit-htable-max": 1,
}

var protocols = map[string]uint8{"tcp": npc.TCP, "udp": npc.UDP, "sctp": npc.SCTP, "icmp": npc.ICMP, "igmp": 2,
	"icmpv6": npc.ICMPv6, "ipv6-icmp": npc.ICMPv6}

// protocolOf returns the number of a protocol by name or number. Zero, which means all of them, is an error.
func protocolOf(text string) (uint8, error) {
	if n, ok := protocols[text]; ok {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && n > 0 {
		return uint8(n), nil
	}
	return 0, errors.Errorf("protocol %q is not known", text)
}
