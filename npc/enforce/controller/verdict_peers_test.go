package controller_test

import "testing"

// TestVerdictsOfPeers checks the peers that from and to select, as the labels of pods and namespaces change.
func TestVerdictsOfPeers(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S12_peers_that_match_no_pod", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{}], ports: [{port: 1}]},
				{from: [{podSelector: {matchLabels: {app: none}}}], ports: [{port: 2}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:1 = no\n outside > a/web tcp:1 = no\n a/client > a/web tcp:2 = no\n outside > a/web tcp:2 = no")
		}},
		{"S15_S16_S17_S18_peers", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 1}]},
				{from: [{namespaceSelector: {}}], ports: [{port: 2}]},
				{from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: 3}]},
				{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {}}], ports: [{port: 4}]},
				{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}], ports: [{port: 5}]},
				{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: client}}}], ports: [{port: 6}]},
				{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: client}}}], ports: [{port: 7}]}]}`)
			w.Sync()
			w.Expect(`
				a/client > a/web tcp:1 = yes
				b/client > a/web tcp:1 = no
				a/client > a/web tcp:2 = yes
				b/other > a/web tcp:2 = yes
				outside > a/web tcp:2 = no
				b/other > a/web tcp:3 = yes
				a/client > a/web tcp:3 = no
				b/other > a/web tcp:4 = yes
				a/client > a/web tcp:4 = no
				b/client > a/web tcp:5 = yes
				a/client > a/web tcp:5 = yes
				b/other > a/web tcp:5 = no
				b/client > a/web tcp:6 = yes
				b/other > a/web tcp:6 = no
				a/client > a/web tcp:6 = no
				a/client > a/web tcp:7 = yes
				b/other > a/web tcp:7 = yes`)
		}},
		{"S19_the_same_selectors_in_two_namespaces", func(w *harness) {
			w.Remote("b/far", "10.32.2.8,fd32:2::8", "app=client")
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.Policy("b/client", `{podSelector: {matchLabels: {app: client}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes\n b/client > a/web tcp:80 = no\n a/client > b/client tcp:80 = no\n b/far > b/client tcp:80 = yes\n" +
				"b/far > a/web tcp:80 = no")
		}},
		{"S20_operators", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchExpressions: [
				{key: app, operator: In, values: [client, x]}, {key: zone, operator: DoesNotExist}, {key: tier, operator: NotIn, values: [dev]}]}}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes")
			w.Relabel("a/client", "app=client", "zone=")
			w.Again(false)
			w.Expect("a/client > a/web tcp:80 = no")
			w.Relabel("a/client", "app=client", "tier=dev")
			w.Again(false)
			w.Expect("a/client > a/web tcp:80 = no")
		}},
		{"S20_operators_of_pods_that_arrive_late", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [w, x, y]}]}}], ports: [{port: 1}]},
				{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [x]}]}}], ports: [{port: 2}]},
				{from: [{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}], ports: [{port: 3}]},
				{from: [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}], ports: [{port: 4}]}]}`)
			w.Sync()
			w.Pod("a/x", "10.32.1.11,fd32:1::11", "app=x")
			w.Pod("a/none", "10.32.1.12,fd32:1::12", "zone=z")
			w.Again(false)
			w.Expect(`
				a/x > a/web tcp:1 = yes
				a/none > a/web tcp:1 = no
				a/x > a/web tcp:2 = no
				a/none > a/web tcp:2 = yes
				a/x > a/web tcp:3 = yes
				a/none > a/web tcp:3 = no
				a/x > a/web tcp:4 = no
				a/none > a/web tcp:4 = yes`)
		}},
		{"S22_namespace_relabelled", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: 1}]},
				{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: client}}}], ports: [{port: 2}]}]}`)
			w.Sync()
			w.Expect("b/client > a/web tcp:1 = yes\n b/client > a/web tcp:2 = yes")
			w.Namespace("b", "team=c")
			w.Again(false)
			w.Expect("b/client > a/web tcp:1 = no\n b/client > a/web tcp:2 = no")
			w.Namespace("b", "team=b")
			w.Again(false)
			w.Expect("b/client > a/web tcp:1 = yes\n b/client > a/web tcp:2 = yes")
		}},
		{"S23_a_target_is_relabelled", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:81 = no\n outside > a/client tcp:81 = yes")
			w.Relabel("a/web", "app=client")
			w.Relabel("a/client", "app=web")
			w.Again(false)
			w.Expect("outside > a/web tcp:81 = yes\n outside > a/client tcp:81 = no\n outside > a/client tcp:80 = yes")
		}},
	})
}
