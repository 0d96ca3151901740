package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// compiledCluster compiles a ClusterNetworkPolicy, given by its spec as YAML.
func compiledCluster(t *testing.T, spec string) Cluster {
	t.Helper()
	return CompileCluster(fixture.ClusterPolicy(t, "p", spec))
}

// text returns a rule as: Accept PEER, PEER by PORTS, PORTS.
func (r ClusterRule) text() string {
	var peers, ports []string
	if r.AnyPeer {
		peers = append(peers, "anybody")
	}
	for _, p := range r.Peers {
		switch {
		case p.Block != nil:
			peers = append(peers, fmt.Sprint(p.Block.Entries))
		case p.Names != nil:
			peers = append(peers, strings.Join(p.Names, "+"))
		case p.Nodes != nil:
			peers = append(peers, "nodes <"+p.Nodes.String()+">")
		case p.Pods.String() == "":
			peers = append(peers, "<"+p.Namespaces.String()+">")
		default:
			peers = append(peers, "<"+p.Namespaces.String()+"/"+p.Pods.String()+">")
		}
	}
	if r.AnyPort {
		ports = append(ports, "everything")
	}
	for _, p := range r.Ports {
		ports = append(ports, strings.TrimSpace(p.Match()+" "+p.Name))
	}
	if len(peers) == 0 {
		peers = []string{"none"}
	}
	if len(ports) == 0 {
		ports = []string{"nothing"}
	}
	return r.Action.String() + " " + strings.Join(peers, ", ") + " by " + strings.Join(ports, ", ")
}

// What failing closed makes of rules: one that accepts matches nothing, another denies everything.
const (
	openFails, denyFails = "Accept none by nothing", "Deny anybody by everything"
)

// TestClusterPolicies shows what a policy is besides its rules: its tier, its priority and its subject (S80, S82, S83).
func TestClusterPolicies(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"Admin", `{tier: Admin, priority: 7, subject: {namespaces: {matchLabels: {team: a}}}}`, "Admin 7 <team=a/>"},
		{"Baseline", `{tier: Baseline, priority: 1000, subject: {namespaces: {}}}`, "Baseline 1000 </>"},
		{"pods of all namespaces", `{tier: Admin, subject: {pods: {podSelector: {matchLabels: {app: web}}}}}`, "Admin 0 </app=web>"},
		{"pods of some", `{tier: Admin, subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}}`,
			"Admin 0 <team=a/app=web>"},
		{"a label that no namespace can have", `{tier: Admin, subject: {namespaces: {matchLabels: {team: "a b"}}}}`,
			`inert: spec.subject: namespaces: matchLabels[team]: no label can have the value "a b"`},
		{"no tier", `{subject: {namespaces: {}}}`, `inert: spec.tier: "" is neither Admin nor Baseline`},
		{"a tier in another case", `{tier: admin, subject: {namespaces: {}}}`, `inert: spec.tier: "admin" is neither Admin nor Baseline`},
		{"no subject", `{tier: Admin, subject: {}}`, "inert: spec.subject: it has not exactly one of namespaces and pods"},
		{"two subjects", `{tier: Admin, subject: {namespaces: {}, pods: {podSelector: {}}}}`,
			"inert: spec.subject: it has not exactly one of namespaces and pods"},
		{"namespaces by an unknown operator", `{tier: Admin, subject: {namespaces: {matchExpressions: [{key: a, operator: Is}]}}}`,
			`inert: spec.subject: namespaces: matchExpressions[0]: "Is" is no operator`},
		{"pods of namespaces by an unknown operator", `{tier: Admin, subject: {pods: {podSelector: {},
			namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}}}}`,
			`inert: spec.subject: pods.namespaceSelector: matchExpressions[0]: "Is" is no operator`},
		{"pods by an unknown operator", `{tier: Admin, subject: {pods: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}}}`,
			`inert: spec.subject: pods.podSelector: matchExpressions[0]: "Is" is no operator`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compiledCluster(t, strings.TrimSuffix(c.spec, "}")+`, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`)
			got := fmt.Sprintf("%s %d <%s/%s>", p.Tier, p.Priority, p.Namespaces, p.Pods)
			rules := 1
			if p.Inert {
				got, rules = fmt.Sprintf("inert: %v", p.Invalid), 0
			}
			if got != c.want {
				t.Errorf("it is %s\nwant  %s", got, c.want)
			}
			if len(p.Rules[npc.Ingress]) != rules || p.Inert != (p.Invalid != nil) {
				t.Errorf("it has the rules %v, and the error %v", p.Rules, p.Invalid)
			}
		})
	}
}

// TestClusterRules shows what rules are compiled to, in the order of the object (S82, S84, S85).
func TestClusterRules(t *testing.T) {
	for _, c := range []struct {
		name, rule string // of egress; those of ingress have the peers of pods alone
		want       string
	}{
		{"Accept", `action: Accept, to: [{namespaces: {}}]`, "Accept <> by everything"},
		{"Deny", `action: Deny, to: [{namespaces: {}}]`, "Deny <> by everything"},
		{"Pass", `action: Pass, to: [{namespaces: {}}]`, "Pass <> by everything"},
		{"namespaces", `action: Deny, to: [{namespaces: {matchLabels: {team: a}}}]`, "Deny <team=a> by everything"},
		{"pods", `action: Deny, to: [{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}]`,
			"Deny <team=a/app=web> by everything"},
		{"pods of all namespaces", `action: Deny, to: [{pods: {podSelector: {matchLabels: {app: web}}}}]`, "Deny </app=web> by everything"},
		{"all pods", `action: Deny, to: [{pods: {podSelector: {}}}]`, "Deny <> by everything"},
		{"several peers", `action: Deny, to: [{namespaces: {matchLabels: {team: b}}}, {pods: {podSelector: {matchLabels: {app: web}}}}]`,
			"Deny <team=b>, </app=web> by everything"},
		{"networks", `action: Deny, to: [{networks: [10.0.0.0/8, 192.0.2.7/32]}]`, "Deny [10.0.0.0/8 192.0.2.7/32] by everything"},
		{"networks of both families, in two peers", `action: Deny, to: [{networks: ["fd00::/8", 10.0.0.0/8]}, {networks: ["2001:db8::/32"]}]`,
			"Deny [10.0.0.0/8], [2001:db8::/32 fd00::/8] by everything"},
		{"host bits of networks", `action: Deny, to: [{networks: [10.1.2.3/8, "2001:db8::1/32"]}]`,
			"Deny [10.0.0.0/8], [2001:db8::/32] by everything"},
		{"all addresses", `action: Deny, to: [{networks: [0.0.0.0/0]}]`, "Deny [0.0.0.0/1 128.0.0.0/1] by everything"},
		{"no protocols", `action: Deny, to: [{namespaces: {}}], protocols: []`, "Deny <> by everything"},
		{"all of a protocol", `action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {}}]`, "Deny <> by -p tcp"},
		{"a number", `action: Deny, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]`,
			"Deny <> by -p udp -m udp --dport 53"},
		{"a range", `action: Deny, to: [{namespaces: {}}], protocols: [{sctp: {destinationPort: {range: {start: 1, end: 65535}}}}]`,
			"Deny <> by -p sctp -m sctp --dport 1:65535"},
		{"several", `action: Deny, to: [{namespaces: {}}], protocols: [{udp: {}}, {tcp: {destinationPort: {number: 443}}},
			{tcp: {destinationPort: {number: 80}}}, {sctp: {}}]`,
			"Deny <> by -p tcp -m multiport --dports 80,443, -p udp, -p sctp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			const other = `{name: first, action: Pass, SIDE: [{namespaces: {}}]}`
			rule := `{name: no one, ` + strings.Replace(c.rule, "to:", "SIDE:", 1) + `}`
			spec := `{tier: Admin, subject: {namespaces: {}}, DIRECTION: [` + other + `, ` + rule + `]}`
			for _, d := range npc.Directions {
				side := map[npc.Direction]string{npc.Ingress: "from", npc.Egress: "to"}[d]
				if d == npc.Ingress && strings.Contains(spec, "networks") {
					continue
				}
				p := compiledCluster(t, strings.NewReplacer("DIRECTION", d.String(), "SIDE", side).Replace(spec))
				if p.Invalid != nil || len(p.Rules[d]) != 2 || len(p.Rules[1-d]) != 0 {
					t.Fatalf("%s: it has the rules %v, and the error %v", d, p.Rules, p.Invalid)
				}
				first, second := p.Rules[d][0], p.Rules[d][1]
				if first.Name != "first" || first.Action != Pass || second.Name != "no one" {
					t.Errorf("%s: the rules are not in their order: %s %s, %s", d, first.Name, first.Action, second.Name)
				}
				if got := second.text(); got != c.want {
					t.Errorf("%s: the rule is %s\nwant %s", d, got, c.want)
				}
			}
		})
	}
}

// TestS86_NamesThatNoPortCanHave match nothing, for no pod has such a port. They are no mistake of the rule, whose
// other ports count.
func TestS86_NamesThatNoPortCanHave(t *testing.T) {
	for _, name := range []string{"80", "Web", "a_b", "-", "sixteen-letters-", "a\nb"} {
		for action, actionText := range map[string]string{"Accept": "Accept <> by ", "Deny": "Deny <> by ", "Pass": "Pass <> by "} {
			for others, want := range map[string]string{"": "nothing", ", {udp: {}}": "-p udp",
				", {destinationNamedPort: web}": "-p tcp web, -p udp web, -p sctp web"} {
				p := compiledCluster(t, fmt.Sprintf(`{tier: Admin, subject: {namespaces: {}}, ingress: [{action: %s, from: [{namespaces: {}}],
					protocols: [{destinationNamedPort: %q}%s]}]}`, action, name, others))
				if got := p.Rules[npc.Ingress][0].text(); got != actionText+want || p.Invalid != nil {
					t.Errorf("%q%s: the rule is %s, want %s; said %v", name, others, got, actionText+want, p.Invalid)
				}
				written := p.Written[npc.Ingress][0].Ports
				if len(written) == 0 || written[0].Name != name || strings.Contains(written[0].String(), "\n") {
					t.Errorf("%q: written are the ports %v", name, written)
				}
			}
		}
	}
}

// TestNamedPortsOfClusterRules shows that a named port may be of any protocol (S86).
func TestNamedPortsOfClusterRules(t *testing.T) {
	p := compiledCluster(t, `{tier: Baseline, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}],
		protocols: [{destinationNamedPort: web}, {tcp: {destinationPort: {number: 80}}}, {udp: {}}]}],
		egress: [{action: Deny, to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: dns-1}]}]}`)
	if p.Invalid != nil {
		t.Fatal(p.Invalid)
	}
	for d, want := range map[npc.Direction]string{
		npc.Ingress: "Accept <> by -p tcp -m tcp --dport 80, -p tcp web, -p udp, -p sctp web",
		npc.Egress:  "Deny [10.0.0.0/8] by -p tcp dns-1, -p udp dns-1, -p sctp dns-1",
	} {
		if got := p.Rules[d][0].text(); got != want {
			t.Errorf("%s: the rule is %s\nwant %s", d, got, want)
		}
	}
}
