package controller_test

import "testing"

// verdictCase is one or more promises, by the numbers that its name begins with. The cluster has the pods that verdicts
// makes, and nothing else.
type verdictCase struct {
	name string
	do   func(w *harness)
}

// verdicts runs each case on kernels in memory and on real kernels. The cases state what they expect in the grammar of
// harness.expect.
func verdicts(t *testing.T, cases []verdictCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, start starter) {
				w := start(t)
				w.Explained = true
				w.Namespace("a", "team=a")
				w.Namespace("b", "team=b")
				w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
				w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
				w.Pod("b/client", "10.32.1.4,fd32:1::4", "app=client")
				w.Remote("b/other", "10.32.2.9,fd32:2::9", "app=other")
				c.do(w)
			})
		})
	}
}

// TestVerdictsOfIsolation checks the pods and directions that a policy isolates, and the meaning of an empty list.
func TestVerdictsOfIsolation(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S1_no_policy", func(w *harness) {
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes\n outside > a/web udp:53 = yes\n a/web > outside tcp:1 = yes")
		}},
		{"S2_ingress_leaves_egress_free", func(w *harness) {
			w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = no\n a/web > a/client tcp:80 = yes\n a/web > outside icmp = yes")
		}},
		{"S4_egress_only", func(w *harness) {
			w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes\n a/web > a/client tcp:80 = no\n a/web > outside tcp:80 = no")
		}},
		{"S3_types_absent", func(w *harness) {
			w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}]}]}`)
			w.Policy("a/q", `{podSelector: {matchLabels: {app: client}}}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = no\n a/web > outside tcp:80 = no\n outside > a/client tcp:1 = no\n a/client > outside tcp:1 = yes")
		}},
		{"S5_ingress_section_ignored", func(w *harness) {
			w.Policy("a/p", `{podSelector: {}, policyTypes: [Egress], ingress: [], egress: [{}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:80 = yes\n a/web > outside tcp:80 = yes")
		}},
		{"S7_S10_allow_all_and_deny_all", func(w *harness) {
			w.Policy("a/deny", `{podSelector: {}}`)
			w.Policy("a/allow", `{podSelector: {}, ingress: [{}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:80 = yes\n outside > a/web sctp:80 = yes\n outside > a/web icmp = yes")
		}},
		{"S8_empty_lists_are_everything", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [], ports: [{port: 80}]}]}`)
			w.Policy("a/client", `{podSelector: {matchLabels: {app: client}}, ingress: [{from: [{podSelector: {}}], ports: []}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:80 = yes\n outside > a/web tcp:81 = no\n a/web > a/client icmp = yes\n b/other > a/client icmp = no")
		}},
		{"S9_empty_selector_its_namespace_only", func(w *harness) {
			w.Policy("a/deny", `{podSelector: {}}`)
			w.Sync()
			w.Expect("b/other > a/web tcp:80 = no\n a/web > b/other tcp:80 = yes")
		}},
	})
}

// TestVerdictsOfSeveralPolicies checks that the policies of a pod add up, that those of both ends must allow, and what
// happens when one goes.
func TestVerdictsOfSeveralPolicies(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S10_rules_are_for_the_pods_of_their_policy", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`)
			w.Policy("a/client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 81}]}],
				egress: [{ports: [{port: 82}]}]}`)
			w.Policy("a/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 83}]}]}`)
			w.Sync()
			w.Expect(`
				outside > a/web tcp:80 = yes
				outside > a/web tcp:81 = no
				outside > a/client tcp:80 = no
				outside > a/client tcp:81 = yes
				a/client > outside tcp:82 = yes
				a/client > outside tcp:83 = no
				a/web > outside tcp:82 = no
				a/web > outside tcp:83 = yes`)
		}},
		{"S11_both_must_allow", func(w *harness) {
			w.Policy("a/in", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)
			w.Policy("b/out", `{podSelector: {}, policyTypes: [Egress]}`)
			w.Sync()
			w.Expect("b/client > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
			w.Policy("b/out", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`)
			w.Again(false)
			w.Expect("b/client > a/web tcp:80 = yes\n b/client > a/web tcp:81 = no")
		}},
		{"S13_last_policy_goes", func(w *harness) {
			w.Policy("a/one", `{podSelector: {matchLabels: {app: web}}}`)
			w.Policy("a/two", `{podSelector: {matchLabels: {app: web}}}`)
			w.Sync()
			w.DeletePolicy("a/one")
			w.Again(false)
			w.Expect("a/client > a/web tcp:80 = no")
			w.DeletePolicy("a/two")
			w.Again(false)
			w.Expect("a/client > a/web tcp:80 = yes")
		}},
		{"S13_one_of_two_with_the_same_rules_goes", func(w *harness) {
			spec := `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: client}}}, {ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]}`
			w.Policy("a/one", spec)
			w.Policy("a/two", spec)
			// This one shares a selector and blocks with them, but no rule.
			w.Policy("b/three", `{podSelector: {matchLabels: {app: client}}, ingress: [
				{from: [{ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: 80}]}]}`)
			w.Sync()
			allowed := "a/client > a/web tcp:80 = yes\n outside > a/web tcp:80 = yes\n outside > b/client tcp:80 = yes\n b/other > a/web tcp:80 = no"
			w.Expect(allowed)
			w.DeletePolicy("a/two")
			w.Again(false)
			w.Expect(allowed)
			w.CollectGarbage()
			w.Expect(allowed)
			w.DeletePolicy("a/one")
			w.Again(false)
			w.CollectGarbage()
			w.Expect("b/other > a/web tcp:80 = yes\n outside > b/client tcp:80 = yes\n outside > b/client tcp:81 = no")
		}},
		{"S13_of_two_with_the_same_many_peers_one_goes", func(w *harness) {
			w.Policy("a/one", crossed("Ingress", manyPeers(40), 300))
			w.Policy("a/two", crossed("Ingress", manyPeers(40), 300, "{port: http}"))
			w.Sync()
			w.Expect("a/client > a/web tcp:1 = yes\n 198.51.100.9 > 10.32.1.2 tcp:1 = no")
			w.DeletePolicy("a/two")
			w.Again(false)
			w.Expect("a/client > a/web tcp:1 = yes\n 198.51.100.9 > 10.32.1.2 tcp:1 = no")
			w.CollectGarbage()
			w.Expect("a/client > a/web tcp:1 = yes\n 198.51.100.9 > 10.32.1.2 tcp:1 = no")
		}},
	})
}
