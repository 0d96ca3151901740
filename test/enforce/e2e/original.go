package e2e

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// LeaveOriginal leaves on a node what the original weave-npc leaves when it is killed, alongside the rules of weave-net in
// FORWARD: all hosts may reach web, and no other pod may be reached.
func LeaveOriginal(t *testing.T, w *Cluster, n *lab.Node) {
	t.Helper()
	const (
		targets = "weave-;rGqyMIl1HN^cfDki~Z$3]6!N"
		peers   = "weave-Rzff}h:=]JaaJl/G;(XJpGjZ["
		spaces  = "weave-P.B|!ZhkAr5q=XZ?3}tMBA+0@"
		sources = "weave-s_+ChJId4Uy_$}G;WdH|~TK)I"
	)
	web := w.Hosts["web"].Addr4().String()
	for _, args := range [][]string{
		{"create", targets, "hash:ip", "family", "inet", "comment"},
		{"add", targets, web, "comment", "namespace: shop, pod: web"},
		{"create", peers, "hash:ip", "family", "inet", "comment"},
		{"create", sources, "hash:ip", "family", "inet", "comment"},
		{"add", sources, "10.32.1.99", "comment", "namespace: shop, pod: gone"},
		{"create", spaces, "list:set", "comment"},
		{"add", spaces, peers, "comment", "namespace: shop"},
	} {
		Run(t, n.Host, "ipset", args...)
	}
	chains := []string{"WEAVE-NPC", "WEAVE-NPC-DEFAULT", "WEAVE-NPC-INGRESS", "WEAVE-NPC-EGRESS",
		"WEAVE-NPC-EGRESS-DEFAULT", "WEAVE-NPC-EGRESS-CUSTOM", "WEAVE-NPC-EGRESS-ACCEPT", "WEAVE-NPC-EGRESS-MARK"}
	iptables := func(args ...string) {
		t.Helper()
		Run(t, n.Host, "iptables-"+string(w.Backend), append([]string{"-w"}, args...)...)
	}
	for _, c := range chains {
		iptables("-N", c)
	}
	words := strings.Fields
	for _, rule := range [][]string{
		words("FORWARD -i cni0 -j WEAVE-NPC-EGRESS"),
		words("FORWARD -o cni0 -j WEAVE-NPC"),
		words("FORWARD -o cni0 -j DROP"),
		words("INPUT -i cni0 -j WEAVE-NPC-EGRESS"),
		words("WEAVE-NPC -m state --state RELATED,ESTABLISHED -j ACCEPT"),
		words("WEAVE-NPC -d 224.0.0.0/4 -j ACCEPT"),
		words("WEAVE-NPC -m physdev --physdev-is-bridged --physdev-out vethwe-bridge -j ACCEPT"),
		words("WEAVE-NPC -m state --state NEW -j WEAVE-NPC-DEFAULT"),
		words("WEAVE-NPC -m state --state NEW -j WEAVE-NPC-INGRESS"),
		{"WEAVE-NPC-DEFAULT", "-m", "set", "--match-set", targets, "dst", "-m", "comment", "--comment",
			"DefaultAllow ingress isolation for namespace: shop", "-j", "ACCEPT"},
		{"WEAVE-NPC-INGRESS", "-m", "set", "--match-set", spaces, "src", "-m", "set", "--match-set", targets, "dst",
			"-j", "ACCEPT"},
		words("WEAVE-NPC-EGRESS -m state --state RELATED,ESTABLISHED -j ACCEPT"),
		words("WEAVE-NPC-EGRESS -m addrtype --dst-type LOCAL -j RETURN"),
		words("WEAVE-NPC-EGRESS -m state --state NEW -j WEAVE-NPC-EGRESS-DEFAULT"),
		words("WEAVE-NPC-EGRESS -m state --state NEW -m mark ! --mark 0x40000/0x40000 -j WEAVE-NPC-EGRESS-CUSTOM"),
		words("WEAVE-NPC-EGRESS-ACCEPT -j MARK --set-xmark 0x40000/0x40000"),
		words("WEAVE-NPC-EGRESS-MARK -j MARK --set-xmark 0x40000/0x40000"),
		{"WEAVE-NPC-EGRESS-DEFAULT", "-m", "set", "--match-set", sources, "src", "-j", "WEAVE-NPC-EGRESS-ACCEPT"},
		{"WEAVE-NPC-EGRESS-DEFAULT", "-m", "set", "--match-set", sources, "src", "-j", "RETURN"},
	} {
		iptables(append([]string{"-A"}, rule...)...)
	}
}
