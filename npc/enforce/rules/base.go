package rules

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

const (
	established = "-m conntrack --ctstate ESTABLISHED"
	related     = "-m conntrack --ctstate RELATED"
	begins      = "-m conntrack --ctstate NEW"
	// opening matches packets that open connections. Those that helpers of conntrack expect are among them; so are ICMP
	// errors, which other rules match before.
	opening    = "-m conntrack --ctstate NEW,RELATED,UNTRACKED"
	notOpening = "-m conntrack ! --ctstate NEW,RELATED,UNTRACKED"
)

// Base renders the rules of the chains that every node has.
type Base struct {
	// PodInterface is the bridge of the local pods; empty if local pods are identified by their addresses.
	PodInterface string
	// BridgePort and Uplinks are the ports of the bridge that connect to other nodes.
	BridgePort string
	Uplinks    []string
	// Hooked is set if FORWARD jumps to WEAVE-NPC-FORWARD. Otherwise the CNI jumps to the chains after it.
	Hooked bool
	// AllowAction is the target of allowed packets if Hooked is set: ACCEPT or RETURN.
	AllowAction string
	AllowMcast  bool
	// Helpers are the names of the helpers of conntrack whose expected connections pass.
	Helpers []string
	// NFLogGroup is the NFLOG group of packets dropped on ingress. Packets dropped on egress have the next group, and copies
	// of answers of resolvers the one after that.
	NFLogGroup uint16
	TCPLiberal bool
	// TerminateMark is the bit by which connections are ended, if any are. LateMark is the bit by which those are that
	// began before their pod was known, if others are kept; TerminateMark is the same once there are such.
	TerminateMark, LateMark TerminateMark
	// DNSQueue is the number of the queue for answers of resolvers, and DNSResolvers is set if the operator trusts some
	// beside the cluster's own.
	DNSQueue     uint16
	DNSResolvers bool
	ActiveTiers
}

// ActiveTiers is what cluster network policies evaluate.
type ActiveTiers struct {
	// Lists reports for each tier and direction whether they choose local pods.
	Lists [len(policy.Tiers)][len(npc.Directions)]bool
	// Node is set if they may deny packets of local pods to the node itself.
	Node bool
	// Names are the domain names that they accept local pods to reach, sorted, one a line.
	Names string
}

// EvaluatesNode reports whether packets of local pods to the node itself are evaluated.
func (b *Base) EvaluatesNode() bool { return b.Node && b.evaluated(npc.Egress) }

// Through returns the rule for packets that pass the node.
func (b *Base) Through() iptables.Rule {
	return iptables.Rule{Target: "-j " + naming.ForwardChain, Comment: "policies of pods on this node"}
}

// evaluated reports whether some tier evaluates new connections in a direction.
func (b *Base) evaluated(d npc.Direction) bool {
	return b.Lists[policy.Admin][d] || b.Lists[policy.Baseline][d]
}

// toTier returns the rule that leads to a tier's policies, if there are any in the direction.
func (b *Base) toTier(f npc.Family, t policy.Tier, d npc.Direction) []iptables.Rule {
	if !b.Lists[t][d] {
		return nil
	}
	set := naming.FixedSet(f, naming.TierSet(t.String(), d))
	return []iptables.Rule{{Match: naming.Match(set, d.Own()), Target: "-g " + naming.TierChain(t.String(), d),
		Comment: t.String() + " policies choose it"}}
}

// EndOfLists returns the rule that follows the dispatch to a tier's lists.
func (b *Base) EndOfLists(t policy.Tier, d npc.Direction) iptables.Rule {
	if t == policy.Baseline {
		return iptables.Rule{Target: "-g " + naming.DropChain(d), Comment: "its list of Baseline policies changes"}
	}
	return iptables.Rule{Target: "-g " + naming.NewChain(d), Comment: "no list of Admin policies"}
}

// EndOfList returns the rule that follows the rules of a list of policies of a tier.
func (b *Base) EndOfList(t policy.Tier, d npc.Direction) iptables.Rule {
	return iptables.Rule{Target: b.ActionTarget(policy.Pass, t, d), Comment: "no " + t.String() + " policy decides"}
}

// ActionTarget returns the target of an action of a tier's policies.
func (b *Base) ActionTarget(a policy.Action, t policy.Tier, d npc.Direction) string {
	switch {
	case a == policy.Deny:
		return "-g " + naming.DropChain(d)
	case a == policy.Pass && t == policy.Admin:
		return "-g " + naming.NewChain(d)
	}
	return b.AllowTarget(d)
}

// AllowTarget returns the target of allowed packets. On egress they continue, because their destination may be isolated
// too.
func (b *Base) AllowTarget(d npc.Direction) string {
	if d == npc.Egress || b.Hooked && b.AllowAction == "RETURN" {
		return "-j RETURN"
	}
	return "-j ACCEPT"
}

// foreignTarget returns the target, on ingress, of packets that are not for local pods. A CNI that jumps to these
// chains drops packets that return.
func (b *Base) foreignTarget() string {
	if !b.Hooked {
		return "-j ACCEPT"
	}
	return "-j RETURN"
}

// multicastRule matches multicast.
func (b *Base) multicastRule(f npc.Family, d npc.Direction) iptables.Rule {
	r := iptables.Rule{Match: "-d " + multicast(f), Target: "-g " + naming.DropChain(d), Comment: "multicast"}
	if b.AllowMcast {
		r.Target = b.AllowTarget(d)
	}
	return r
}

// alwaysRules returns the rules that precede all others for packets from or to local pods.
func (b *Base) alwaysRules(f npc.Family, d npc.Direction) []iptables.Rule {
	allow := b.AllowTarget(d)
	rules := b.toReplies(f, d)
	if f == npc.IPv6 {
		if d == npc.Egress {
			rules = append(rules, fromRouters(b.uplinkPorts(), "-g "+naming.DropChain(d))...)
		}
		rules = append(rules, neighbourDiscovery(allow)...)
	}
	if d == npc.Egress { // on ingress Isolated has the rule
		if f == npc.IPv6 && !b.AllowMcast {
			rules = append(rules, dhcpRequest(naming.IPTables(f), allow))
		}
		groups := b.multicastRule(f, d)
		if !b.Hooked && b.AllowMcast && b.EvaluatesNode() { // the CNI sends what is for the node here, too
			rules = append(rules, linkNeeds(f, allow)...)
			groups.Match += onBridge
		}
		rules = append(rules, groups)
	}
	if b.evaluated(d) {
		return rules // the tiers evaluate it first
	}
	return append(rules, hairpin(naming.IPTables(f), allow))
}

// toReplies returns the rules that lead packets that open no connection to the chain of Replies. Without
// WEAVE-NPC-FORWARD before them, nearly all packets are replies, which pass by the shortest way.
func (b *Base) toReplies(f npc.Family, d npc.Direction) []iptables.Rule {
	var rules []iptables.Rule
	if !b.Hooked { // else WEAVE-NPC-FORWARD has the rules
		rules = b.terminated()
		if d == npc.Ingress {
			rules = append(rules, toDNS(b, f)...)
		}
	}
	if !b.Hooked || b.TCPLiberal {
		rules = append(rules, iptables.Rule{Match: established, Target: b.AllowTarget(d), Comment: "replies"})
	}
	rules = append(rules, expected(b.Helpers, b.AllowTarget(d))...)
	apart := "-g " + naming.RepliesChain(d)
	if !b.TCPLiberal {
		rules = append(rules, iptables.Rule{Match: notOpening, Target: apart, Comment: "opens no connection"})
	}
	return append(rules, iptables.Rule{Match: icmp(f) + " " + related, Target: apart, Comment: "an ICMP error"})
}

// expected returns the rules for connections that the allowed helpers expect.
func expected(helpers []string, allow string) []iptables.Rule {
	var rules []iptables.Rule
	for _, name := range helpers {
		rules = append(rules, iptables.Rule{Match: related + " -m helper --helper " + name, Target: allow,
			Comment: "helper " + name + " expects it"})
	}
	return rules
}

// Replies returns the rules for packets of open connections, which were evaluated when they were opened, for ICMP
// errors about them, and for packets that neither belong to a connection nor open one. Of the latter, those of local
// pods are dropped; others are treated like packets that open a connection. So are errors of unknown addresses about
// packets to others, as routers send them.
func (b *Base) Replies(f npc.Family, d npc.Direction) []iptables.Rule {
	rules := []iptables.Rule{{Match: established, Target: b.AllowTarget(d), Comment: "replies"},
		{Match: related, Target: b.AllowTarget(d), Comment: "ICMP errors"}}
	if d == npc.Egress {
		rules[1] = ownError(naming.IPTables(f), b.AllowTarget(d))
	}
	rules = append(rules, iptables.Rule{Match: naming.Match(naming.FixedSet(f, naming.LocalPods), d.Own()),
		Target: "-j DROP", Comment: "belongs to no connection and opens none"})
	if d == npc.Egress {
		rules = append(rules, fromUplinks(b.uplinkPorts(), "-j RETURN")...)
	}
	return append(rules, iptables.Rule{Target: "-g " + naming.IsolatedChain(d),
		Comment: "not a known pod of this node"})
}

// uplinkPorts returns the ports of the pods' bridge that connect to other nodes, sorted.
func (b *Base) uplinkPorts() []string {
	ports := slices.Clone(b.Uplinks)
	if b.BridgePort != "" && !slices.Contains(ports, b.BridgePort) {
		ports = append(ports, b.BridgePort)
	}
	slices.Sort(ports)
	return ports
}

// ToPods returns the rules for packets to local pods.
func (b *Base) ToPods(f npc.Family) []iptables.Rule {
	rules := b.alwaysRules(f, npc.Ingress)
	rules = append(rules, droppedFramesToAll(f, naming.FixedSet(f, naming.Broadcast), b.uplinkPorts(),
		"-g "+naming.BroadcastChain)...)
	rules = append(rules, toUplinks(b.uplinkPorts(), b.foreignTarget())...)
	rules = append(rules, b.toTier(f, policy.Admin, npc.Ingress)...)
	return append(rules, iptables.Rule{Target: "-g " + naming.DefaultChain, Comment: "new connections"})
}

// FromPods returns the rules for packets from local pods.
func (b *Base) FromPods(f npc.Family) []iptables.Rule {
	rules := b.alwaysRules(f, npc.Egress)
	if !b.EvaluatesNode() {
		rules = append(rules, iptables.Rule{Match: toNode, Target: "-j RETURN", Comment: "to this node"})
	}
	rules = append(rules, fromUplinks(b.uplinkPorts(), "-j RETURN")...)
	rules = append(rules, b.toTier(f, policy.Admin, npc.Egress)...)
	return append(rules, iptables.Rule{Target: "-g " + naming.EgressDefaultChain, Comment: "new connections"})
}

// Default returns the rules for new connections in a direction.
func (b *Base) Default(f npc.Family, d npc.Direction) []iptables.Rule {
	rules := []iptables.Rule{
		{Match: naming.Match(naming.FixedSet(f, naming.DefaultAllow(d)), d.Own()), Target: b.AllowTarget(d),
			Comment: "no policy isolates it"},
	}
	rules = append(rules, b.toTier(f, policy.Baseline, d)...)
	if d == npc.Egress && b.EvaluatesNode() {
		rules = append(rules, toNodeRules(f)...)
	}
	if b.evaluated(d) {
		rules = append(rules, hairpin(naming.IPTables(f), b.AllowTarget(d)))
	}
	rules = append(rules, b.dhcpRules(f, d)...)
	return append(rules, iptables.Rule{Target: "-g " + naming.IsolatedChain(d), Comment: "everything else"})
}

// dhcpRules allow requests of clients to all servers, and the answers.
func (b *Base) dhcpRules(f npc.Family, d npc.Direction) []iptables.Rule {
	switch allow := b.AllowTarget(d); {
	case f == npc.IPv4 && d == npc.Ingress:
		return []iptables.Rule{dhcpRequest(naming.IPTables(f), allow), dhcpReply(allow)}
	case f == npc.IPv4 || d == npc.Ingress && !b.AllowMcast: // else it passes as multicast, or has passed before it
		return []iptables.Rule{dhcpRequest(naming.IPTables(f), allow)}
	}
	return nil
}

// Broadcast returns the rules for broadcast that is dropped.
func (b *Base) Broadcast(f npc.Family) []iptables.Rule {
	return append(b.dhcpRules(f, npc.Ingress),
		iptables.Rule{Target: "-g " + naming.DropChain(npc.Ingress), Comment: "reaches every pod"})
}

// Isolated returns the rules that follow the dispatch to the namespaces' chains.
func (b *Base) Isolated(f npc.Family, d npc.Direction) []iptables.Rule {
	rules := []iptables.Rule{
		{Match: naming.Match(naming.FixedSet(f, naming.LocalPods), d.Own()), Target: "-g " + naming.DropChain(d),
			Comment: "isolated and nothing allows it"},
	}
	unknown := "-j RETURN"
	if d == npc.Ingress {
		unknown = b.foreignTarget()
		if f == npc.IPv4 {
			rules = append(rules, droppedBroadcast(naming.FixedSet(f, naming.Broadcast), b.uplinkPorts(),
				"-g "+naming.BroadcastChain))
		}
		rules = append(rules, b.multicastRule(f, d))
		if len(b.Uplinks) > 0 {
			rules = append(rules, routedTo(naming.FixedSet(f, naming.BehindUplinks), unknown))
		}
	}
	return append(rules, unknownDHCP(naming.IPTables(f), b.AllowTarget(d)),
		iptables.Rule{Match: naming.Match(naming.FixedSet(f, naming.FailClosed(d)), d.Own()),
			Target:  "-g " + naming.DropChain(d),
			Comment: "unknown while a pod may be that policies isolate"},
		iptables.Rule{Match: naming.Match(naming.FixedSet(f, naming.Unattended), d.Own()) + " " +
			naming.NoMatch(naming.FixedSet(f, naming.Alive), d.Own()),
			Target: "-g " + naming.DropChain(d), Comment: "weave-npc is not running"},
		iptables.Rule{Target: unknown, Comment: "not a pod of this node"})
}

// reportLimit lets the first five packets through, and then one per second, from one address to one port of another (to
// the other address where there are no ports). So a loop is reported now and then, and does not suppress the reports of
// other flows.
//
// An entry is 120 bytes and expires after five seconds, the time to refill its burst. A table of 131,072 holds those of
// over 20,000 new flows a second, in 16 MiB; the kernel itself drops what finds it full, without a report. Tables
// belong to one family of one network namespace and are found there by their name, with whatever numbers they were
// made: other numbers need another name.
const reportLimit = "-m hashlimit --hashlimit-upto 1/second --hashlimit-burst 5 --hashlimit-mode srcip,dstip,dstport " +
	"--hashlimit-name weave-npc-%s-1 --hashlimit-htable-size 16384 --hashlimit-htable-max 131072 " +
	"--hashlimit-htable-expire 5000"

// BlockedMark is what a packet that we report is marked with, on its way to being dropped: others may report packets to
// our groups, and what is read there has no prefix. It says "weav" in ASCII.
const BlockedMark = 0x77656176

// Reports returns the rules that report the first packets of a flow, their headers at least. A kernel that lacks what
// they take drops without a report.
func (b *Base) Reports(d npc.Direction) []iptables.Rule {
	return []iptables.Rule{
		{
			Match:   opening,
			Target:  fmt.Sprintf("-j MARK --set-xmark %#x/0xffffffff", BlockedMark),
			Comment: "blocked: marked as ours",
			Order:   1,
		},
		{
			Match: opening + " " + fmt.Sprintf(reportLimit, d),
			Target: fmt.Sprintf(`-j NFLOG --nflog-group %d --nflog-size 128 --nflog-prefix "weave-npc blocked %s"`,
				b.NFLogGroup+uint16(d), d),
			Comment: "blocked: reported",
			Order:   2,
		},
	}
}
