package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Tier is a tier of cluster network policies. Policies of the Admin tier come before NetworkPolicies, those of the
// Baseline tier after them.
type Tier uint8

// The tiers of cluster network policies.
const (
	Admin Tier = iota
	Baseline
)

// Tiers are both, in the order of their evaluation.
var Tiers = [...]Tier{Admin, Baseline}

// String returns the tier as the API names it.
func (t Tier) String() string {
	if t == Baseline {
		return string(v1alpha2.BaselineTier)
	}
	return string(v1alpha2.AdminTier)
}

// Action is what a rule of a cluster network policy does with what it matches.
type Action uint8

// The actions.
const (
	Accept Action = iota
	Deny
	Pass
)

// String returns the action as the API names it.
func (a Action) String() string {
	return [...]string{"Accept", "Deny", "Pass"}[a]
}

// Cluster is a compiled ClusterNetworkPolicy.
type Cluster struct {
	Name     string
	UID      types.UID
	Tier     Tier
	Priority int32
	// Namespaces and Pods select the subject: the pods that Pods selects in those namespaces.
	Namespaces, Pods Selector
	// Rules holds the rules of each direction, in the order of the object. It includes rules that match nothing.
	Rules [len(npc.Directions)][]ClusterRule
	// Written holds the same rules as they are written. Only reports need it.
	Written [len(npc.Directions)][]WrittenRule
	// Invalid is the first reason why a rule is not enforced as it is written, or why the policy decides nothing; nil
	// if there is none.
	Invalid error
	// Inert is set if the policy decides nothing, because its tier or its subject is not known.
	Inert bool
}

// ClusterRule is one rule of a cluster network policy.
type ClusterRule struct {
	// Name is the name that the rule has in the object, which may be empty.
	Name   string
	Action Action
	MergedRule
}

// WrittenRule is a rule of a cluster network policy with as many peers and ports as the object's. Without peers it
// matches every peer, without ports every protocol and port. One that matches nothing has a peer of an unknown kind.
type WrittenRule struct {
	Name string
	Rule
	// Invalid is the reason why the rule is not enforced as it is written; nil if it is.
	Invalid error
}

// DescribeRule returns a rule of a cluster network policy as sentences name it, such as Admin policy pci/rule 2
// 'no-internet'. The number counts from 1, and the rule may have no name.
func DescribeRule(tier, policy string, number int, name string) string {
	return fmt.Sprintf("%s policy %s/rule %d%s", tier, policy, number, QuoteRuleName(name))
}

// QuoteRuleName returns the name of a rule as it follows its number, or nothing if it has none. A name may be any text,
// such as one that would begin a line.
func QuoteRuleName(name string) string {
	switch {
	case name == "":
		return ""
	case strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) || r == '\'' }):
		return " " + strconv.Quote(name)
	}
	return " '" + name + "'"
}

// CompileCluster compiles an API object, which must not be changed afterwards. As the API asks for, a rule with a peer,
// a protocol or an action that is not known fails closed: if it accepts it matches nothing, else it denies everything.
func CompileCluster(o *v1alpha2.ClusterNetworkPolicy) Cluster {
	p := Cluster{Name: o.Name, UID: o.UID, Priority: o.Spec.Priority}
	switch o.Spec.Tier {
	case v1alpha2.AdminTier:
	case v1alpha2.BaselineTier:
		p.Tier = Baseline
	default:
		p.Invalid, p.Inert = errors.Errorf("spec.tier: %q is neither Admin nor Baseline", o.Spec.Tier), true
		return p
	}
	if err := p.compileSubject(o.Spec.Subject); err != nil {
		p.Invalid, p.Inert = errors.Wrap(err, "spec.subject"), true
		return p
	}
	for i, r := range o.Spec.Ingress {
		peers := make([]v1alpha2.ClusterNetworkPolicyEgressPeer, 0, len(r.From))
		for _, from := range r.From {
			peers = append(peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: from.Namespaces, Pods: from.Pods})
		}
		p.add(npc.Ingress, "spec.ingress["+strconv.Itoa(i)+"]", r.Name, r.Action, peers, r.Protocols)
	}
	for i, r := range o.Spec.Egress {
		p.add(npc.Egress, "spec.egress["+strconv.Itoa(i)+"]", r.Name, r.Action, r.To, r.Protocols)
	}
	return p
}

// Compare orders policies as they are asked: by their tiers, priorities and names. Those that decide nothing come last.
func (p *Cluster) Compare(q *Cluster) int {
	rank := func(p *Cluster) int {
		if p.Inert {
			return len(Tiers)
		}
		return int(p.Tier)
	}
	return cmp.Or(cmp.Compare(rank(p), rank(q)), cmp.Compare(p.Priority, q.Priority), strings.Compare(p.Name, q.Name))
}

// Denies reports whether a rule of a direction may deny something.
func (p *Cluster) Denies(d npc.Direction) bool {
	return slices.ContainsFunc(p.Rules[d], func(r ClusterRule) bool { return r.Action == Deny })
}

// DeniesNode reports whether a rule may deny packets to the pod's own node, which has no address of a pod.
func (p *Cluster) DeniesNode() bool {
	return slices.ContainsFunc(p.Rules[npc.Egress], func(r ClusterRule) bool {
		noPods := func(p MergedPeer) bool { return p.Namespaces == nil }
		return r.Action == Deny && (r.AnyPeer || slices.ContainsFunc(r.Peers, noPods))
	})
}

func (p *Cluster) compileSubject(s v1alpha2.ClusterNetworkPolicySubject) (err error) {
	if (s.Namespaces == nil) == (s.Pods == nil) {
		return errors.New("it has not exactly one of namespaces and pods")
	}
	p.Namespaces, p.Pods, err = compilePods(s.Namespaces, s.Pods)
	return err
}

// compilePods compiles one of two forms of choosing pods: all of some namespaces, or some of some namespaces.
func compilePods(namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod) (in, choose Selector, err error) {
	if namespaces != nil {
		in, err = compileReadable(namespaces)
		return in, choose, errors.Wrap(err, "namespaces")
	}
	if in, err = compileReadable(&pods.NamespaceSelector); err != nil {
		return in, choose, errors.Wrap(err, "pods.namespaceSelector")
	}
	choose, err = compileReadable(&pods.PodSelector)
	return in, choose, errors.Wrap(err, "pods.podSelector")
}

// compileReadable compiles a label selector, whose values the resource definition leaves unchecked. A value that no
// label can have is an error. In a NetworkPolicy it is none and matches nothing, which denies more; but a deny rule
// that matches nothing would go unnoticed.
func compileReadable(s *metav1.LabelSelector) (Selector, error) {
	c, err := compileSelector(s)
	if err != nil {
		return c, err
	}
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if v := s.MatchLabels[k]; len(validation.IsValidLabelValue(v)) > 0 {
			return Selector{}, errors.Errorf("matchLabels[%s]: no label can have the value %q", k, v)
		}
	}
	for i, e := range s.MatchExpressions {
		for _, v := range e.Values {
			if len(validation.IsValidLabelValue(v)) > 0 {
				return Selector{}, errors.Errorf("matchExpressions[%d]: no label can have the value %q", i, v)
			}
		}
	}
	return c, nil
}

// add compiles a rule and adds it.
func (p *Cluster) add(d npc.Direction, path, name string, action v1alpha2.ClusterNetworkPolicyRuleAction,
	peers []v1alpha2.ClusterNetworkPolicyEgressPeer, protocols []v1alpha2.ClusterNetworkPolicyProtocol) {
	r := ClusterRule{Name: name}
	written, err := r.compile(p.Tier, d, action, peers, protocols)
	if err != nil {
		err = errors.Wrap(err, path)
		if p.Invalid == nil {
			p.Invalid = err
		}
		r, written = failClosed(name, action)
	}
	p.Rules[d] = append(p.Rules[d], r)
	written.Action = r.Action
	p.Written[d] = append(p.Written[d], WrittenRule{name, written, err})
}

// failClosed returns what stands for a rule that cannot be enforced as it is written, and the same as if it were
// written.
func failClosed(name string, action v1alpha2.ClusterNetworkPolicyRuleAction) (ClusterRule, Rule) {
	if action == v1alpha2.ClusterNetworkPolicyRuleActionAccept {
		return ClusterRule{Name: name, Action: Accept}, Rule{Peers: []Peer{{}}}
	}
	return ClusterRule{Name: name, Action: Deny, MergedRule: MergedRule{AnyPeer: true, AnyPort: true}}, Rule{}
}

// compile compiles a rule, and returns it as it is written.
func (r *ClusterRule) compile(
	t Tier, d npc.Direction, action v1alpha2.ClusterNetworkPolicyRuleAction,
	peers []v1alpha2.ClusterNetworkPolicyEgressPeer, protocols []v1alpha2.ClusterNetworkPolicyProtocol,
) (all Rule, err error) {
	switch action {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
		r.Action = Deny
	case v1alpha2.ClusterNetworkPolicyRuleActionPass:
		r.Action = Pass
	default:
		return all, errors.Errorf("action: %q is none of Accept, Deny and Pass", action)
	}
	if len(peers) == 0 {
		return all, errors.New("it has no peers")
	}
	for i, peer := range peers {
		compiled, err := compileClusterPeer(peer)
		if err == nil && len(peer.DomainNames) > 0 && (t != Admin || r.Action != Accept) {
			err = errors.New("domainNames: only rules of the Admin tier that accept may have them")
		}
		if err != nil {
			return all, errors.Wrapf(err, "%s[%d]", peersField(d), i)
		}
		all.Peers = append(all.Peers, compiled...)
	}
	possible := Rule{Peers: all.Peers}
	for i, protocol := range protocols {
		port, err := compileProtocol(protocol)
		if err != nil {
			return all, errors.Wrapf(err, "protocols[%d]", i)
		}
		all.Ports = append(all.Ports, port)
		if port.Name == "" || isPortName(port.Name) {
			possible.Ports = append(possible.Ports, port)
		}
	}
	r.MergedRule = possible.merge()
	for _, m := range r.Peers {
		for i := range all.Peers {
			if m.Names != nil && all.Peers[i].Name != "" {
				all.Peers[i].List = NamesKey(m.Names)
			}
		}
	}
	r.AnyPort = len(protocols) == 0 // and not if they are names that no port can have
	return all, nil
}

// compileClusterPeer returns the peers that one peer of a rule stands for.
func compileClusterPeer(peer v1alpha2.ClusterNetworkPolicyEgressPeer) ([]Peer, error) {
	if several(peer.Namespaces != nil, peer.Pods != nil, peer.Nodes != nil,
		len(peer.Networks) > 0, len(peer.DomainNames) > 0) {
		return nil, errors.New("it is of several kinds")
	}
	switch {
	case peer.Namespaces != nil || peer.Pods != nil:
		in, choose, err := compilePods(peer.Namespaces, peer.Pods)
		if err != nil {
			return nil, err
		}
		return []Peer{{Namespaces: &in, Pods: &choose}}, nil
	case peer.Nodes != nil:
		nodes, err := compileReadable(peer.Nodes)
		if err != nil {
			return nil, errors.Wrap(err, "nodes")
		}
		return []Peer{{Nodes: &nodes}}, nil
	case len(peer.DomainNames) > 0:
		return compileNames(peer.DomainNames)
	case len(peer.Networks) == 0:
		return nil, errors.New("it is of no known kind")
	}
	var out []Peer
	for i, network := range peer.Networks {
		block, err := compileNetwork(string(network))
		if err != nil {
			return nil, errors.Wrapf(err, "networks[%d]", i)
		}
		out = append(out, Peer{Block: &block})
	}
	return out, nil
}

// domainLabel is the pattern of a label of a domain name, as the resource definition asks for.
var domainLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9_]*[a-z0-9])?$`)

// compileNames compiles domain names, in which case is ignored. Names have at most 253 bytes and labels 63 (RFC 1035).
func compileNames(names []v1alpha2.DomainName) (out []Peer, err error) {
	for i, n := range names {
		name := strings.ToLower(string(n))
		name = strings.TrimSuffix(name, ".")
		labels := strings.Split(strings.TrimPrefix(name, "*."), ".")
		valid := len(name) <= 253 && len(labels) > 1
		for _, l := range labels {
			valid = valid && len(l) <= 63 && domainLabel.MatchString(l)
		}
		if !valid {
			return nil, errors.Errorf("domainNames[%d]: %q is no domain name such as example.com or *.example.com", i, n)
		}
		out = append(out, Peer{Name: name})
	}
	return out, nil
}

// compileNetwork compiles a network as the resource definition reads it: leading zeros, which some programs take for
// octal numbers, are an error.
func compileNetwork(text string) (ipblock.Block, error) {
	cidr, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return ipblock.Block{}, errors.Errorf("%q is no CIDR", text)
	case cidr.Addr().Is4In6():
		return ipblock.Block{}, errors.Errorf("%q is an IPv4 address in the form of an IPv6 one", text)
	}
	return ipblock.Block{CIDR: cidr.Masked()}, nil
}

// compileProtocol compiles an item of protocols. A named port is of any protocol, and any text is a name: one that no
// port can have matches nothing.
func compileProtocol(p v1alpha2.ClusterNetworkPolicyProtocol) (Port, error) {
	if several(p.TCP != nil, p.UDP != nil, p.SCTP != nil, p.DestinationNamedPort != "") {
		return Port{}, errors.New("it is of several kinds")
	}
	switch {
	case p.TCP != nil:
		return compileDestination(npc.TCP, p.TCP.DestinationPort)
	case p.UDP != nil:
		return compileDestination(npc.UDP, p.UDP.DestinationPort)
	case p.SCTP != nil:
		return compileDestination(npc.SCTP, p.SCTP.DestinationPort)
	case p.DestinationNamedPort != "":
		return Port{Name: p.DestinationNamedPort}, nil
	}
	return Port{}, errors.New("it is of no known kind")
}

// compileDestination compiles a port of a protocol: all of them if there is none.
func compileDestination(protocol uint8, port *v1alpha2.Port) (Port, error) {
	if port == nil {
		return Port{Protocol: protocol}, nil
	}
	first, last := port.Number, port.Number
	if port.Range != nil {
		if first, last = port.Range.Start, port.Range.End; port.Number != 0 || first == last {
			return Port{}, errors.New("destinationPort: both a number and a range are set, " +
				"or the range ends where it starts")
		}
	}
	compiled, err := compileRange(protocol, first, last)
	return compiled, errors.Wrap(err, "destinationPort")
}

// several reports whether more than one of the fields is set. The API requires exactly one.
func several(set ...bool) bool {
	n := 0
	for _, is := range set {
		if is {
			n++
		}
	}
	return n > 1
}
