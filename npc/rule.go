package npc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/iptables"
)

// ruleSpec is one ingress or egress rule of a policy.
type ruleSpec struct {
	// anyPeer says that the rule names no peers. Without it a rule without peers matches nobody.
	anyPeer bool
	peers   []peerSpec
	// anyPort says that the rule names no ports: every protocol.
	anyPort bool
	ports   []portSpec
}

// peerSpec is one item of from or to: an address block, or pods.
type peerSpec struct {
	block *blockSpec
	// namespace is that of a peer without a namespaceSelector.
	namespace string
	// namespaces is nil where there is no namespaceSelector.
	namespaces *choice
	pods       choice
}

// portSpec is one protocol with ranges of ports or one named port; with neither, all its ports.
type portSpec struct {
	protocol uint8
	ranges   []portRange
	name     string
}

// portRange has both ends in it.
type portRange struct{ first, last uint16 }

func compileRule(namespace string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) (ruleSpec, error) {
	r := ruleSpec{anyPeer: len(peers) == 0, anyPort: len(ports) == 0}
	for i, peer := range peers {
		p, matches, err := compilePeer(namespace, peer)
		if err != nil {
			return r, errors.Wrapf(err, "peer %d", i)
		}
		if matches {
			r.peers = append(r.peers, p)
		}
	}
	var err error
	r.ports, err = compilePorts(ports)
	return r, err
}

// compilePeer says of a peer also whether it can match anything: one of a kind that we do not know cannot.
func compilePeer(namespace string, peer networkingv1.NetworkPolicyPeer) (p peerSpec, matches bool, err error) {
	if peer.IPBlock != nil {
		if peer.PodSelector != nil || peer.NamespaceSelector != nil {
			return p, false, errors.New("ipBlock stands beside a selector")
		}
		p.block, err = compileBlock(peer.IPBlock)
		return p, err == nil, errors.Wrap(err, "ipBlock")
	}
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return p, false, nil
	}
	p.namespace = namespace
	if peer.PodSelector != nil {
		if p.pods, err = compileSelector(peer.PodSelector); err != nil {
			return p, false, errors.Wrap(err, "podSelector")
		}
	}
	if peer.NamespaceSelector != nil {
		c, err := compileSelector(peer.NamespaceSelector)
		if err != nil {
			return p, false, errors.Wrap(err, "namespaceSelector")
		}
		p.namespaces = &c
		if c.nothing {
			return p, false, nil
		}
	}
	return p, !p.pods.nothing, nil
}

// protocols of the API -> their numbers.
var protocols = map[corev1.Protocol]uint8{
	corev1.ProtocolTCP:  unix.IPPROTO_TCP,
	corev1.ProtocolUDP:  unix.IPPROTO_UDP,
	corev1.ProtocolSCTP: unix.IPPROTO_SCTP,
}

// protocolName is a protocol as iptables and the API name it, in capitals.
func protocolName(number uint8) string {
	for name, n := range protocols {
		if n == number {
			return string(name)
		}
	}
	return strconv.Itoa(int(number))
}

// compilePorts gathers a rule's ports by protocol.
func compilePorts(ports []networkingv1.NetworkPolicyPort) ([]portSpec, error) {
	whole := map[uint8]bool{}
	ranges := map[uint8][]portRange{}
	named := map[portSpecName]bool{}
	for i, p := range ports {
		protocol := uint8(unix.IPPROTO_TCP)
		if p.Protocol != nil {
			var ok bool
			if protocol, ok = protocols[*p.Protocol]; !ok {
				return nil, errors.Errorf("ports[%d]: %q is none of TCP, UDP and SCTP", i, *p.Protocol)
			}
		}
		switch {
		case p.Port == nil && p.EndPort != nil:
			return nil, errors.Errorf("ports[%d]: endPort without port", i)
		case p.Port == nil:
			whole[protocol] = true
		case p.Port.Type == intstr.String:
			if errs := validation.IsValidPortName(p.Port.StrVal); len(errs) > 0 || p.EndPort != nil {
				return nil, errors.Errorf("ports[%d]: %q is no port name, or has an endPort", i, p.Port.StrVal)
			}
			named[portSpecName{protocol, p.Port.StrVal}] = true
		default:
			r, err := compileRange(p.Port.IntVal, p.EndPort)
			if err != nil {
				return nil, errors.Wrapf(err, "ports[%d]", i)
			}
			ranges[protocol] = append(ranges[protocol], r)
		}
	}
	return gatherPorts(whole, ranges, named), nil
}

type portSpecName struct {
	protocol uint8
	name     string
}

func compileRange(first int32, end *int32) (portRange, error) {
	last := first
	if end != nil {
		last = *end
	}
	if first < 1 || last > 65535 || last < first {
		return portRange{}, errors.Errorf("%d to %d is no range within 1 to 65535", first, last)
	}
	return portRange{uint16(first), uint16(last)}, nil
}

// gatherPorts makes as few specs of ports as there can be, in a fixed order.
func gatherPorts(whole map[uint8]bool, ranges map[uint8][]portRange, named map[portSpecName]bool) []portSpec {
	var out []portSpec
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		if whole[protocol] {
			out = append(out, portSpec{protocol: protocol})
			continue
		}
		for _, chunk := range chunkRanges(mergeRanges(ranges[protocol])) {
			out = append(out, portSpec{protocol: protocol, ranges: chunk})
		}
		var names []string
		for n := range named {
			if n.protocol == protocol {
				names = append(names, n.name)
			}
		}
		slices.Sort(names)
		for _, n := range names {
			out = append(out, portSpec{protocol: protocol, name: n})
		}
	}
	return out
}

// mergeRanges sorts ranges and joins those that touch.
func mergeRanges(in []portRange) []portRange {
	slices.SortFunc(in, func(a, b portRange) int { return int(a.first) - int(b.first) })
	var out []portRange
	for _, r := range in {
		if n := len(out); n > 0 && int(r.first) <= int(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// multiportSlots is how many ports one multiport match takes; a range takes two.
const multiportSlots = 15

// chunkRanges divides ranges among rules.
func chunkRanges(in []portRange) [][]portRange {
	var out [][]portRange
	used := multiportSlots
	for _, r := range in {
		slots := 1
		if r.last > r.first {
			slots = 2
		}
		if used+slots > multiportSlots {
			out, used = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], r)
		used += slots
	}
	return out
}

// match is the iptables match for a protocol and, if they are numbers, its ports.
func (p portSpec) match() string {
	name := strings.ToLower(protocolName(p.protocol))
	text := func(r portRange) string {
		if r.first == r.last {
			return strconv.Itoa(int(r.first))
		}
		return fmt.Sprintf("%d:%d", r.first, r.last)
	}
	switch len(p.ranges) {
	case 0:
		return "-p " + name
	case 1:
		return fmt.Sprintf("-p %s -m %s --dport %s", name, name, text(p.ranges[0]))
	}
	ports := make([]string, 0, len(p.ranges))
	for _, r := range p.ranges {
		ports = append(ports, text(r))
	}
	return fmt.Sprintf("-p %s -m multiport --dports %s", name, strings.Join(ports, ","))
}

// ruleSet are the rules of one namespace in one direction, and the set of the pods that they are for.
type ruleSet struct {
	users    map[*policy]struct{}
	chains   [len(families)]*chain
	isolated [len(families)]*set
}

// placedRule is where a rule is that a policy owns.
type placedRule struct {
	chain *chain
	match string
}

// activate provisions what a policy's rules need, and the rules, if it selects a local pod.
func (m *Model) activate(ns *namespace, p *policy) {
	if len(p.selected) == 0 || len(p.used)+len(p.placed) > 0 {
		return
	}
	for _, d := range directions {
		if len(p.rules[d]) == 0 {
			continue
		}
		rs := m.ruleSet(ns, d)
		rs.users[p] = struct{}{}
		for i, r := range p.rules[d] {
			for f := range families {
				for _, match := range m.matches(p, d, r, Family(f)) {
					p.placed = append(p.placed, rs.chains[f].own(p, match, i+1))
					rs.chains[f].touch()
				}
			}
		}
	}
}

// own makes a policy an owner of a rule.
func (c *chain) own(p *policy, match string, number int) placedRule {
	r := c.rules[match]
	if r == nil {
		r = &rule{match: match, owners: map[*policy]int{}}
		c.rules[match] = r
	}
	if _, ok := r.owners[p]; !ok {
		r.owners[p] = number
	}
	return placedRule{c, match}
}

// deactivate takes back what activate did.
func (m *Model) deactivate(ns *namespace, p *policy) {
	for _, at := range p.placed {
		r := at.chain.rules[at.match]
		if r == nil {
			continue // the policy has the rule twice
		}
		if delete(r.owners, p); len(r.owners) == 0 {
			delete(at.chain.rules, at.match)
		}
		at.chain.touch()
	}
	p.placed = nil
	for _, d := range directions {
		if rs := ns.rules[d]; rs != nil {
			if delete(rs.users, p); len(rs.users) == 0 {
				m.dropRuleSet(ns, d)
			}
		}
	}
	for s := range p.used {
		m.deprovision(s, p)
	}
	for b := range p.blocks {
		m.deprovisionBlock(b, p)
	}
	clear(p.used)
	clear(p.blocks)
}

// ruleSet returns a namespace's rules in a direction, making their chain and the way to it if need be.
func (m *Model) ruleSet(ns *namespace, d Direction) *ruleSet {
	if ns.rules[d] != nil {
		return ns.rules[d]
	}
	rs := &ruleSet{users: map[*policy]struct{}{}}
	name := namespaceChain(d, ns.Name)
	for f, t := range m.tables {
		c := t.chain(name)
		c.about = fmt.Sprintf("what policies of %s allow, %s", ns.Name, d)
		c.target = m.allowTarget(d)
		c.tail = []iptables.Rule{{Target: "-g " + dropChain(d), Comment: comment(ns.Name + ": nothing allows it")}}
		rs.chains[f] = c
		rs.isolated[f] = t.set(setName(t.family, "isolated", d.String(), ns.Name), "hash:ip",
			fmt.Sprintf("local pods in %s that policies isolate, %s", ns.Name, d))
		way := m.dispatch[f][d]
		match := matchSet(rs.isolated[f].Name, d.own())
		way.rules[match] = &rule{match: match, target: "-g " + name, about: comment("isolated pods of " + ns.Name)}
		way.touch()
	}
	ns.rules[d] = rs
	for p := range ns.local {
		m.place(p)
	}
	return rs
}

func (m *Model) dropRuleSet(ns *namespace, d Direction) {
	rs := ns.rules[d]
	ns.rules[d] = nil
	for p := range ns.local {
		m.place(p)
	}
	for f, t := range m.tables {
		delete(m.dispatch[f][d].rules, matchSet(rs.isolated[f].Name, d.own()))
		m.dispatch[f][d].touch()
		t.dropChain(rs.chains[f])
		t.dropSet(rs.isolated[f])
	}
}

func matchSet(name, dir string) string { return "-m set --match-set " + name + " " + dir }

// matches are the iptables matches that a rule comes to in a family: one for each of its peers
// with each of its ports.
func (m *Model) matches(p *policy, d Direction, r ruleSpec, f Family) []string {
	var out []string
	ports := r.ports
	if r.anyPort {
		ports = []portSpec{{}}
	}
	peers := r.peers
	if r.anyPeer {
		peers = []peerSpec{{}}
	}
	for _, peer := range peers {
		if peer.block != nil && peer.block.family() != f {
			continue
		}
		for _, port := range ports {
			out = append(out, m.match(p, d, peer, port, r.anyPeer, f))
		}
	}
	return out
}

// match is one of them. Protocol and ports come first, because they cost least, and a list of
// namespaces last, because it costs most.
func (m *Model) match(p *policy, d Direction, peer peerSpec, port portSpec, anyPeer bool, f Family) string {
	var parts []string
	if port.protocol != 0 {
		parts = append(parts, port.match())
	}
	name := portName{port.name, port.protocol}
	if port.name == "" {
		name = portName{}
	}
	target := selectorSpec{scope: targetScope, namespace: p.namespace, pods: p.target.Selector}
	switch {
	case port.name != "" && d == Ingress:
		target.port = name
		parts = append(parts, matchSet(m.use(p, target).sets[f].Name, "dst,dst"))
	case p.target.Selector != nil:
		parts = append(parts, matchSet(m.use(p, target).sets[f].Name, d.own()))
	}
	ofPeer := d == Egress && port.name != ""
	switch {
	case peer.block != nil || anyPeer:
		if ofPeer {
			anyPod := selectorSpec{scope: clusterScope, port: name}
			parts = append(parts, matchSet(m.use(p, anyPod).sets[f].Name, "dst,dst"))
		}
		if peer.block != nil {
			parts = append(parts, matchSet(m.useBlock(p, peer.block).Name, d.peer()))
		}
	default:
		spec, dir := m.peerSelector(peer), d.peer()
		if ofPeer {
			if spec.scope == listScope {
				spec.scope = clusterScope
			}
			spec.port, dir = name, "dst,dst"
		}
		parts = append(parts, matchSet(m.use(p, spec).sets[f].Name, dir))
	}
	return strings.Join(parts, " ")
}
