package lint_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/lint"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// lintText returns the findings in manifests.
func lintText(t *testing.T, text string) []lint.Finding {
	t.Helper()
	o, n := read(t, text)
	c := cluster.New()
	o.Deliver(c)
	return lint.Run(o, c.View(), n)
}

// objects are those of testdata and policies, each as "NAMESPACE/NAME SPEC", or "NAME SPEC" for a ClusterNetworkPolicy.
func objects(t *testing.T, policies ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := string(text)
	for _, p := range policies {
		key, spec, _ := strings.Cut(p, " ")
		kind := "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: " + key + "}"
		if namespace, name, ok := strings.Cut(key, "/"); ok {
			kind = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + ", namespace: " + namespace + "}"
		}
		all += "---\n" + kind + "\nspec: " + spec + "\n"
	}
	return all
}

// TestRules has for each rule what it finds and what it does not. The page of the documentation has an example of each
// too.
func TestRules(t *testing.T) {
	const db, frontend = "shop/p {podSelector: {matchLabels: {app: db}}, ", "shop/p {podSelector: {matchLabels: {app: frontend}}, "
	for _, c := range []struct {
		name, rule string
		policies   []string
		want       string // level and message of the findings of the rule, divided by lines
	}{
		{"an empty selector", "selects-nothing", []string{"shop/p {podSelector: {}}"}, ""},
		{"a finished pod", "selects-nothing", []string{"ops/p {podSelector: {matchLabels: {app: finished}}}"},
			"warning spec.podSelector: no pod of namespace ops has app=finished"},
		{"a value like another but for digits", "selects-nothing", []string{"shop/p {podSelector: {matchLabels: {release: web-2}}}"},
			"warning spec.podSelector: no pod of namespace shop has release=web-2"},
		{"a misspelt key", "selects-nothing", []string{"shop/p {podSelector: {matchLabels: {relaese: web-1}}}"},
			"warning spec.podSelector: no pod of namespace shop has relaese=web-1; did you mean label release?"},
		{"a subject", "selects-nothing",
			[]string{"p {tier: Admin, priority: 1, subject: {pods: {podSelector: {matchLabels: {app: grafan}}}}}"},
			"warning spec.subject.pods: no pod has app=grafan in a namespace with any labels; did you mean app=grafana?"},
		{"an existing subject", "selects-nothing", []string{admin("")}, ""},
		{"all pods", "host-network-selected", []string{"ops/p {podSelector: {}}"}, ""},
		{"pods on the host", "host-network-selected", []string{"ops/p {podSelector: {matchExpressions: [{key: app, operator: Exists}]}}"},
			"note spec.podSelector: selects pod ops/exporter, on the network of its node, where policies do not apply"},
		{"a peer on the host", "peer-matches-no-pod",
			[]string{db + "ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: exporter}}}]}]}"},
			"warning spec.ingress[0].from[0]: no pod of the namespaces that it selects has app=exporter"},
		{"an existing peer", "peer-matches-no-pod",
			[]string{db + "ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: grafana}}}]}]}"}, ""},
		{"a misspelt namespace", "peer-matches-no-pod",
			[]string{db + "ingress: [{from: [{namespaceSelector: {matchLabels: {team: blu}}}]}]}"}, // too short to compare
			"note spec.ingress[0].from[0]: no namespace has team=blu"},
		{"a namespace by a label that none has", "peer-matches-no-pod",
			[]string{db + "ingress: [{from: [{namespaceSelector: {matchLabels: {name: ops}}}]}]}"},
			"warning spec.ingress[0].from[0]: no namespace has name=ops; did you mean kubernetes.io/metadata.name=ops?"},
		{"a namespace of the system", "peer-matches-no-pod",
			[]string{db + "ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]}]}"}, ""},
		{"a peer of a tier", "peer-matches-no-pod", []string{admin("egress: [{action: Deny, to: [{networks: [10.0.0.0/8, 11.0.0.0/8]}, " +
			"{pods: {podSelector: {matchLabels: {app: none}}}}]}]")},
			"warning spec.egress[0].to[1].pods: no pod of the namespaces that it selects has app=none"},
		{"one of several values", "label-typo", []string{db + "ingress: [{from: [{podSelector: " +
			"{matchExpressions: [{key: app, operator: In, values: [db, fronted]}]}}]}]}"},
			"warning spec.ingress[0].from[0].podSelector.matchExpressions[0]: nothing there has app=fronted; did you mean app=frontend?"},
		{"an existing value", "label-typo",
			[]string{"shop/p {podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [frontend]}]}}"}, ""},
		{"the namespace of another", "missing-namespace", []string{"shopp/p {podSelector: {}}", "shopp/q {podSelector: {}}"},
			"warning metadata.namespace: there is no Namespace shopp; did you mean shop?"},
		{"default", "missing-namespace", []string{"default/p {podSelector: {}}", "kube-public/p {podSelector: {}}"}, ""},
		{"another namespace", "missing-namespace",
			[]string{"elsewhere/p {podSelector: {}}"}, "note metadata.namespace: there is no Namespace elsewhere"},
		{"or is intended", "peers-split",
			[]string{db + "ingress: [{from: [{namespaceSelector: {}}, {podSelector: {matchLabels: {app: frontend}}}]}]}"}, ""},
		{"in no namespace of the other", "peers-split",
			[]string{db + "ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}, {podSelector: {matchLabels: {app: grafana}}}]}]}"}, ""},
		{"no list", "empty-list", []string{db + "ingress: [{ports: [{port: postgres}]}]}"}, ""},
		{"no ports", "empty-list", []string{db + "egress: [{to: [{podSelector: {}}], ports: []}]}"},
			"warning spec.egress[0].ports: is empty, which is every protocol and port"},
		{"with ports", "allows-all", []string{db + "ingress: [{ports: [{port: 5432}]}]}"}, ""},
		{"a named type", "rules-ignored", []string{db + "policyTypes: [Egress], egress: [{}]}"}, ""},
		{"no types", "rules-ignored", []string{db + "egress: [{}]}"}, ""},
		{"an empty list of rules", "rules-ignored", []string{db + "egress: []}"},
			"warning spec.egress: is empty and denies nothing: policyTypes do not name Egress"},
		{"ingress rules of a policy of egress", "rules-ignored",
			[]string{db + "policyTypes: [Egress], ingress: [{from: [{podSelector: {}}]}]}"},
			"error spec.ingress: has no effect: policyTypes do not name Ingress, and ingress stays free"},
		{"it does", "name-says-egress", []string{"shop/deny-egress {podSelector: {}, policyTypes: [Egress]}"}, ""},
		{"another denies egress", "deny-one-way",
			[]string{"shop/p {podSelector: {}}", "shop/q {podSelector: {}, policyTypes: [Egress]}"}, ""},
		{"by all ports", "egress-forgets-dns", []string{frontend + "egress: [{to: [{podSelector: {}}]}]}"}, ""},
		{"by a named port", "egress-forgets-dns",
			[]string{frontend + "egress: [{ports: [{port: http}]}, {ports: [{port: dns, protocol: UDP}]}]}"}, ""},
		{"by another policy", "egress-forgets-dns", []string{frontend + "egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]}",
			"shop/q {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 53, protocol: UDP}]}]}"}, ""},
		{"by a tier", "egress-forgets-dns", []string{frontend + "egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]}",
			admin("egress: [{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]}]")}, ""},
		{"no names to ask for", "egress-forgets-dns", []string{frontend + "policyTypes: [Egress], " +
			"egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 443}]}]}"}, ""},
		{"denies all", "egress-forgets-dns", []string{frontend + "policyTypes: [Egress]}"}, ""},
		{"the tier denies", "egress-forgets-dns", []string{frontend + "egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]}",
			admin("egress: [{action: Deny, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]}]")},
			"warning spec.egress: no rule allows pod shop/frontend to ask a DNS server: none is for udp/53"},
		{"domain names are no server", "egress-forgets-dns",
			[]string{frontend + "egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]}",
				admin("egress: [{action: Accept, to: [{domainNames: [example.com]}]}]")},
			"warning spec.egress: no rule allows pod shop/frontend to ask a DNS server: none is for udp/53\n" +
				"warning spec.egress: no rule allows pod shop/frontend to ask kube-dns at udp/53, " +
				"from whose answers addresses of domainNames are learned"},
		{"of the protocol", "port-name-unknown", []string{frontend + "ingress: [{ports: [{port: dns}]}]}"},
			"warning spec.ingress[0].ports[0]: no pod that receives has a port tcp/dns; udp/dns is one"},
		{"of the peers", "port-name-unknown",
			[]string{frontend + "egress: [{to: [{podSelector: {}}], ports: [{port: postgres}, {port: http}]}]}"}, ""},
		{"not of the peers", "port-name-unknown",
			[]string{frontend + "egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: http}]}]}"},
			"warning spec.egress[0].ports[0]: no pod that receives has a port tcp/http"},
		{"of pods in a block", "port-name-unknown",
			[]string{frontend + "egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: postgres}]}]}"}, ""},
		{"of a tier", "port-name-unknown",
			[]string{admin("ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: dns}, {destinationNamedPort: x}]}]")},
			"warning spec.ingress[0].protocols[1]: no pod that receives has a port x"},
		{"declared", "port-not-offered", []string{db + "ingress: [{ports: [{port: 5432}, {port: 1, endPort: 9}]}]}"}, ""},
		{"nothing is declared", "port-not-offered",
			[]string{"ops/p {podSelector: {matchLabels: {app: grafana}}, ingress: [{ports: [{port: 3000}]}]}"}, ""},
		{"of another protocol", "port-not-offered", []string{db + "ingress: [{ports: [{port: 5432, protocol: UDP}]}]}"},
			"warning spec.ingress[0].ports[0]: no container of the selected pods declares udp/5432"},
		{"all but one", "except-all",
			[]string{db + "ingress: [{from: [{ipBlock: {cidr: 'fd00::/126', except: ['fd00::/127', 'fd00::2/128']}}]}]}"}, ""},
		{"all four", "except-all",
			[]string{db + "ingress: [{from: [{ipBlock: {cidr: 'fd00::/126', except: ['fd00::3/128', 'fd00::/127', 'fd00::2/128']}}]}]}"},
			"error spec.ingress[0].from[0].ipBlock.except: leaves no address of fd00::/126"},
		{"side by side", "except-twice",
			[]string{db + "ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/28, 192.0.2.16/28]}}]}]}"}, ""},
		{"a network with pods", "block-of-pods", []string{db + "ingress: [{from: [{ipBlock: {cidr: 10.32.0.0/24}}]}]}"}, ""},
		{"a finished pod's address", "block-of-pods", []string{db + "ingress: [{from: [{ipBlock: {cidr: 10.32.0.8/32}}]}]}"}, ""},
		{"a network of a tier", "block-of-pods",
			[]string{admin("egress: [{action: Deny, to: [{networks: [192.0.2.0/24, 10.32.0.7/32]}]}]")},
			"warning spec.egress[0].to[0].networks[1]: 10.32.0.7/32 has the address of pod ops/grafana, which may change: select pods by labels"},
		{"Pass in the Admin tier", "pass-in-baseline", []string{admin("ingress: [{action: Pass, from: [{namespaces: {}}]}]")}, ""},
		{"an unknown kind of peer", "invalid-policy", []string{admin("ingress: [{action: Accept, from: [{namespaces: {}}]}]")}, ""},
	} {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) { expect(t, lintText(t, objects(t, c.policies...)), c.rule, c.want) })
	}
}

// admin returns a ClusterNetworkPolicy of the Admin tier.
func admin(rules string) string {
	return "p {tier: Admin, priority: 1, subject: {namespaces: {}}, " + rules + "}"
}

// expect compares the findings of a rule.
func expect(t *testing.T, found []lint.Finding, rule, want string) {
	t.Helper()
	var got []string
	for _, f := range found {
		if f.Rule == rule {
			got = append(got, fmt.Sprintf("%s %s", f.Level, f.Message))
		}
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s:\n%s\nwant:\n%s\nall: %+v", rule, text, want, found)
	}
}

// TestCovered has what covers rules and policies, and what does not.
func TestCovered(t *testing.T) {
	const fromFrontend = "from: [{podSelector: {matchLabels: {app: frontend}}}]"
	policy := func(name, selector, rules string) string {
		return "shop/" + name + " {podSelector: " + selector + ", policyTypes: [Ingress], ingress: [" + rules + "]}"
	}
	const all, db = "{}", "{matchLabels: {app: db}}"
	for _, c := range []struct {
		name, rule string
		policies   []string
		want       string
	}{
		{"the same twice", "rule-covered", []string{policy("p", db, "{"+fromFrontend+"}, {"+fromFrontend+"}")},
			"warning spec.ingress[1]: allows nothing more than ingress[0] of shop/p"},
		{"fewer ports", "rule-covered",
			[]string{policy("p", db, "{"+fromFrontend+", ports: [{port: 80}]}, {"+fromFrontend+", ports: [{port: 1, endPort: 100}]}")},
			"warning spec.ingress[0]: allows nothing more than ingress[1] of shop/p"},
		{"a name is no number", "rule-covered",
			[]string{policy("p", db, "{"+fromFrontend+", ports: [{port: postgres}]}, {"+fromFrontend+", ports: [{port: 5432}]}")}, ""},
		{"a name is a port of its protocol", "rule-covered",
			[]string{policy("p", db, "{"+fromFrontend+", ports: [{port: postgres}]}, {"+fromFrontend+", ports: [{protocol: TCP}]}")},
			"warning spec.ingress[0]: allows nothing more than ingress[1] of shop/p"},
		{"another protocol", "rule-covered",
			[]string{policy("p", db, "{"+fromFrontend+", ports: [{port: 53, protocol: UDP}]}, {"+fromFrontend+", ports: [{protocol: TCP}]}")}, ""},
		{"by two together", "rule-covered",
			[]string{policy("p", db, "{"+fromFrontend+", ports: [{port: 80}]}, {"+fromFrontend+", ports: [{port: 81}]}, {"+
				fromFrontend+", ports: [{port: 80}, {port: 81}]}")},
			"warning spec.ingress[2]: allows nothing more than ingress[0] of shop/p, ingress[1] of shop/p"},
		{"by one of two", "rule-covered", []string{policy("p", db, "{"+fromFrontend+", ports: [{port: 80}]}, {"+
			fromFrontend+", ports: [{port: 80}, {port: 81}]}")}, "warning spec.ingress[0]: allows nothing more than ingress[1] of shop/p"},
		{"by a policy for more pods", "rule-covered",
			[]string{policy("p", db, "{"+fromFrontend+"}, {ports: [{port: 1}]}"), policy("q", all, "{"+fromFrontend+"}")},
			"note spec.ingress[0]: allows nothing more than ingress[0] of shop/q"},
		{"by a policy for fewer pods", "rule-covered",
			[]string{policy("p", all, "{"+fromFrontend+"}, {ports: [{port: 1}]}"), policy("q", db, "{"+fromFrontend+"}")}, ""},
		{"by a policy of another namespace", "rule-covered", []string{policy("p", all, "{"+fromFrontend+"}"),
			"ops/q {podSelector: {}, ingress: [{" + fromFrontend + "}]}"}, ""},
		{"addresses are no pods", "rule-covered",
			[]string{policy("p", db, "{from: [{podSelector: {}}]}, {from: [{ipBlock: {cidr: 0.0.0.0/0}}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}")},
			"warning spec.ingress[2]: allows nothing more than ingress[1] of shop/p"},
		{"an except", "rule-covered", []string{policy("p", db, "{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}, "+
			"{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.1.0.0/16]}}]}, {from: [{ipBlock: {cidr: 10.0.0.0/9, except: [10.1.0.0/15]}}]}")},
			"warning spec.ingress[2]: allows nothing more than ingress[0] of shop/p"},
		{"the own namespace by its name", "rule-covered", []string{policy("p", db,
			"{from: [{podSelector: {}}]}, {from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}")},
			"warning spec.ingress[1]: allows nothing more than ingress[0] of shop/p"},
		{"labels of a namespace may change", "rule-covered",
			[]string{policy("p", db, "{from: [{podSelector: {}}]}, {from: [{namespaceSelector: {matchLabels: {team: red}}}]}")}, ""},
		{"a default deny stays", "policy-covered", []string{policy("p", db, "{"+fromFrontend+"}"), policy("deny", all, "")}, ""},
		{"a deny alongside a default deny", "policy-covered", []string{policy("p", db, ""), policy("deny", all, "")},
			"note isolates and allows nothing more than shop/deny"},
		{"of two the last goes", "policy-covered", []string{policy("p", db, "{"+fromFrontend+"}"), policy("q", db, "{"+fromFrontend+"}")},
			"note isolates and allows nothing more than shop/p"},
		{"the other direction", "policy-covered",
			[]string{"shop/p {podSelector: {}, policyTypes: [Ingress, Egress]}", "shop/q {podSelector: {}, policyTypes: [Ingress]}"},
			"note isolates and allows nothing more than shop/p"},
		{"the direction that no other isolates", "policy-covered",
			[]string{"shop/p {podSelector: {}, policyTypes: [Ingress]}", "shop/q {podSelector: {}, policyTypes: [Ingress, Egress]}"},
			"note isolates and allows nothing more than shop/q"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, lintText(t, objects(t, c.policies...)), c.rule, c.want) })
	}
}

// TestTiers has rules of tiers that are never asked, or contradict each other, and those that are not and do not.
func TestTiers(t *testing.T) {
	policy := func(name string, priority int, subject, rules string) string {
		return fmt.Sprintf("%s {tier: Admin, priority: %d, subject: {namespaces: %s}, ingress: [%s]}", name, priority, subject, rules)
	}
	const deny, accept, team = "{action: Deny, from: [{namespaces: {}}]}", "{action: Accept, from: [{namespaces: {}}]}", "{matchLabels: {team: red}}"
	for _, c := range []struct {
		name, rule string
		policies   []string
		want       string
	}{
		{"in one policy", "rule-unreachable",
			[]string{policy("a", 1, team, accept+", "+deny)}, "warning spec.ingress[1]: is never asked: before it comes ingress[0] of a"},
		{"of a later policy", "rule-unreachable", []string{policy("a", 1, "{}", accept), policy("b", 2, team, deny)},
			"warning spec.ingress[0]: is never asked: before it comes ingress[0] of a"},
		{"of a policy for more", "rule-unreachable", []string{policy("a", 1, team, accept), policy("b", 2, "{}", deny)}, ""},
		{"of one priority", "rule-unreachable", []string{policy("a", 1, "{}", accept), policy("b", 1, "{}", deny)}, ""},
		{"of another tier", "rule-unreachable", []string{policy("a", 1, "{}", accept),
			"b {tier: Baseline, priority: 2, subject: {namespaces: {}}, ingress: [" + deny + "]}"}, ""},
		{"contradict", "same-priority", []string{policy("a", 1, "{}", accept), policy("b", 1, team, deny)},
			"warning spec.priority: a has it too, and does Accept with ingress[0] where this does Deny with ingress[0]"},
		{"agree", "same-priority", []string{policy("a", 1, "{}", deny), policy("b", 1, team, deny)}, ""},
		{"other pods", "same-priority", []string{policy("a", 1, "{matchLabels: {team: blue}}", accept), policy("b", 1, team, deny)}, ""},
		{"other ports", "same-priority", []string{
			policy("a", 1, "{}", "{action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1}}}]}"),
			policy("b", 1, "{}", "{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 2}}}]}")}, ""},
		{"other peers", "same-priority", []string{
			policy("a", 1, "{}", "{action: Accept, from: [{namespaces: {matchLabels: {team: blue}}}]}"),
			policy("b", 1, "{}", "{action: Deny, from: [{namespaces: {matchLabels: {team: red}}}]}")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, lintText(t, objects(t, c.policies...)), c.rule, c.want) })
	}
}

// TestOddClusters lints clusters with few objects.
func TestOddClusters(t *testing.T) {
	const policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {matchLabels: {app: x}}}\n"
	for name, text := range map[string]string{
		"policies alone": policy,
		"one pod":        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: x}}\n---\n" + policy,
		"no policy":      "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
	} {
		if found := lintText(t, text); len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if found := lint.Run(snapshot.Objects{}, cluster.New().View(), snapshot.Network{}); len(found) > 0 {
		t.Errorf("nothing: %+v", found)
	}
}

// TestIgnored silences a rule for one policy, and not for another.
func TestIgnored(t *testing.T) {
	const policy = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n" +
		"metadata: {name: %s, namespace: shop, annotations: {weave-npc/ignore: %q}}\n" +
		"spec: {podSelector: {matchLabels: {app: none}}, egress: []}\n"
	found := lintText(t, objects(t)+fmt.Sprintf(policy, "p", "selects-nothing , rules-ignored")+fmt.Sprintf(policy, "q", "rules-ignored,x"))
	expect(t, found, "selects-nothing", "warning spec.podSelector: no pod of namespace shop has app=none")
	expect(t, found, "rules-ignored", "")
	expect(t, found, "ignore-unknown", `warning metadata.annotations: weave-npc/ignore names "x", which is no rule`)
}

// TestAnnotations shows which annotations are not understood.
func TestAnnotations(t *testing.T) {
	const of, names = "warning metadata.annotations", "weave-npc/replaces and weave-npc/removes have no effect without weave-npc/staged"
	for _, c := range []struct{ name, annotations, want string }{
		{"staged", `weave-npc/staged: "true"`, ""},
		{"a group", "weave-npc/staged: rollout, weave-npc/removes: db", ""},
		{"a capital letter", `weave-npc/staged: "True"`, of + `.weave-npc/staged: is "True", neither "true" nor a name of lower case letters, digits and -, at most 63`},
		{"false", `weave-npc/staged: "false"`, of + `.weave-npc/staged: is "false": without the annotation the policy is enforced too`},
		{"no group", "weave-npc/replaces: db", of + ": " + names},
		{"both", "weave-npc/staged: a, weave-npc/replaces: db, weave-npc/removes: db", of + ": it has both weave-npc/replaces and weave-npc/removes"},
		{"a misspelt name", `weave-npc/stagd: "true"`, of + ".weave-npc/stagd: is no annotation of weave-npc; did you mean weave-npc/staged?"},
		{"of another program", `example.com/staged: "True"`, ""},
		{"silenced", `weave-npc/staged: "True", weave-npc/ignore: annotation-unclear`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, lintText(t, objects(t)+"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+
				"metadata: {name: p, namespace: shop, annotations: {"+c.annotations+"}}\nspec: {podSelector: {}}\n"), "annotation-unclear", c.want)
		})
	}
}
