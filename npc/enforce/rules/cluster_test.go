package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/golden"
)

// user names the rule of a cluster network policy that alone uses a set.
func user(r Rendered, s Set) string {
	spec, ok := s.SetSpec.(SelectorSpec)
	if !ok || spec.User == nil {
		return ""
	}
	for _, d := range npc.Directions {
		if i := slices.Index(r.Users[d], spec.User); i >= 0 {
			return fmt.Sprintf(", for %s %d to %s", d, i+1, spec.User.Action)
		}
	}
	return ", for none"
}

// clusterPolicy compiles a cluster network policy whose subject is everybody.
func clusterPolicy(t *testing.T, tier, spec string) compiled.Cluster {
	t.Helper()
	return compiled.CompileCluster(fixture.ClusterPolicy(t, "p", `{tier: `+tier+`, subject: {namespaces: {}}, `+spec+`}`))
}

// clusterRendered compares each case.
func clusterRendered(t *testing.T, cases []renderCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := clusterPolicy(t, "Admin", c.spec)
			compare(t, c.want, written(RenderCluster(&p)))
		})
	}
}

// TestPeersOfClusterRules shows the match of each kind of peer. The rules do not ask for the subject, and namespaces
// never become a list, which would be shared.
func TestPeersOfClusterRules(t *testing.T) {
	clusterRendered(t, []renderCase{
		{"namespaces", `ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: a}}}]}]`, `
			ingress 1: -m set --match-set S1 src
			S1 is a set across namespaces: pods in namespaces with team=a, for ingress 1 to Accept
			`},
		{"all_namespaces", `egress: [{action: Pass, to: [{namespaces: {}}]}]`, `
			egress 1: -m set --match-set S1 dst
			S1 is a set across namespaces: pods in all namespaces, for egress 1 to Pass
			`},
		{"pods", `egress: [{action: Deny, to: [{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}]}]`, `
			egress 1: -m set --match-set S1 dst
			S1 is a set across namespaces: pods with app=web in namespaces with team=a, for egress 1 to Deny
			`},
		{"networks_are_a_set_of_each_family_for_all", `egress: [{action: Deny, to: [{networks: [10.0.0.0/8, "fd00::/8"]}, {networks: [192.0.2.0/24]}]}]`, `
			IPv4 egress 1: -m set --match-set S1 dst
			IPv6 egress 1: -m set --match-set S2 dst
			S1 is IPv4 [10.0.0.0/8 192.0.2.0/24]: 2 address blocks
			S2 is IPv6 [fd00::/8]: fd00::/8
			`},
		{"several_rules_of_one_peer", `ingress: [{action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {}}]},
			{action: Deny, from: [{namespaces: {}}]}], egress: [{action: Deny, to: [{namespaces: {}}]}]`, `
			ingress 1: -p tcp -m set --match-set S1 src
			ingress 2: -m set --match-set S2 src
			egress 1: -m set --match-set S3 dst
			S1 is a set across namespaces: pods in all namespaces, for ingress 1 to Accept
			S2 is a set across namespaces: pods in all namespaces, for ingress 2 to Deny
			S3 is a set across namespaces: pods in all namespaces, for egress 1 to Deny
			`},
		{"what_fails_closed", `ingress: [{action: Accept, from: [{}]}, {action: Deny, from: [{}]}], egress: [{action: Pass, to: [{domainNames: [a.b]}]}]`, `
			ingress 2: everything
			egress 1: everything
			`},
		{"no_port_is_not_every_port", `ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: "80"}]}]`, ``},
	})
}

// TestProtocolsOfClusterRules shows the match of each kind of protocol. Named ports are those of the destination.
func TestProtocolsOfClusterRules(t *testing.T) {
	clusterRendered(t, []renderCase{
		{"numbers", `ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}},
			{udp: {destinationPort: {range: {start: 1, end: 9}}}}, {tcp: {destinationPort: {number: 90}}}, {sctp: {}}]}]`, `
			ingress 1: -p tcp -m multiport --dports 80,90 -m set --match-set S1 src
			ingress 1: -p udp -m udp --dport 1:9 -m set --match-set S1 src
			ingress 1: -p sctp -m set --match-set S1 src
			S1 is a set across namespaces: pods in all namespaces, for ingress 1 to Deny
			`},
		{"a_named_port_of_the_subject", `ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: a}}}],
			protocols: [{destinationNamedPort: http}]}]`, `
			ingress 1: -p tcp -m set --match-set S1 dst,dst -m set --match-set S2 src
			ingress 1: -p udp -m set --match-set S3 dst,dst -m set --match-set S2 src
			ingress 1: -p sctp -m set --match-set S4 dst,dst -m set --match-set S2 src
			S1 is a set across namespaces: port http/tcp of pods in all namespaces, for ingress 1 to Accept
			S2 is a set across namespaces: pods in namespaces with team=a, for ingress 1 to Accept
			S3 is a set across namespaces: port http/udp of pods in all namespaces, for ingress 1 to Accept
			S4 is a set across namespaces: port http/sctp of pods in all namespaces, for ingress 1 to Accept
			`},
		{"a_named_port_of_peers_and_of_pods_in_networks", `egress: [{action: Deny, to: [{namespaces: {matchLabels: {team: a}}}, {networks: [10.0.0.0/8]}],
			protocols: [{destinationNamedPort: http}, {udp: {}}, {sctp: {}}]}]`, `
			egress 1: -p tcp -m set --match-set S2 dst,dst
			egress 1: -p udp -m set --match-set S3 dst
			egress 1: -p sctp -m set --match-set S3 dst
			IPv4 egress 1: -p tcp -m set --match-set S4 dst,dst -m set --match-set S1 dst
			IPv4 egress 1: -p udp -m set --match-set S1 dst
			IPv4 egress 1: -p sctp -m set --match-set S1 dst
			S1 is IPv4 [10.0.0.0/8]: 10.0.0.0/8
			S2 is a set across namespaces: port http/tcp of pods in namespaces with team=a, for egress 1 to Deny
			S3 is a set across namespaces: pods in namespaces with team=a, for egress 1 to Deny
			S4 is a set across namespaces: port http/tcp of pods in all namespaces, for egress 1 to Deny
			`},
	})
}

// TestManyPeersOfAClusterRule shows that so many peers with so many ports that they become one list use sets of their
// rule alone.
func TestManyPeersOfAClusterRule(t *testing.T) {
	var peers, protocols []string
	for i := range 25 {
		peers = append(peers, fmt.Sprintf("{namespaces: {matchLabels: {team: a%d}}}", i))
		protocols = append(protocols, fmt.Sprintf("{destinationNamedPort: p-%d}", i))
	}
	p := clusterPolicy(t, "Admin", fmt.Sprintf(`egress: [{action: Deny, to: [%s], protocols: [%s]}]`,
		strings.Join(peers, ", "), strings.Join(protocols, ", ")))
	got := written(RenderCluster(&p))
	compare(t, `
		egress 1: -p tcp -m set --match-set S27 dst,dst -m set --match-set S26 dst
		egress 1: -p udp -m set --match-set S52 dst,dst -m set --match-set S26 dst
		egress 1: -p sctp -m set --match-set S77 dst,dst -m set --match-set S26 dst
		S1 is a set across namespaces: pods in namespaces with team=a0, for egress 1 to Deny
		S26 is a list of S1 S2 S3 S4 S5 S6 S7 S8 S9 S10 S11 S12 S13 S14 S15 S16 S17 S18 S19 S20 S21 S22 S23 S24 S25: 25 peers of p
		S27 is a set across namespaces: port p-0/tcp of pods in all namespaces, for egress 1 to Deny
		S52 is a set across namespaces: port p-0/udp of pods in all namespaces, for egress 1 to Deny
		S77 is a set across namespaces: port p-0/sctp of pods in all namespaces, for egress 1 to Deny
		`, fold(got))
}

// podSets returns the sets of pods that rules use, by the keys of the sets.
func podSets(r Rendered) map[string]bool {
	ids := map[string]bool{}
	for _, s := range r.Sets {
		if _, ok := s.SetSpec.(SelectorSpec); ok {
			ids[s.ID] = true
		}
	}
	return ids
}

// TestSetsOfClusterRulesAreTheirOwn shows that no other rule or policy uses the sets of pods of a rule, whatever they
// have in common.
func TestSetsOfClusterRulesAreTheirOwn(t *testing.T) {
	const rule = `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: a}}}], protocols: [{destinationNamedPort: http}]}]`
	all := map[string]string{} // set -> whose it is
	add := func(whose string, r Rendered, want int) {
		ids := podSets(r)
		if len(ids) != want {
			t.Errorf("%s has %d sets, not %d", whose, len(ids), want)
		}
		for id := range ids {
			if all[id] != "" {
				t.Errorf("%s and %s share a set", all[id], whose)
			}
			all[id] = whose
		}
	}
	for _, c := range []struct{ whose, name, tier, spec string }{
		{"a policy", "p", "Admin", rule},
		{"one of another name", "q", "Admin", rule},
		{"one of the other tier", "p", "Baseline", rule},
		{"one of another action", "p", "Admin", strings.Replace(rule, "Deny", "Pass", 1)},
		{"one of the other direction", "p", "Admin", strings.NewReplacer("ingress", "egress", "from", "to").Replace(rule)},
		{"one of other ports", "p", "Admin", strings.Replace(rule, "http", "https", 1)},
		{"one of more peers", "p", "Admin", strings.Replace(rule, "[{namespaces", "[{networks: [10.0.0.0/8]}, {namespaces", 1)},
	} {
		spec := c.spec
		if strings.Contains(spec, "networks") {
			spec = strings.NewReplacer("ingress", "egress", "from", "to").Replace(spec)
		}
		p := clusterPolicy(t, c.tier, spec)
		if p.Invalid != nil {
			t.Fatal(p.Invalid)
		}
		want := 4 // the peer, and the port with each of three protocols
		if strings.Contains(spec, "egress") {
			want = 3 // the peer's port with each protocol
		}
		if strings.Contains(spec, "networks") {
			want = 6 // that of pods in the networks, too
		}
		p.Name = c.name
		add(c.whose, RenderCluster(&p), want)
	}
	v1 := compiled.Compile(fixture.Policy(t, "shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [
		{namespaceSelector: {matchLabels: {team: a}}}], ports: [{port: http}, {port: 80}]}]}`), quota.Default())
	add("a NetworkPolicy", Render(&v1, "shop", "shop/p", func(labels.Selector) bool { return false }), 2)
}

// TestSetsOfClusterRulesStay shows that a rule keeps its sets while what it matches stays, wherever it is moved. Of
// equal rules each has its own.
func TestSetsOfClusterRulesStay(t *testing.T) {
	const a = `{name: x, action: Deny, from: [{namespaces: {matchLabels: {team: a}}}]}`
	const b = `{action: Deny, from: [{namespaces: {matchLabels: {team: b}}}]}`
	sets := func(spec string) []string {
		p := clusterPolicy(t, "Admin", spec)
		return slices.Sorted(maps.Keys(podSets(RenderCluster(&p))))
	}
	before := sets(`ingress: [` + a + `, ` + b + `]`)
	for name, spec := range map[string]string{
		"another order":     `ingress: [` + b + `, ` + a + `]`,
		"another priority":  `priority: 7, ingress: [` + a + `, ` + b + `]`,
		"another name":      `ingress: [` + strings.Replace(a, "x", "y", 1) + `, ` + b + `]`,
		"written otherwise": `ingress: [` + strings.Replace(a, "matchLabels", "matchExpressions: [], matchLabels", 1) + `, ` + b + `]`,
	} {
		if got := sets(spec); !slices.Equal(got, before) {
			t.Errorf("%s: the sets are %v, not %v", name, got, before)
		}
	}
	twice := sets(`ingress: [` + a + `, ` + b + `, ` + a + `]`)
	if len(before) != 2 || len(twice) != 3 {
		t.Errorf("two rules have %d sets, and with one of them again %d", len(before), len(twice))
	}
	for _, id := range before {
		if !slices.Contains(twice, id) {
			t.Error("that a rule is there twice takes the set of another away")
		}
	}
}

// TestSetsOfNetworkPoliciesKeepTheirNames compares names of sets with testdata/names.txt: with others, an upgrade would
// replace all sets.
func TestSetsOfNetworkPoliciesKeepTheirNames(t *testing.T) {
	ports := `{port: http}`
	for i := range 64 {
		ports += fmt.Sprintf(", {port: %d}", 2*i+1) + fmt.Sprintf(", {port: n-%d}", i)
	}
	var out strings.Builder
	for _, spec := range []string{
		`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}},
			{namespaceSelector: {matchLabels: {team: a}}}, {namespaceSelector: {}, podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}],
			ports: [{port: http}, {port: 80}]}], egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 192.0.2.0/24}},
			{ipBlock: {cidr: "fd00::/8"}}], ports: [{port: dns, protocol: UDP}, {port: 53, protocol: UDP}]}]}`,
		`{podSelector: {}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}},
			{ipBlock: {cidr: "::/0"}}, {podSelector: {matchLabels: {app: client}}}], ports: [` + ports + `]}]}`,
	} {
		p := compiled.Compile(fixture.Policy(t, "shop/p", spec), quota.Default())
		if p.Invalid != nil {
			t.Fatal(p.Invalid)
		}
		for _, lists := range []bool{true, false} {
			sets := withPeers(Render(&p, "shop", "shop/p", func(labels.Selector) bool { return lists }))
			for _, s := range sets[:min(9, len(sets))] {
				fmt.Fprintf(&out, "%s %s %s\n", s.Name(npc.IPv4), s.Name(npc.IPv6), s)
			}
		}
	}
	golden.Compare(t, "testdata/names.txt", out.String())
}
