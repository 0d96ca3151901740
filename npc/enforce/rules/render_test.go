package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// render returns what the policy shop/p is rendered as.
func render(t *testing.T, spec string, lists func(labels.Selector) bool) string {
	t.Helper()
	p := compiled.Compile(fixture.Policy(t, "shop/p", spec), quota.Default())
	if p.Invalid != nil {
		t.Fatal(p.Invalid)
	}
	return written(Render(&p, "shop", "shop/p", lists))
}

// written returns rules, and the sets that they refer to as S1, S2 and so on, with what is wrong with their order. A rule
// that both families have is one line.
func written(r Rendered) string {
	r.Sets = withPeers(r)
	var out strings.Builder
	for _, d := range npc.Directions {
		var lines [len(npc.Families)][]string
		for _, rule := range r.Rules[d] {
			match := numbers(r.Sets, rule.Family).Replace(rule.Match)
			if match == "" {
				match = "everything"
			}
			lines[rule.Family] = append(lines[rule.Family], fmt.Sprintf("%s %d: %s", d, rule.Number, match))
		}
		for f, other := range [...]npc.Family{npc.IPv6, npc.IPv4} {
			for _, line := range lines[f] {
				switch both := slices.Contains(lines[other], line); {
				case !both:
					fmt.Fprintf(&out, "%s %s\n", npc.Family(f), line)
				case npc.Family(f) == npc.IPv4:
					fmt.Fprintf(&out, "%s\n", line)
				}
			}
		}
	}
	for i, s := range r.Sets {
		if union, is := s.SetSpec.(UnionSpec); is {
			for _, m := range union.Members {
				if !slices.ContainsFunc(r.Sets[:i], func(before Set) bool { return before.ID == m.ID }) {
					fmt.Fprintf(&out, "S%d comes before its members\n", i+1)
				}
			}
		}
		if slices.ContainsFunc(r.Sets[:i], func(before Set) bool { return before.ID == s.ID }) {
			fmt.Fprintf(&out, "S%d is there twice\n", i+1)
		}
		fmt.Fprintf(&out, "S%d is %s%s\n", i+1, describe(r.Sets, s), user(r, s))
	}
	return out.String()
}

// withPeers returns the sets of a policy and those of the peers that its rules ask for alone.
func withPeers(r Rendered) []Set {
	out := slices.Clone(r.Sets)
	for _, rule := range slices.Concat(r.Rules[:]...) {
		if rule.Peer != nil && !slices.ContainsFunc(out, func(s Set) bool { return s.ID == rule.Peer.ID }) {
			out = append(out, *rule.Peer)
		}
	}
	return out
}

// numbers replaces the names of a family's sets by their numbers, in the order of their creation.
func numbers(sets []Set, f npc.Family) *strings.Replacer {
	var names []string
	for i, s := range sets {
		names = append(names, s.Name(f), fmt.Sprintf("S%d", i+1))
	}
	return strings.NewReplacer(names...)
}

// describe returns what a set holds.
func describe(sets []Set, s Set) string {
	switch spec := s.SetSpec.(type) {
	case SelectorSpec:
		return [...]string{"the set of the target", "a set in a namespace", "a set across namespaces", "a list of namespaces"}[spec.Scope] + ": " +
			spec.String()
	case BlockSpec:
		return fmt.Sprintf("%s %v: %s", spec.Family(), spec.Entries, spec)
	case NodesSpec:
		return "the addresses of " + spec.String()
	case UnionSpec:
		var members []string
		for _, m := range spec.Members {
			i := slices.IndexFunc(sets, func(s Set) bool { return s.ID == m.ID })
			members = append(members, fmt.Sprintf("S%d", i+1))
		}
		return "a list of " + strings.Join(members, " ") + ": " + spec.String()
	}
	return "?"
}

// renderCase is a policy, and the rules and sets that it is rendered as.
type renderCase struct{ name, spec, want string }

// rendered compares each case; lists reports whether namespaces are few enough for a list.
func rendered(t *testing.T, lists bool, cases []renderCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := render(t, c.spec, func(labels.Selector) bool { return lists })
			compare(t, c.want, got)
		})
	}
}

// compare fails if a text is not the one that is wanted, less its indentation.
func compare(t *testing.T, want, got string) {
	t.Helper()
	want = strings.ReplaceAll(strings.TrimLeft(want, "\n"), "\t", "")
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("it is rendered otherwise (-want +got):\n%s", diff)
	}
}

// TestRulesOfPorts shows the match of each kind of port. Protocol and ports come first; the target is asked unless it
// is the whole namespace.
func TestRulesOfPorts(t *testing.T) {
	rendered(t, true, []renderCase{
		{"deny_all_needs_no_rule", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`, ""},
		{"allow_all_to_the_namespace", `{podSelector: {}, ingress: [{}]}`, `
			ingress 1: everything
			`},
		{"allow_all_to_a_target", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`, `
			ingress 1: -m set --match-set S1 dst
			egress 1: -m set --match-set S1 src
			S1 is the set of the target: local pods with app=web in shop
			`},
		{"a_rule_for_each_protocol", `{podSelector: {}, ingress: [{}, {ports: [{port: 80}, {port: 90, endPort: 99}, {port: 53, protocol: UDP},
			{protocol: SCTP}]}]}`, `
			ingress 1: everything
			ingress 2: -p tcp -m multiport --dports 80,90:99
			ingress 2: -p udp -m udp --dport 53
			ingress 2: -p sctp
			`},
		{"a_named_port_of_the_target", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}, {port: 443}]}]}`, `
			ingress 1: -p tcp -m tcp --dport 443 -m set --match-set S1 dst
			ingress 1: -p tcp -m set --match-set S2 dst,dst
			S1 is the set of the target: local pods with app=web in shop
			S2 is the set of the target: port http/tcp of local pods with app=web in shop
			`},
		{"a_named_port_of_the_namespace", `{podSelector: {}, ingress: [{ports: [{port: dns, protocol: UDP}]}]}`, `
			ingress 1: -p udp -m set --match-set S1 dst,dst
			S1 is the set of the target: port dns/udp of local pods in shop
			`},
		{"a_named_port_of_whatever_has_it", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`, `
			egress 1: -p tcp -m set --match-set S1 src -m set --match-set S2 dst,dst
			S1 is the set of the target: local pods with app=web in shop
			S2 is a set across namespaces: port http/tcp of pods in all namespaces
			`},
		{"a_named_port_of_a_block", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: http}]}]}`, `
			IPv4 egress 1: -p tcp -m set --match-set S2 dst,dst -m set --match-set S1 dst
			S1 is IPv4 [10.0.0.0/8]: 10.0.0.0/8
			S2 is a set across namespaces: port http/tcp of pods in all namespaces
			`},
		{"a_named_port_of_pods", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}],
			ports: [{port: sql}]}]}`, `
			egress 1: -p tcp -m set --match-set S1 dst,dst
			S1 is a set in a namespace: port sql/tcp of pods with app=db in shop
			`},
		{"a_named_port_of_namespaces_takes_no_list", `{podSelector: {}, policyTypes: [Egress], egress: [
			{to: [{namespaceSelector: {matchLabels: {team: a}}}], ports: [{port: sql}, {port: 53, protocol: UDP}]}]}`, `
			egress 1: -p tcp -m set --match-set S1 dst,dst
			egress 1: -p udp -m udp --dport 53 -m set --match-set S2 dst
			S1 is a set across namespaces: port sql/tcp of pods in namespaces with team=a
			S2 is a list of namespaces: pods in namespaces with team=a
			`},
	})
}

// TestRulesOfPeers shows the match of each kind of peer.
func TestRulesOfPeers(t *testing.T) {
	rendered(t, true, []renderCase{
		{"pods_of_the_own_namespace", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			S1 is a set in a namespace: pods with app=client in shop
			`},
		{"all_pods_of_the_own_namespace", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}`, `
			egress 1: -m set --match-set S1 dst
			S1 is a set in a namespace: pods in shop
			`},
		{"namespaces_are_a_list", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			S1 is a list of namespaces: pods in namespaces with team=a
			`},
		{"all_namespaces_are_a_list", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			S1 is a list of namespaces: pods in all namespaces
			`},
		{"pods_of_namespaces_are_a_set", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}},
			podSelector: {matchLabels: {app: client}}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			S1 is a set across namespaces: pods with app=client in namespaces with team=a
			`},
		{"blocks_are_a_set_of_each_family", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [
			{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {ipBlock: {cidr: "2001:db8::/32"}}, {ipBlock: {cidr: 192.0.2.0/24}}]}]}`, `
			IPv4 ingress 1: -m set --match-set S3 dst -m set --match-set S1 src
			IPv6 ingress 1: -m set --match-set S3 dst -m set --match-set S2 src
			S1 is IPv4 [10.0.0.0/8 !10.1.0.0/16 192.0.2.0/24]: 2 address blocks
			S2 is IPv6 [2001:db8::/32]: 2001:db8::/32
			S3 is the set of the target: local pods with app=web in shop
			`},
		{"everybody_by_two_halves", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`, `
			IPv4 ingress 1: -m set --match-set S1 src
			S1 is IPv4 [0.0.0.0/1 128.0.0.0/1]: 0.0.0.0/0
			`},
		{"peers_that_match_no_pod_are_not_all_pods", `{podSelector: {}, ingress: [{from: [{}, {podSelector: {matchLabels: {app: "a b"}}}]}]}`, ""},
		{"each_peer_with_each_port", `{podSelector: {}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}],
			ports: [{port: 1}, {port: 1, protocol: UDP}]}]}`, `
			ingress 1: -p tcp -m tcp --dport 1 -m set --match-set S2 src
			ingress 1: -p udp -m udp --dport 1 -m set --match-set S2 src
			IPv4 ingress 1: -p tcp -m tcp --dport 1 -m set --match-set S1 src
			IPv4 ingress 1: -p udp -m udp --dport 1 -m set --match-set S1 src
			S1 is IPv4 [10.0.0.0/8]: 10.0.0.0/8
			S2 is a set in a namespace: pods in shop
			`},
		{"rules_that_name_the_same_share_a_set", `{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}]},
			{from: [{podSelector: {}}], ports: [{port: 1}]}],
			egress: [{to: [{podSelector: {}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			ingress 2: -p tcp -m tcp --dport 1 -m set --match-set S1 src
			egress 1: -m set --match-set S1 dst
			S1 is a set in a namespace: pods in shop
			`},
	})
}

// TestRulesOfManyNamespaces shows that namespaces that are too many for a list are one set of all their pods.
func TestRulesOfManyNamespaces(t *testing.T) {
	rendered(t, false, []renderCase{
		{"namespaces", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			S1 is a set across namespaces: pods in namespaces with team=a
			`},
		{"all_namespaces", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}`, `
			egress 1: -m set --match-set S1 dst
			S1 is a set across namespaces: pods in all namespaces
			`},
		{"the_own_namespace_is_never_too_many", `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`, `
			ingress 1: -m set --match-set S1 src
			S1 is a set in a namespace: pods in shop
			`},
	})
	for text, want := range map[string]string{"team=a": "team=a", "": ""} {
		asked := ""
		render(t, `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {`+strings.Replace(text, "=", ": ", 1)+`}}}]}]}`,
			func(s labels.Selector) bool { asked = s.String(); return true })
		if asked != want {
			t.Errorf("it is asked whether the namespaces with %q are a list, not those with %q", asked, want)
		}
	}
}

// TestManyPeersWithManyPorts shows that peers whose rules with the ports would be too many become one list of their
// sets, which holds no other list.
func TestManyPeersWithManyPorts(t *testing.T) {
	spec := func(section, peers string, ports int) string {
		text := `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ` + section + `: [{` + peers + `: [
			{podSelector: {matchLabels: {app: a}}}, {namespaceSelector: {matchLabels: {team: a}}}, {ipBlock: {cidr: 10.0.0.0/8}},
			{ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: 53, protocol: UDP}`
		for i := range ports - 1 {
			text += fmt.Sprintf(", {port: n-%02d}", i)
		}
		return text + "]}]}"
	}
	for _, c := range []renderCase{
		{"ingress", spec("ingress", "from", 65), `
			ingress 1: -p tcp -m set --match-set S6 dst,dst -m set --match-set S5 src
			ingress 1: -p udp -m udp --dport 53 -m set --match-set S70 dst -m set --match-set S5 src
			S1 is a set in a namespace: pods with app=a in shop
			S2 is a set across namespaces: pods in namespaces with team=a
			S3 is IPv4 [10.0.0.0/8]: 10.0.0.0/8
			S4 is IPv6 [2001:db8::/32]: 2001:db8::/32
			S5 is a list of S1 S2 S3 S4: 4 peers of shop/p
			S6 is the set of the target: port n-00/tcp of local pods with app=web in shop
			S70 is the set of the target: local pods with app=web in shop
			`},
		{"egress", spec("egress", "to", 65), `
			egress 1: -p tcp -m set --match-set S6 src -m set --match-set S7 dst,dst -m set --match-set S5 dst
			egress 1: -p udp -m udp --dport 53 -m set --match-set S6 src -m set --match-set S5 dst
			S1 is a set in a namespace: pods with app=a in shop
			S2 is a set across namespaces: pods in namespaces with team=a
			S3 is IPv4 [10.0.0.0/8]: 10.0.0.0/8
			S4 is IPv6 [2001:db8::/32]: 2001:db8::/32
			S5 is a list of S1 S2 S3 S4: 4 peers of shop/p
			S6 is the set of the target: local pods with app=web in shop
			S7 is a set across namespaces: port n-00/tcp of pods in all namespaces
			`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := render(t, c.spec, func(labels.Selector) bool { return true })
			compare(t, c.want, fold(got))
		})
	}
	t.Run("not_quite_too_many", func(t *testing.T) {
		got := render(t, spec("ingress", "from", 64), func(labels.Selector) bool { return true })
		if strings.Contains(got, "peers of") || strings.Count(got, "ingress 1: ") != 4*64 {
			t.Errorf("64 ports and 4 peers are rendered as\n%s", fold(got))
		}
	})
}

// fold leaves out lines that differ from the one before only in numbers.
func fold(text string) string {
	number := regexp.MustCompile(`\d+`)
	var out []string
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		if shape := number.ReplaceAllString(line, ""); line == "" || shape != last {
			out, last = append(out, line), shape
		}
	}
	return strings.Join(out, "\n")
}
