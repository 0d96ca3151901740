package npc_test

import "testing"

// verdictCase is one or more promises, by the numbers that its name begins with. The cluster has the pods that verdicts makes, and nothing else.
type verdictCase struct {
	name string
	do   func(w *world)
}

// verdicts runs each case on paper and on real kernels. The cases state what they expect in the grammar of world.expect.
func verdicts(t *testing.T, cases []verdictCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, start starter) {
				w := start(t)
				w.explained = true
				w.namespace("a", "team=a")
				w.namespace("b", "team=b")
				w.pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
				w.pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
				w.pod("b/client", "10.32.1.4,fd32:1::4", "app=client")
				w.remote("b/other", "10.32.2.9,fd32:2::9", "app=other")
				c.do(w)
			})
		})
	}
}

// TestVerdictsOfIsolation checks which pods a policy isolates, in which direction, and what an empty list means.
func TestVerdictsOfIsolation(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S1_no_policy", func(w *world) {
			w.sync()
			w.expect("a/client > a/web tcp:80 = yes\n outside > a/web udp:53 = yes\n a/web > outside tcp:1 = yes")
		}},
		{"S2_ingress_leaves_egress_free", func(w *world) {
			w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)
			w.sync()
			w.expect("a/client > a/web tcp:80 = no\n a/web > a/client tcp:80 = yes\n a/web > outside icmp = yes")
		}},
		{"S4_egress_only", func(w *world) {
			w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`)
			w.sync()
			w.expect("a/client > a/web tcp:80 = yes\n a/web > a/client tcp:80 = no\n a/web > outside tcp:80 = no")
		}},
		{"S3_types_absent", func(w *world) {
			w.policy("a/p", `{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}]}]}`)
			w.policy("a/q", `{podSelector: {matchLabels: {app: client}}}`)
			w.sync()
			w.expect("a/client > a/web tcp:80 = no\n a/web > outside tcp:80 = no\n outside > a/client tcp:1 = no\n a/client > outside tcp:1 = yes")
		}},
		{"S5_ingress_section_ignored", func(w *world) {
			w.policy("a/p", `{podSelector: {}, policyTypes: [Egress], ingress: [], egress: [{}]}`)
			w.sync()
			w.expect("outside > a/web tcp:80 = yes\n a/web > outside tcp:80 = yes")
		}},
		{"S7_S10_allow_all_beside_deny_all", func(w *world) {
			w.policy("a/deny", `{podSelector: {}}`)
			w.policy("a/allow", `{podSelector: {}, ingress: [{}]}`)
			w.sync()
			w.expect("outside > a/web tcp:80 = yes\n outside > a/web sctp:80 = yes\n outside > a/web icmp = yes")
		}},
		{"S8_empty_lists_are_everything", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [], ports: [{port: 80}]}]}`)
			w.policy("a/client", `{podSelector: {matchLabels: {app: client}}, ingress: [{from: [{podSelector: {}}], ports: []}]}`)
			w.sync()
			w.expect("outside > a/web tcp:80 = yes\n outside > a/web tcp:81 = no\n a/web > a/client icmp = yes\n b/other > a/client icmp = no")
		}},
		{"S9_empty_selector_its_namespace_only", func(w *world) {
			w.policy("a/deny", `{podSelector: {}}`)
			w.sync()
			w.expect("b/other > a/web tcp:80 = no\n a/web > b/other tcp:80 = yes")
		}},
	})
}

// TestVerdictsOfSeveralPolicies checks that the policies of a pod add up, that those of both ends must allow, and what happens when one goes.
func TestVerdictsOfSeveralPolicies(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S10_rules_are_for_the_pods_of_their_policy", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`)
			w.policy("a/client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 81}]}],
				egress: [{ports: [{port: 82}]}]}`)
			w.policy("a/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 83}]}]}`)
			w.sync()
			w.expect(`
				outside > a/web tcp:80 = yes
				outside > a/web tcp:81 = no
				outside > a/client tcp:80 = no
				outside > a/client tcp:81 = yes
				a/client > outside tcp:82 = yes
				a/client > outside tcp:83 = no
				a/web > outside tcp:82 = no
				a/web > outside tcp:83 = yes`)
		}},
		{"S11_both_must_allow", func(w *world) {
			w.policy("a/in", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)
			w.policy("b/out", `{podSelector: {}, policyTypes: [Egress]}`)
			w.sync()
			w.expect("b/client > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
			w.policy("b/out", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`)
			w.again(false)
			w.expect("b/client > a/web tcp:80 = yes\n b/client > a/web tcp:81 = no")
		}},
		{"S13_last_policy_goes", func(w *world) {
			w.policy("a/one", `{podSelector: {matchLabels: {app: web}}}`)
			w.policy("a/two", `{podSelector: {matchLabels: {app: web}}}`)
			w.sync()
			w.deletePolicy("a/one")
			w.again(false)
			w.expect("a/client > a/web tcp:80 = no")
			w.deletePolicy("a/two")
			w.again(false)
			w.expect("a/client > a/web tcp:80 = yes")
		}},
		{"S13_one_of_two_with_the_same_rules_goes", func(w *world) {
			spec := `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: client}}}, {ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]}`
			w.policy("a/one", spec)
			w.policy("a/two", spec)
			// This one shares a selector and blocks with them, but no rule.
			w.policy("b/three", `{podSelector: {matchLabels: {app: client}}, ingress: [
				{from: [{ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: 80}]}]}`)
			w.sync()
			allowed := "a/client > a/web tcp:80 = yes\n outside > a/web tcp:80 = yes\n outside > b/client tcp:80 = yes\n b/other > a/web tcp:80 = no"
			w.expect(allowed)
			w.deletePolicy("a/two")
			w.again(false)
			w.expect(allowed)
			w.tidyUp()
			w.expect(allowed)
			w.deletePolicy("a/one")
			w.again(false)
			w.tidyUp()
			w.expect("b/other > a/web tcp:80 = yes\n outside > b/client tcp:80 = yes\n outside > b/client tcp:81 = no")
		}},
		{"S13_of_two_with_the_same_many_peers_one_goes", func(w *world) {
			w.policy("a/one", crossed("Ingress", manyPeers(40), 300))
			w.policy("a/two", crossed("Ingress", manyPeers(40), 300, "{port: http}"))
			w.sync()
			w.expect("a/client > a/web tcp:1 = yes\n 198.51.100.9 > 10.32.1.2 tcp:1 = no")
			w.deletePolicy("a/two")
			w.again(false)
			w.expect("a/client > a/web tcp:1 = yes\n 198.51.100.9 > 10.32.1.2 tcp:1 = no")
			w.tidyUp()
			w.expect("a/client > a/web tcp:1 = yes\n 198.51.100.9 > 10.32.1.2 tcp:1 = no")
		}},
	})
}
