package explain_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// tiers sets cluster network policies, each as its name and spec.
func (w harness) tiers(policies ...string) {
	w.Helper()
	for _, text := range policies {
		name, spec, _ := strings.Cut(text, " ")
		w.SetClusterPolicy(fixture.ClusterPolicy(w, name, spec))
	}
}

// Parts of specs.
const (
	everyPod = `subject: {namespaces: {}}, `
	fromAll  = `from: [{namespaces: {}}]`
	toAll    = `to: [{networks: [0.0.0.0/0, "::/0"]}]`
)

// TestTiersDecideInOrder shows who decides about the ingress of a/web, what would without that, and how both are said.
func TestTiersDecideInOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		policies []string
		isolates string
		want     string
	}{
		{"S82_priority_before_name", []string{
			`a {tier: Admin, priority: 2, ` + everyPod + `ingress: [{action: Deny, ` + fromAll + `}]}`,
			`b {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Accept, ` + fromAll + `}]}`,
		}, "", `a/web: allowed by Admin policy b/rule 1
  Admin policy b (priority 1): selects it
    rule 1, Accept: matches
  without it: denied by Admin policy a/rule 1
`},
		{"S82_then_name_then_rule", []string{
			`b {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Accept, ` + fromAll + `}]}`,
			`a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: x}}}]},
				{action: Deny, name: stop, ` + fromAll + `}, {action: Accept, ` + fromAll + `}]}`,
		}, "", `a/web: denied by Admin policy a/rule 2 'stop'
  Admin policy a (priority 1): selects it
    rule 1, Accept: no: peer wants namespace with team=x, namespace a has no label team
    rule 2 'stop', Deny: matches
  without it: allowed by Admin policy a/rule 3
`},
		{"S82_a_name_of_several_lines", []string{
			`a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Deny, name: "x\nallowed", ` + fromAll + `}]}`,
		}, "", `a/web: denied by Admin policy a/rule 1 "x\nallowed"
  Admin policy a (priority 1): selects it
    rule 1 "x\nallowed", Deny: matches
  without it: allowed: no cluster network policy decides it, and no policy isolates it
`},
		{"S80_admin_before_networkpolicies", []string{`a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Accept, ` + fromAll + `}]}`},
			`{podSelector: {}}`, `a/web: allowed by Admin policy a/rule 1
  Admin policy a (priority 1): selects it
    rule 1, Accept: matches
  without it: denied: no rule allows it
`},
		{"S80_pass_leaves_the_tier", []string{
			`a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Pass, ` + fromAll + `}]}`,
			`b {tier: Admin, priority: 2, ` + everyPod + `ingress: [{action: Accept, ` + fromAll + `}]}`,
		}, `{podSelector: {}}`, `a/web: denied: no rule allows it
  Admin policy a (priority 1): selects it
    rule 1, Pass: matches, and passes it to the next tier
  policy a/p: isolates, and has no rule
`},
		{"S81_baseline_after_networkpolicies", []string{`a {tier: Baseline, priority: 1, ` + everyPod + `ingress: [{action: Deny, ` + fromAll + `}]}`},
			`{podSelector: {}, ingress: [{}]}`, `a/web: allowed: a rule allows it
  Baseline policy a (priority 1): is not asked, for a NetworkPolicy isolates the pod
  policy a/p: isolates
    rule 1: allows it
`},
		{"S81_baseline_where_nothing_isolates", []string{`a {tier: Baseline, priority: 1, ` + everyPod + `ingress: [{action: Deny, ` + fromAll + `}]}`},
			`{podSelector: {}, policyTypes: [Egress]}`, `a/web: denied by Baseline policy a/rule 1
  Baseline policy a (priority 1): selects it
    rule 1, Deny: matches
  without it: allowed: no cluster network policy decides it, and no policy isolates it
`},
		{"S80_pass_of_baseline_allows", []string{`a {tier: Baseline, priority: 1, ` + everyPod + `ingress: [{action: Pass, ` + fromAll + `},
			{action: Deny, ` + fromAll + `}]}`}, "", `a/web: allowed: no cluster network policy decides it, and no policy isolates it
  Baseline policy a (priority 1): selects it
    rule 1, Pass: matches, and passes it to the next tier
`},
		{"S87_only_its_direction", []string{`a {tier: Admin, priority: 1, ` + everyPod + `egress: [{action: Accept, ` + toAll + `}]}`}, "",
			`a/web: allowed: no policy isolates it
`},
		{"S83_only_its_subject", []string{`a {tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}},
			ingress: [{action: Deny, ` + fromAll + `}]}`}, "", `a/web: allowed: no policy isolates it
`},
		{"S89_a_rule_fails_closed", []string{`a {tier: Admin, priority: 1, ` + everyPod +
			`ingress: [{action: Accept, from: [{}]}, {action: Pass, from: [{}]}]}`}, "", `a/web: denied by Admin policy a/rule 2
  Admin policy a (priority 1): selects it
    rule 1, Accept: matches nothing, for it is invalid: spec.ingress[0]: from[0]: it is of no known kind
    rule 2, Deny: matches everything, for it fails closed: spec.ingress[1]: from[0]: it is of no known kind
  without it: allowed: no cluster network policy decides it, and no policy isolates it
`},
		{"S89_a_tier_that_is_not_known_decides_nothing", []string{`a {tier: Other, priority: 1, ` + everyPod +
			`ingress: [{action: Deny, ` + fromAll + `}]}`}, "", `a/web: allowed: no policy isolates it
`},
		{"S86_named_ports_of_any_protocol", []string{`a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Deny, ` + fromAll + `,
			protocols: [{destinationNamedPort: dns}, {destinationNamedPort: http}]}]}`}, "", `a/web: denied by Admin policy a/rule 1
  Admin policy a (priority 1): selects it
    rule 1, Deny: matches
  without it: allowed: no cluster network policy decides it, and no policy isolates it
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/web node1 10.32.1.2 app=web http:80"))
			w.tiers(c.policies...)
			if c.isolates != "" {
				w.policy("a/p", c.isolates)
			}
			w.expect("a/client", c.want)
		})
	}
}

// TestTiersAndTheNode shows which traffic between a pod and its own node, and from a pod to itself, tiers apply to.
func TestTiersAndTheNode(t *testing.T) {
	const (
		node     = "172.31.0.1"
		networks = `egress: [{action: Deny, ` + toAll + `}]}`
	)
	for _, c := range []struct {
		name, policy, isolates, from, to string
		throughService                   bool
		want                             string
	}{
		{"S90_admin_denies_networks", `a {tier: Admin, priority: 1, ` + everyPod + networks, "", "a/web", node, false, "denied by Admin policy a/rule 1"},
		{"S89_S90_a_rule_that_fails_closed_denies", `a {tier: Admin, priority: 1, ` + everyPod + `egress: [{action: Deny, to: [{}]}]}`, "",
			"a/web", node, false, "denied by Admin policy a/rule 1"},
		{"S90_pods_are_no_nodes", `a {tier: Admin, priority: 1, ` + everyPod + `egress: [{action: Deny, to: [{namespaces: {}}]}]}`, "",
			"a/web", node, false, "allowed: a pod reaches its own node, unless a cluster network policy denies it"},
		{"S90_baseline_denies_networks", `a {tier: Baseline, priority: 1, ` + everyPod + networks, "",
			"a/web", node, false, "denied by Baseline policy a/rule 1"},
		{"S81_S90_isolated_pods_do_not_meet_baseline", `a {tier: Baseline, priority: 1, ` + everyPod + networks, `{podSelector: {}, policyTypes: [Egress]}`,
			"a/web", node, false, "allowed: a pod reaches its own node, unless a cluster network policy denies it"},
		{"S90_the_node_reaches_its_pods", `a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Deny, from: [{}]}]}`, "", node, "a/web", false,
			"allowed: its own node always reaches a pod"},
		{"S84_S90_admin_denies_nodes", `a {tier: Admin, priority: 1, ` + everyPod +
			`egress: [{action: Deny, to: [{nodes: {matchLabels: {zone: x}}}]}]}`, "", "a/web", node, false, "denied by Admin policy a/rule 1"},
		{"S84_S90_other_nodes", `a {tier: Admin, priority: 1, ` + everyPod +
			`egress: [{action: Deny, to: [{nodes: {matchLabels: {zone: y}}}]}]}`, "", "a/web", node, false,
			"allowed: a pod reaches its own node, unless a cluster network policy denies it"},
		{"S91_a_pod_reaches_itself", `a {tier: Admin, priority: 1, ` + everyPod + networks, "", "a/web", "a/web", false, "allowed: a pod reaches itself"},
		{"S91_not_through_a_service", `a {tier: Admin, priority: 1, ` + everyPod + networks, "", "a/web", "a/web", true, "denied by Admin policy a/rule 1"},
		{"S91_networkpolicies_let_it_through_a_service", `a {tier: Baseline, priority: 1, ` + everyPod + networks,
			`{podSelector: {}, policyTypes: [Egress]}`, "a/web", "a/web", true, "allowed: a pod reaches itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/web node1@" + node + " 10.32.1.2 app=web"))
			w.SetNode(fixture.Node("node1 zone=x " + node))
			w.tiers(c.policy)
			if c.isolates != "" {
				w.policy("a/p", c.isolates)
			}
			f := fixture.Flows(t, w.View(), c.from, c.to, "tcp/80")[0]
			f.ThroughService = c.throughService
			v := explain.Explain(w.View(), f)
			line := 1
			if c.from == node {
				line = 2
			}
			if _, got, _ := strings.Cut(strings.Split(v.String(), "\n")[line], "a/web: "); got != c.want {
				t.Errorf("it is %s,\nnot   %s\n%s", got, c.want, v)
			}
			if v.Forwarded() {
				t.Error("it counts as forwarded")
			}
		})
	}
}

// TestS84_PeersByNodes shows which addresses peers by nodes match, and the reason for those that they do not match. The
// owner of an address does not matter.
func TestS84_PeersByNodes(t *testing.T) {
	w := newHarness(t)
	for _, facts := range []string{"near zone=x 192.0.2.1", "far zone=y 192.0.2.2", "both zone=x 192.0.2.2", "last zone=y 192.0.2.3",
		"mad zone=x 10.32.1.2"} {
		w.SetNode(fixture.Node(facts))
	}
	w.tiers(`a {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [
		{action: Deny, to: [{nodes: {matchLabels: {zone: x}}}, {nodes: {matchLabels: {rack: "1"}}}]}, {action: Accept, to: [{nodes: {}}]}]}`)
	const rack = "; peer wants nodes with rack=1, "
	for to, want := range map[string]string{
		"192.0.2.1": "rule 1, Deny: matches",
		"192.0.2.2": "rule 1, Deny: matches",
		"a/web":     "rule 1, Deny: matches",
		"192.0.2.3": "rule 1, Deny: no: peer wants nodes with zone=x, node last has zone=y" + rack + "node last has no label rack; rule 2, Accept: matches",
		"192.0.2.4": "rule 1, Deny: no: peer wants nodes, 192.0.2.4 is no address of one; peer wants nodes, 192.0.2.4 is no address of one; " +
			"rule 2, Accept: no: peer wants nodes, 192.0.2.4 is no address of one",
	} {
		var got []string
		for _, r := range w.verdict("a/client", to).Egress.ClusterPolicies[0].Rules {
			got = append(got, fmt.Sprintf("rule %d, %s: %s", r.Number, r.Action, r))
		}
		if said := strings.Join(got, "; "); said != want {
			t.Errorf("to %s: %s,\nnot %s", to, said, want)
		}
	}
	want := []string{"Deny: everything to nodes with zone=x, or nodes with rack=1", "Accept: everything to all nodes"}
	if diff := cmp.Diff(want, explain.Policies(w.View(), "")[0].Egress); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestS72_ConflictingPodsAndTheNode shows that a pod reaches its node with an address that another one claims, if
// nothing denies that one its node.
func TestS72_ConflictingPodsAndTheNode(t *testing.T) {
	const node, conflicting = "172.31.0.1", "denied: a pod of its node to which a cluster network policy denies something claims the same address, " +
		"so that nothing is allowed"
	for name, c := range map[string]struct{ tier, peer, isolates, want string }{
		"pods":               {"Admin", "namespaces: {}", "", ""},
		"networks":           {"Admin", "networks: [198.51.100.0/24]", "", conflicting},
		"nodes":              {"Baseline", "nodes: {matchLabels: {zone: y}}", "", conflicting},
		"isolated":           {"Baseline", "nodes: {}", `{podSelector: {}, policyTypes: [Egress]}`, ""},
		"what_is_not_known":  {"Admin", "", "", conflicting},
		"isolated_but_admin": {"Admin", "nodes: {}", `{podSelector: {}, policyTypes: [Egress]}`, conflicting},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/old node1@" + node + " 10.32.1.9 app=old"))
			w.later("a/later node1@" + node + " 10.32.1.9 app=later")
			w.tiers(`a {tier: ` + c.tier + `, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: old}}}},
				egress: [{action: Deny, to: [{` + c.peer + `}]}]}`)
			if c.isolates != "" {
				w.policy("a/p", c.isolates)
			}
			if c.want == "" {
				c.want = "allowed: a pod reaches its own node, unless a cluster network policy denies it"
			}
			if got := strings.Split(w.verdict("a/later", node).String(), "\n")[1]; got != "egress from a/later: "+c.want {
				t.Errorf("it is %s,\nnot   %s", got, c.want)
			}
		})
	}
}

// TestS72_WhatThePodItselfIsDenied to the node counts for all that it sends there, while a rival's policies close its
// address.
func TestS72_WhatThePodItselfIsDenied(t *testing.T) {
	const node = "172.31.0.1"
	for name, c := range map[string]struct{ peer, isolates, want string }{
		"a_free_rival":                  {"networks: [198.51.100.0/24]", "", "allowed: "},
		"an_isolated_rival":             {"networks: [198.51.100.0/24]", `{podSelector: {matchLabels: {app: old}}, policyTypes: [Egress]}`, "denied: "},
		"an_isolated_rival_and_no_node": {"namespaces: {}", `{podSelector: {matchLabels: {app: old}}, policyTypes: [Egress]}`, "allowed: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/old node1@" + node + " 10.32.1.9 app=old"))
			w.later("a/later node1@" + node + " 10.32.1.9 app=later")
			w.tiers(`a {tier: Baseline, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: later}}}},
				egress: [{action: Deny, to: [{` + c.peer + `}]}]}`)
			if c.isolates != "" {
				w.policy("a/p", c.isolates)
			}
			if got := strings.Split(w.verdict("a/later", node).String(), "\n")[1]; !strings.HasPrefix(got, "egress from a/later: "+c.want) {
				t.Errorf("it is %s,\nnot   %s", got, c.want)
			}
		})
	}
}

// TestS72_DeniedClaims shows that a pod that a cluster network policy may deny something closes an address that it
// claims as an isolated one does.
func TestS72_DeniedClaims(t *testing.T) {
	const subject = `subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: old}}}}, `
	denied := `a {tier: Baseline, priority: 1, ` + subject + `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: x}}}]}]}`
	for _, c := range []struct {
		name, policy, isolates, to, also, want string
	}{
		{"a_rival", denied, "", "a/later", "",
			"denied: a pod of its node to which a cluster network policy denies something claims the same address, so that nothing is allowed"},
		{"a_rival_that_is_only_let_in", strings.Replace(denied, "Deny", "Accept", 1), "", "a/later", "", "allowed: no policy isolates it"},
		{"a_rival_that_is_isolated", denied, "old", "a/later", "",
			"denied: an isolated pod of its node claims the same address, so that nothing is allowed"},
		{"a_stale_address", denied, "", "a/old", "StaleAddrs",
			"denied: a cluster network policy denies something to it and its address is not known, so that nothing is allowed, " +
				"unless weave-npc runs with --fail-closed=never"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/old node1 10.32.1.9 app=old " + c.also))
			w.later("a/later node1 10.32.1.9 app=later")
			w.tiers(c.policy)
			if c.isolates != "" {
				w.isolate(c.isolates)
			}
			_, got, _ := strings.Cut(w.verdict("a/client", c.to).String(), "ingress to ")
			_, got, _ = strings.Cut(strings.Split(got, "\n")[0], ": ")
			if got != c.want {
				t.Errorf("it is %s,\nnot   %s", got, c.want)
			}
		})
	}
}

// TestS83_SubjectsOfUnknownNamespaces shows that a namespace without an object is the subject of no policy.
func TestS83_SubjectsOfUnknownNamespaces(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("late/x node1 10.32.1.8 app=x"))
	w.tiers(`a {tier: Admin, priority: 1, ` + everyPod + `ingress: [{action: Deny, ` + fromAll + `}]}`)
	if !w.verdict("a/client", "late/x").Allowed {
		t.Error("it is selected")
	}
	w.SetNamespace(fixture.Namespace("late"))
	if w.verdict("a/client", "late/x").Allowed {
		t.Error("it is not selected")
	}
	w.DeleteClusterPolicy("a", "another")
	if w.verdict("a/client", "late/x").Allowed {
		t.Error("another policy of the name is gone, and this one with it")
	}
	w.DeleteClusterPolicy("a", "")
	if !w.verdict("a/client", "late/x").Allowed {
		t.Error("the policy is gone, and denies")
	}
}

// TestTiersAsJSON shows the fields that scripts read.
func TestTiersAsJSON(t *testing.T) {
	w := newHarness(t)
	w.tiers(`pci {tier: Admin, priority: 10, `+everyPod+`ingress: [{action: Accept, from: [{}]}, {action: Deny, name: stop, `+fromAll+`}]}`,
		`rest {tier: Baseline, priority: 0, `+everyPod+`ingress: [{action: Accept, `+fromAll+`}]}`)
	got, err := json.MarshalIndent(w.verdict("a/client", "a/web").Ingress, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "pod": "a/web",
  "allowed": false,
  "because": "a cluster network policy denies it",
  "by": {
    "tier": "Admin",
    "policy": "pci",
    "rule": 2,
    "name": "stop",
    "action": "Deny"
  },
  "without_it": {
    "allowed": true,
    "because": "a cluster network policy accepts it",
    "by": {
      "tier": "Baseline",
      "policy": "rest",
      "rule": 1,
      "action": "Accept"
    }
  },
  "cluster_policies": [
    {
      "tier": "Admin",
      "policy": "pci",
      "priority": 10,
      "rules": [
        {
          "rule": 1,
          "action": "Accept",
          "matches": false,
          "invalid": "spec.ingress[0]: from[0]: it is of no known kind"
        },
        {
          "rule": 2,
          "name": "stop",
          "action": "Deny",
          "matches": true,
          "peers": [
            {
              "fits": true,
              "text": "peer fits a/client",
              "of": "a/client"
            }
          ]
        }
      ]
    }
  ]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestS82_PoliciesInOrder shows that policies are listed as they are asked, and those last that decide nothing.
func TestS82_PoliciesInOrder(t *testing.T) {
	w := newHarness(t)
	w.policy("a/p", `{podSelector: {}}`)
	rules := everyPod + `ingress: [{action: Deny, name: stop, ` + fromAll + `}]}`
	w.tiers(`late {tier: Admin, priority: 7, `+rules, `z {tier: Admin, priority: 1, `+rules, `y {tier: Admin, priority: 1, `+rules,
		`b {tier: Baseline, priority: 0, `+rules, `typo {tier: admin, priority: 0, `+rules, `empty {tier: Admin, priority: 0, subject: {}}`)
	w.SetPod(fixture.Pod("a/agent HostNetwork 172.31.0.1"))
	var got []string
	for _, row := range explain.Policies(w.View(), "") {
		got = append(got, strings.Join([]string{row.Tier, row.Policy, strings.Join(row.Pods, ","), strings.Join(row.Ingress, ","), row.Invalid}, "|"))
	}
	const rest = "|a/client,a/web|Deny 'stop': everything from pods in all namespaces|"
	want := []string{"Admin|y" + rest, "Admin|z" + rest, "Admin|late" + rest, "|a/p|a/client,a/web||", "Baseline|b" + rest,
		"none|empty|||spec.subject: it has not exactly one of namespaces and pods", `none|typo|||spec.tier: "admin" is neither Admin nor Baseline`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if rows := explain.Policies(w.View(), "b"); len(rows) > 0 || rows == nil {
		t.Errorf("of a namespace without pods: %v", rows)
	}
}
