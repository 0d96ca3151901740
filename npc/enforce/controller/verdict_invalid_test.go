package controller_test

import "testing"

// TestVerdictsOfInvalidPolicies checks what policies with mistakes leave allowed.
func TestVerdictsOfInvalidPolicies(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S61_invalid_policy", func(w *harness) {
			w.Policy("a/bad", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}, {}]}`)
			w.Policy("b/worse", `{podSelector: {matchExpressions: [{key: "&", operator: Exists}]}}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = no\n a/web > a/client tcp:80 = yes\n outside > b/client tcp:80 = no")
			reported := w.Model.Unreported()
			if len(reported) != 2 || len(w.Model.Unreported()) != 0 {
				w.Errorf("reported: %v", reported)
			}
			w.Policy("a/bad", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
			w.Again(false)
			w.Expect("10.1.1.1 > 10.32.1.2 tcp:80 = yes\n 11.1.1.1 > 10.32.1.2 tcp:80 = no")
		}},
		{"S20_value_that_no_label_can_have", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: "no label;"}}}], ports: [{port: 1}]},
				{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: ["no label;"]}]}}], ports: [{port: 2}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:1 = no\n a/client > a/web tcp:2 = yes")
			if bad := w.Model.Unreported(); len(bad) > 0 {
				w.Errorf("reported: %v", bad)
			}
		}},
	})
}
