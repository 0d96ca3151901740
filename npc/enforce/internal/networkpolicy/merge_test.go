package networkpolicy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// fromApp returns a policy that lets pods with an app reach others.
func fromApp(name, target, peer, ports string) string {
	if ports != "" {
		ports = ", ports: [" + ports + "]"
	}
	return fmt.Sprintf("policy shop/%s {podSelector: {matchLabels: {app: %s}}, ingress: [{from: [%s]%s}]}", name, target, peer, ports)
}

func labelled(app string) string { return "{podSelector: {matchLabels: {app: " + app + "}}}" }

// TestRulesThatDifferInTheirPeers shows which rules become one: more than MaxRules with the same target and ports, of one
// policy or of several, that select pods by labels.
func TestRulesThatDifferInTheirPeers(t *testing.T) {
	const one = "src in [pods with app=a in shop / pods with app=b in shop / pods with app=c in shop] -j ACCEPT # "
	const end = "\n-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it"
	for _, c := range []struct {
		name, policies, want string
	}{
		{"few", fromApp("p", "web", labelled("a"), "") + ";" + fromApp("q", "web", labelled("b"), ""), `
			dst in [local pods with app=web in shop] src in [pods with app=a in shop] -j ACCEPT # shop/p rule 1
			dst in [local pods with app=web in shop] src in [pods with app=b in shop] -j ACCEPT # shop/q rule 1`},
		{"the_same_peers_are_one_anyway", fromApp("p", "web", labelled("a"), "") + ";" + fromApp("q", "web", labelled("a"), "") + ";" +
			fromApp("r", "web", labelled("b"), ""), `
			dst in [local pods with app=web in shop] src in [pods with app=a in shop] -j ACCEPT # shop/p rule 1 / shop/q rule 1
			dst in [local pods with app=web in shop] src in [pods with app=b in shop] -j ACCEPT # shop/r rule 1`},
		{"of_several_policies", fromApp("p", "web", labelled("a"), "") + ";" + fromApp("q", "web", labelled("b"), "") + ";" +
			fromApp("r", "web", labelled("c"), ""),
			"dst in [local pods with app=web in shop] " + one + "shop/p rule 1 / shop/q rule 1 / shop/r rule 1"},
		{"of_one_policy", fromApp("p", "web", labelled("a")+", "+labelled("b")+", "+labelled("c"), "{port: 80}"),
			"-p tcp -m tcp --dport 80 dst in [local pods with app=web in shop] " + one + "shop/p rule 1"},
		{"a_named_port_of_the_target", fromApp("p", "web", labelled("a")+", "+labelled("b")+", "+labelled("c"), "{port: http}"),
			"-p tcp dst,dst in [port http/tcp of local pods with app=web in shop] " + one + "shop/p rule 1"},
		{"others_stay", fromApp("p", "web", labelled("a")+", "+labelled("b")+", "+labelled("c")+", {namespaceSelector: {}}, {ipBlock: {cidr: 192.0.2.0/24}}", ""), `
			dst in [local pods with app=web in shop] src in [192.0.2.0/24] -j ACCEPT # shop/p rule 1
			dst in [local pods with app=web in shop] src in [pods in all namespaces] -j ACCEPT # shop/p rule 1
			dst in [local pods with app=web in shop] ` + one + "shop/p rule 1"},
		{"other_ports_and_targets", fromApp("p", "web", labelled("a")+", "+labelled("b"), "") + ";" +
			fromApp("q", "web", labelled("c"), "{port: 80}") + ";" + fromApp("r", "db", labelled("c"), ""), `
			-p tcp -m tcp --dport 80 dst in [local pods with app=web in shop] src in [pods with app=c in shop] -j ACCEPT # shop/q rule 1
			dst in [local pods with app=db in shop] src in [pods with app=c in shop] -j ACCEPT # shop/r rule 1
			dst in [local pods with app=web in shop] src in [pods with app=a in shop] -j ACCEPT # shop/p rule 1
			dst in [local pods with app=web in shop] src in [pods with app=b in shop] -j ACCEPT # shop/p rule 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, func(c *Config) { c.Sharding.MaxRules = 2 },
				"shop/web {node: node1, addrs: [10.32.1.2], labels: {app: web}}", "shop/db {node: node1, addrs: [10.32.1.3], labels: {app: db}}",
				"shop/a {node: node2, addrs: [10.32.2.2], labels: {app: a}}", "shop/b {node: node2, addrs: [10.32.2.3], labels: {app: b}}")
			w.do(strings.Split(c.policies, ";")...)
			got := w.kernel(npc.IPv4)
			var rules []string
			for line := range strings.SplitSeq(got.tree(t, npc.Ingress, true), "\n") {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "isolated") {
					rules = append(rules, line)
				}
			}
			if want := strings.Join(trimmed(c.want+end), "\n"); want != strings.Join(sorted(rules[:len(rules)-1]), "\n")+"\n"+rules[len(rules)-1] {
				t.Errorf("rules\n%s\nwant\n%s", strings.Join(rules, "\n"), want)
			}
		})
	}
}

// TestUnitedRulesFollowTheirPolicies shows that only what the rules ask for has sets.
func TestUnitedRulesFollowTheirPolicies(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding.MaxRules = 1 },
		"shop/web {node: node1, addrs: [10.32.1.2], labels: {app: web}}", "shop/a {node: node2, addrs: [10.32.2.2], labels: {app: a}}")
	sets := func(want ...string) {
		t.Helper()
		var got []string
		for _, use := range w.index.Sets.Uses() {
			if use.Set.Family() == npc.IPv4 {
				got = append(got, use.Set.About())
			}
		}
		if fmt.Sprint(sorted(got)) != fmt.Sprint(want) {
			t.Errorf("sets %q, want %q", sorted(got), want)
		}
	}
	w.do(fromApp("p", "web", labelled("a"), ""))
	sets("local pods with app=web in shop", "pods with app=a in shop")
	w.do(fromApp("q", "web", labelled("b"), ""))
	sets("local pods with app=web in shop", "pods with app=a in shop / pods with app=b in shop")
	w.do(fromApp("r", "web", labelled("b"), ""), "delete policy shop/q")
	sets("local pods with app=web in shop", "pods with app=a in shop / pods with app=b in shop")
	w.do("delete policy shop/p")
	sets("local pods with app=web in shop", "pods with app=b in shop")
	w.do("delete policy shop/r")
	sets()
}
