package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
)

// TestWhatIsNotKnownFailsClosed shows what is said of a rule that cannot be enforced as it is written, and that it
// matches nothing if it accepts and denies everything else (S89), whatever its other peers and protocols. Other rules
// of the policy are enforced.
func TestWhatIsNotKnownFailsClosed(t *testing.T) {
	const anybody, sound = "to: [{namespaces: {}}]", "{action: Pass, to: [{namespaces: {}}]}"
	for _, c := range []struct{ name, rule, want string }{
		{"a peer of no kind", `to: [{}]`, "to[0]: it is of no known kind"},
		{"among others", `to: [{namespaces: {}}, {}, {networks: [10.0.0.0/8]}], protocols: [{tcp: {}}]`, "to[1]: it is of no known kind"},
		{"empty networks", `to: [{networks: []}]`, "to[0]: it is of no known kind"},
		{"a name of one label", `to: [{namespaces: {}}, {domainNames: [example.com, com]}]`, `to[1]: domainNames[1]: "com" is no domain name`},
		{"a wildcard inside", `to: [{domainNames: [a.*.com]}]`, `to[0]: domainNames[0]: "a.*.com" is no domain name`},
		{"domain names and networks", `to: [{domainNames: [example.com], networks: [10.0.0.0/8]}]`, "to[0]: it is of several kinds"},
		{"namespaces and pods", `to: [{namespaces: {}, pods: {podSelector: {}}}]`, "to[0]: it is of several kinds"},
		{"pods and networks", `to: [{pods: {podSelector: {}}, networks: [10.0.0.0/8]}]`, "to[0]: it is of several kinds"},
		{"namespaces and domain names", `to: [{namespaces: {}, domainNames: [example.com]}]`, "to[0]: it is of several kinds"},
		{"nodes and networks", `to: [{nodes: {}, networks: [10.0.0.0/8]}]`, "to[0]: it is of several kinds"},
		{"no peers", `to: []`, "spec.egress[1]: it has no peers"},
		{"peers that are not there", `protocols: [{tcp: {}}]`, "spec.egress[1]: it has no peers"},
		{"namespaces by an unknown operator", `to: [{namespaces: {matchExpressions: [{key: a, operator: Is}]}}]`,
			`to[0]: namespaces: matchExpressions[0]: "Is" is no operator`},
		{"namespaces by no key", `to: [{namespaces: {matchLabels: {"a b": x}}}]`, `to[0]: namespaces: matchLabels: key: Invalid value: "a b"`},
		{"pods of namespaces by an unknown operator", `to: [{pods: {podSelector: {}, namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}}}]`,
			`to[0]: pods.namespaceSelector: matchExpressions[0]: "Is" is no operator`},
		{"pods by an unknown operator", `to: [{pods: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}}]`,
			`to[0]: pods.podSelector: matchExpressions[0]: "Is" is no operator`},
		{"pods by an operator without values", `to: [{pods: {podSelector: {matchExpressions: [{key: a, operator: In}]}}}]`,
			"to[0]: pods.podSelector: matchExpressions[0]: values"},
		{"an address", `to: [{networks: [10.0.0.0/8, 192.0.2.1]}]`, `to[0]: networks[1]: "192.0.2.1" is no CIDR`},
		{"a mapped network", `to: [{networks: ["::ffff:10.0.0.0/104"]}]`, "is an IPv4 address in the form of an IPv6 one"},
		{"one that is mapped in its host bits", `to: [{networks: ["::ffff:10.0.0.0/8"]}]`, "is an IPv4 address in the form of an IPv6 one"},
		{"leading zeros of an address", `to: [{networks: [010.0.0.0/8]}]`, `to[0]: networks[0]: "010.0.0.0/8" is no CIDR`},
		{"leading zeros of a length", `to: [{networks: [10.0.0.0/08]}]`, `to[0]: networks[0]: "10.0.0.0/08" is no CIDR`},
		{"an empty network", `to: [{networks: [""]}]`, `to[0]: networks[0]: "" is no CIDR`},
		{"a value that no label can have", `to: [{namespaces: {matchLabels: {a: b, c: "d e"}}}]`,
			`to[0]: namespaces: matchLabels[c]: no label can have the value "d e"`},
		{"such a value and another", `to: [{pods: {podSelector: {matchExpressions: [{key: a, operator: In, values: [b, "c d"]}]}}}]`,
			`to[0]: pods.podSelector: matchExpressions[0]: no label can have the value "c d"`},
		{"not such a value", `to: [{pods: {podSelector: {}, namespaceSelector: {matchExpressions: [{key: a, operator: NotIn, values: ["b c"]}]}}}]`,
			`to[0]: pods.namespaceSelector: matchExpressions[0]: no label can have the value "b c"`},
		{"a protocol of no kind", anybody + `, protocols: [{tcp: {}}, {}]`, "protocols[1]: it is of no known kind"},
		{"two protocols", anybody + `, protocols: [{tcp: {}, udp: {}}]`, "protocols[0]: it is of several kinds"},
		{"a protocol and a name", anybody + `, protocols: [{tcp: {}, destinationNamedPort: web}]`, "protocols[0]: it is of several kinds"},
		{"a number and a range", anybody + `, protocols: [{tcp: {destinationPort: {number: 80, range: {start: 80, end: 90}}}}]`,
			"protocols[0]: destinationPort: both a number and a range are set"},
		{"a range of one port", anybody + `, protocols: [{tcp: {destinationPort: {range: {start: 80, end: 80}}}}]`,
			"or the range ends where it starts"},
		{"neither number nor range", anybody + `, protocols: [{tcp: {destinationPort: {}}}]`,
			"protocols[0]: destinationPort: 0 to 0 is no range within 1 to 65535"},
		{"port 0", anybody + `, protocols: [{udp: {destinationPort: {number: 0}}}]`,
			"protocols[0]: destinationPort: 0 to 0 is no range within 1 to 65535"},
		{"a negative port", anybody + `, protocols: [{udp: {destinationPort: {number: -1}}}]`, "-1 to -1 is no range"},
		{"port 65536", anybody + `, protocols: [{sctp: {destinationPort: {number: 65536}}}]`, "65536 to 65536 is no range"},
		{"a range from 0", anybody + `, protocols: [{tcp: {destinationPort: {range: {start: 0, end: 9}}}}]`, "0 to 9 is no range"},
		{"a range to 65536", anybody + `, protocols: [{tcp: {destinationPort: {range: {start: 9, end: 65536}}}}]`, "9 to 65536 is no range"},
		{"a range in reverse", anybody + `, protocols: [{tcp: {destinationPort: {range: {start: 9, end: 8}}}}]`, "9 to 8 is no range"},
		{"a named port without a name", anybody + `, protocols: [{destinationNamedPort: ""}]`, "protocols[0]: it is of no known kind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for action, want := range map[string]string{"Accept": openFails, "Deny": denyFails, "Pass": denyFails} {
				odd := `{name: odd, action: ` + action + `, ` + c.rule + `}`
				p := compiledCluster(t, `{tier: Admin, subject: {namespaces: {}}, egress: [`+sound+`, `+odd+`, `+sound+`]}`)
				if p.Invalid == nil || !strings.HasPrefix(p.Invalid.Error(), "spec.egress[1]: ") || !strings.Contains(p.Invalid.Error(), c.want) {
					t.Errorf("%s: said %q, want %q", action, fmt.Sprint(p.Invalid), c.want)
				}
				rules := p.Rules[npc.Egress]
				if p.Inert || len(rules) != 3 || rules[0].text() != "Pass <> by everything" || rules[2].text() != rules[0].text() {
					t.Fatalf("%s: it has the rules %v", action, rules)
				}
				if got := rules[1].text(); got != want || rules[1].Name != "odd" {
					t.Errorf("%s: the rule %q is %s, want %s", action, rules[1].Name, got, want)
				}
			}
		})
	}
}

// TestDomainNames shows that rules of the Admin tier that accept may have domain names, which become one peer, and that
// others fail closed (S89, S108).
func TestDomainNames(t *testing.T) {
	for _, c := range []struct{ tier, action, to, want string }{
		{"Admin", "Accept", `{domainNames: [www.Example.com, "*.example.com"]}`, "Accept *.example.com+www.example.com by everything"},
		{"Admin", "Accept", `{domainNames: [b.org]}, {nodes: {}}, {domainNames: [a.org., b.org]}`, "Accept nodes <>, a.org+b.org by everything"},
		{"Admin", "Deny", `{domainNames: [b.org]}`, denyFails},
		{"Admin", "Pass", `{domainNames: [b.org]}, {nodes: {}}`, denyFails},
		{"Baseline", "Accept", `{domainNames: [b.org]}, {nodes: {}}`, openFails},
		{"Baseline", "Deny", `{domainNames: [b.org]}`, denyFails},
	} {
		p := compiledCluster(t, `{tier: `+c.tier+`, subject: {namespaces: {}}, egress: [{action: `+c.action+`, to: [`+c.to+`]}]}`)
		if got := p.Rules[npc.Egress][0].text(); got != c.want {
			t.Errorf("%s %s to %s: the rule is %s, want %s", c.tier, c.action, c.to, got, c.want)
		}
		valid := c.want != denyFails && c.want != openFails
		if !valid && !strings.Contains(fmt.Sprint(p.Invalid), "only rules of the Admin tier that accept") || valid && p.Invalid != nil {
			t.Errorf("%s %s to %s: said %v", c.tier, c.action, c.to, p.Invalid)
		}
	}
}

// TestUnknownActionsFailClosed shows that only a rule that surely accepts matches nothing: any other denies everything
// (S89).
func TestUnknownActionsFailClosed(t *testing.T) {
	for action, want := range map[string]string{
		"": `action: "" is none of Accept, Deny and Pass`, "accept": `action: "accept" is none of`, "Allow": `action: "Allow" is none of`,
		"Log": `action: "Log" is none of`,
	} {
		p := compiledCluster(t, `{tier: Admin, subject: {namespaces: {}}, ingress: [{action: "`+action+`", from: [{pods: {podSelector: {}}}]}]}`)
		if got := p.Rules[npc.Ingress][0].text(); got != denyFails {
			t.Errorf("%q: the rule is %s", action, got)
		}
		if p.Invalid == nil || p.Inert || !strings.HasPrefix(p.Invalid.Error(), "spec.ingress[0]: "+want) {
			t.Errorf("%q: said %v, want %s", action, p.Invalid, want)
		}
	}
}

// TestTheFirstErrorIsReported shows that the rule which comes first in the object is named, and that all others fail
// closed, too.
func TestTheFirstErrorIsReported(t *testing.T) {
	p := compiledCluster(t, `{tier: Admin, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{}]}],
		egress: [{action: Pass, to: [{domainNames: [example.com]}]}, {action: Accept, to: [{}]}]}`)
	if got, want := fmt.Sprint(p.Invalid), "spec.ingress[1]: from[0]: it is of no known kind"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	var got []string
	for _, of := range p.Rules {
		for _, r := range of {
			got = append(got, r.text())
		}
	}
	if want := []string{"Accept <> by everything", denyFails, denyFails, openFails}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the rules are %q, want %q", got, want)
	}
}

// FuzzCompileCluster compiles whatever JSON can be decoded. It compiles each rule alone, too, which shows the rules
// that fail.
func FuzzCompileCluster(f *testing.F) {
	for _, seed := range []string{
		`{"tier": "Admin", "subject": {"namespaces": {}}, "ingress": [{"action": "Accept", "from": [{"namespaces": {}}]}]}`,
		`{"tier": "Baseline", "priority": -1, "subject": {"pods": {"podSelector": {}}}, "egress": [{"action": "Deny", "to": [{"nodes": {}},
			{"networks": ["10.0.0.1/8", "::/0"]}], "protocols": [{"tcp": {"destinationPort": {"range": {"start": 1, "end": 2}}}}]}]}`,
		`{"tier": "Admin", "subject": {"namespaces": {"matchLabels": {"a": "b c"}}}, "egress": [{"action": "Pass", "to": [{"pods": {
			"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "\n"]}]}}}],
			"protocols": [{"destinationNamedPort": "web"}, {"udp": {"destinationPort": {"number": 53}}}, {"sctp": {}}]}]}`,
		`{"tier": "Admin", "subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": [{"namespaces": {"matchLabels": {"\n": ""}}}]}],
			"egress": [{"action": "Accept", "to": [{"domainNames": ["a.b"], "networks": ["::ffff:1.2.3.4/128"]}]}, {"action": "\n"}, {"to": null}]}`,
		`{"tier": "Other", "subject": {}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o := &v1alpha2.ClusterNetworkPolicy{}
		if json.Unmarshal(text, &o.Spec) != nil {
			return
		}
		p := CompileCluster(o)
		if p.Inert {
			if p.Invalid == nil || len(p.Rules[npc.Ingress])+len(p.Rules[npc.Egress]) > 0 {
				t.Fatalf("it decides nothing and has the rules %v, and the error %v", p.Rules, p.Invalid)
			}
			return
		}
		if len(p.Rules[npc.Ingress]) != len(o.Spec.Ingress) || len(p.Rules[npc.Egress]) != len(o.Spec.Egress) {
			t.Fatalf("its rules are %d and %d", len(p.Rules[npc.Ingress]), len(p.Rules[npc.Egress]))
		}
		failed := false
		for i, r := range o.Spec.Ingress {
			alone := v1alpha2.ClusterNetworkPolicySpec{Ingress: o.Spec.Ingress[i : i+1]}
			failed = failsAlone(t, o.Spec, alone, p.Rules[npc.Ingress][i], r.Action) || failed
		}
		for i, r := range o.Spec.Egress {
			alone := v1alpha2.ClusterNetworkPolicySpec{Egress: o.Spec.Egress[i : i+1]}
			failed = failsAlone(t, o.Spec, alone, p.Rules[npc.Egress][i], r.Action) || failed
		}
		if failed != (p.Invalid != nil) {
			t.Fatalf("rules fail: %t, but the error is %v", failed, p.Invalid)
		}
		if failed && (strings.ContainsAny(p.Invalid.Error(), "\n\r") || !strings.HasPrefix(p.Invalid.Error(), "spec.")) {
			t.Fatalf("said %q", p.Invalid)
		}
	})
}

// failsAlone compiles a policy with one of the rules of another, and reports whether the rule fails. It has to be the
// same rule as among the others.
func failsAlone(t *testing.T, of, alone v1alpha2.ClusterNetworkPolicySpec, got ClusterRule, action v1alpha2.ClusterNetworkPolicyRuleAction) bool {
	t.Helper()
	alone.Tier, alone.Subject = of.Tier, of.Subject
	p := CompileCluster(&v1alpha2.ClusterNetworkPolicy{Spec: alone})
	r := append(p.Rules[npc.Ingress], p.Rules[npc.Egress]...)[0]
	if r.text() != got.text() || r.Name != got.Name {
		t.Fatalf("alone the rule is %s, among others %s", r.text(), got.text())
	}
	if p.Invalid == nil {
		if r.AnyPeer || r.Action.String() != string(action) {
			t.Fatalf("the rule with the action %q is %s", action, r.text())
		}
		return false
	}
	want := denyFails
	if action == v1alpha2.ClusterNetworkPolicyRuleActionAccept {
		want = openFails
	}
	if r.text() != want {
		t.Fatalf("the rule fails (%v), and is %s", p.Invalid, r.text())
	}
	return true
}
