package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Answers of trusted resolvers to pods that may reach domain names are held until their addresses are in the kernel:
// a queue passes them to weave-npc. The kernel finds the names in them, so that others are not held. An answer that is
// queued is of a connection that the pod opened; the queue's verdict ends the evaluation of FORWARD, where the next rule
// accepts replies.

// maxHeldNames is how many names the kernel looks for in an answer. With more, all answers to the pods are held.
const maxHeldNames = 64

// heldLimit bounds how many answers a second one pod has held, so that its flood does not fill the queue. What is
// beyond is dropped, and asked again.
const heldLimit = "-m hashlimit --hashlimit-above 200/second --hashlimit-burst 200 --hashlimit-mode dstip " +
	"--hashlimit-name weave-npc-dns-%s-1 --hashlimit-htable-size 1024 --hashlimit-htable-max 16384 " +
	"--hashlimit-htable-expire 5000"

// seenLimit bounds how many other answers a second to one pod are copied, which only name addresses in reports.
const seenLimit = "-m hashlimit --hashlimit-upto 20/second --hashlimit-burst 100 --hashlimit-mode dstip " +
	"--hashlimit-name weave-npc-dns-seen-1 --hashlimit-htable-size 1024 --hashlimit-htable-max 16384 " +
	"--hashlimit-htable-expire 5000"

// ClusterResolvers returns the sets of the cluster's own resolvers with their ports, by UDP and by TCP: the pods of
// kube-dns, which CoreDNS is too.
func ClusterResolvers() []Set {
	var sets []Set
	for _, port := range []NamedPort{{"dns", npc.UDP}, {"dns-tcp", npc.TCP}} {
		sets = append(sets, NewSet(SelectorSpec{Scope: NamespaceScope, Namespace: "kube-system",
			Pods: labels.SelectorFromSet(labels.Set{"k8s-app": "kube-dns"}), Port: port}))
	}
	return sets
}

// fromResolver matches what the resolvers in a set send by a protocol to pods that may reach domain names.
func fromResolver(f npc.Family, protocol, resolvers string) string {
	return "-p " + protocol + " " + naming.Match(resolvers, "src,src") + " " +
		naming.Match(naming.FixedSet(f, naming.DNSPods), "dst")
}

// toDNS returns the rules that lead answers of trusted resolvers to where they are held.
func toDNS(b *Base, f npc.Family) (rules []iptables.Rule) {
	if b.Names == "" {
		return nil
	}
	own := ClusterResolvers()
	add := func(protocol, from, to string) {
		rules = append(rules, iptables.Rule{Match: fromResolver(f, protocol, from) +
			" -m conntrack --ctstate ESTABLISHED --ctdir REPLY", Target: "-j " + to, Comment: "a resolver answers"})
	}
	add("udp", own[0].Name(f), naming.DNSChain)
	add("tcp", own[1].Name(f), naming.DNSHoldChain)
	if b.DNSResolvers {
		add("udp", naming.FixedSet(f, naming.DNSResolvers), naming.DNSChain)
		add("tcp", naming.FixedSet(f, naming.DNSResolvers), naming.DNSHoldChain)
	}
	return rules
}

// FromNodeDNS returns the rules of OUTPUT that lead answers of trusted resolvers on the node itself to where they are held,
// by UDP and by TCP. A node's DNS cache has its packets left out of connection tracking.
func FromNodeDNS(f npc.Family) (udp, tcp iptables.Rule) {
	rule := func(protocol, to string) iptables.Rule {
		return iptables.Rule{Match: fromResolver(f, protocol, naming.FixedSet(f, naming.DNSResolvers)), Target: "-j " + to,
			Comment: "a resolver on this node answers"}
	}
	return rule("udp", naming.DNSChain), rule("tcp", naming.DNSHoldChain)
}

// DNS returns the rules that find the answers to be held: those with a name that a policy accepts. Others are copied.
func DNS(b *Base) []iptables.Rule {
	hold := "-g " + naming.DNSHoldChain
	names := strings.Fields(b.Names)
	if len(names) > maxHeldNames {
		return []iptables.Rule{{Target: hold, Comment: "more names than the kernel looks for"}}
	}
	rules := make([]iptables.Rule, 0, len(names)+1)
	for i, name := range names {
		rules = append(rules, iptables.Rule{Match: "-m string --hex-string \"" + inMessage(name) + "\" --algo bm --icase",
			Target: hold, Comment: name, Order: i})
	}
	return append(rules, iptables.Rule{Match: seenLimit, Target: fmt.Sprintf("-j NFLOG --nflog-group %d", AnswersGroup(b.NFLogGroup)),
		Comment: "not held: names addresses in reports", Order: len(names)})
}

// AnswersGroup returns the NFLOG group that answers of resolvers are copied to, from the one of packets dropped on
// ingress.
func AnswersGroup(ingress uint16) uint16 { return ingress + uint16(len(npc.Directions)) }

// maxPattern is how many bytes xt_string looks for.
const maxPattern = 128

// inMessage returns the labels of a domain name as they are in a message (RFC 1035, 3.1), in the form of xt_string: the
// last of them, if they are too long. Names below a domain end like it.
func inMessage(name string) string {
	text, size := "00", 1
	labels := strings.Split(strings.TrimPrefix(name, "*."), ".")
	for _, label := range slices.Backward(labels) {
		if size += 1 + len(label); size > maxPattern {
			break
		}
		text = fmt.Sprintf("%02x%x", len(label), label) + text
	}
	return "|" + text + "|"
}

// DNSHold returns the rules that hold an answer while weave-npc reads the queue. Without one that the kernel does not
// take, answers pass unlearned.
func DNSHold(b *Base, f npc.Family) []iptables.Rule {
	return []iptables.Rule{
		{Match: naming.NoMatch(naming.FixedSet(f, naming.DNSAlive), "src"), Target: "-j RETURN",
			Comment: "weave-npc is not running"},
		{Match: fmt.Sprintf(heldLimit, f), Target: "-j DROP", Comment: "too many answers to one pod", Order: 1},
		{Target: fmt.Sprintf("-j NFQUEUE --queue-num %d", b.DNSQueue), Order: 2,
			Comment: "held until its addresses are in the sets"},
	}
}
