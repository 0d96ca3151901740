package advice_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc/analysis/advice"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

type harness struct {
	*testing.T
	*cluster.Cluster
	controllers map[string]string
	pods        int
}

// newHarness is the shop of the README, whose database is isolated in both directions and whose web in one.
func newHarness(t *testing.T) *harness {
	w := &harness{T: t, Cluster: cluster.New(), controllers: map[string]string{}}
	for _, ns := range []string{"shop", "ops"} {
		w.SetNamespace(fixture.Namespace(ns))
	}
	w.pod("shop/web", "role=web pod-template-hash=7d4")
	w.pod("shop/api", "role=api")
	w.pod("shop/db", "role=db")
	w.pod("ops/mon", "role=mon")
	w.policy("shop/db", `{podSelector: {matchLabels: {role: db}}, policyTypes: [Ingress, Egress],
		ingress: [{from: [{podSelector: {matchLabels: {role: api}}}], ports: [{port: 5432}]}]}`)
	w.policy("shop/web", `{podSelector: {matchLabels: {role: web}}, ingress: [{ports: [{port: 8080}]}]}`)
	return w
}

// pod adds a pod of node1 with the next address.
func (w *harness) pod(key, labels string) {
	w.pods++
	w.SetPod(fixture.Pod(fmt.Sprintf("%s node1 10.32.1.%d %s", key, w.pods, labels)))
}

func (w *harness) policy(key, spec string) {
	w.Helper()
	w.SetPolicy(fixture.Policy(w, key, spec))
}

func (w *harness) nearest(from, to, service string) []advice.Suggestion {
	w.Helper()
	flows := fixture.Flows(w, w.View(), from, to, service)
	changes, err := advice.Request{Cluster: w.Cluster, Flows: flows, Controllers: w.controllers}.Nearest()
	if err != nil {
		w.Fatal(err)
	}
	return changes
}

// apply applies the YAML of a change to a copy, as kubectl would.
func (w *harness) apply(c advice.Suggestion) *cluster.Cluster {
	w.Helper()
	after := w.Clone()
	for text := range strings.SplitSeq(c.Apply, "---\n") {
		o := fixture.Object[networkingv1.NetworkPolicy](w, text)
		if o.Kind != "NetworkPolicy" || o.APIVersion != "networking.k8s.io/v1" || o.Name == "" || o.Namespace == "" {
			w.Fatalf("cannot be applied:\n%s", text)
		}
		after.SetPolicy(o)
	}
	return after
}

// TestAdviceGivesNoMoreThanAsked applies the first advice for every denied flow, and looks for others that have become
// allowed or denied.
func TestAdviceGivesNoMoreThanAsked(t *testing.T) {
	w := newHarness(t)
	w.policy("ops/quiet", `{podSelector: {}, policyTypes: [Egress, Ingress]}`)
	w.policy("shop/broken", `{podSelector: {matchLabels: {role: api}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}]}`)
	ends := append(w.View().PodNames(""), "198.51.100.7")
	services := []string{"tcp/80", "tcp/5432", "tcp/8080", "udp/53"}
	allowed := func(c *cluster.Cluster, from, to, service string) bool {
		return explain.Explain(c.View(), fixture.Flows(t, c.View(), from, to, service)[0]).Allowed
	}
	denied := 0
	for _, from := range ends {
		for _, to := range ends {
			for _, s := range services {
				if allowed(w.Cluster, from, to, s) {
					continue
				}
				denied++
				changes := w.nearest(from, to, s)
				if len(changes) == 0 || changes[0].Apply == "" || changes[0].Opens+changes[0].Closes > 0 || changes[0].OpensOutside {
					t.Fatalf("%s -> %s, %s: %+v", from, to, s, changes)
				}
				after := w.apply(changes[0])
				for _, a := range ends {
					for _, b := range ends {
						for _, other := range services {
							want := allowed(w.Cluster, a, b, other) || a == from && b == to && s == other
							if allowed(after, a, b, other) != want {
								t.Errorf("for %s -> %s, %s: %s -> %s, %s becomes allowed = %t by\n%s", from, to, s, a, b, other, !want, changes[0].Apply)
							}
						}
					}
				}
			}
		}
	}
	if denied < 30 {
		t.Errorf("only %d flows were denied", denied)
	}
}

// TestRelabellingSaysWhatElseItOpens shows the second advice, that opens more than was asked for.
func TestRelabellingSaysWhatElseItOpens(t *testing.T) {
	w := newHarness(t)
	w.controllers["shop/web"] = "ReplicaSet web-7d4"
	changes := w.nearest("shop/web", "shop/db", "tcp/5432")
	if len(changes) != 2 || changes[0].Apply == "" {
		t.Fatalf("%+v", changes)
	}
	got := fmt.Sprintf("%s (%s): %s", changes[1].Text, changes[1].Effect, strings.Join(changes[1].Notes, "; "))
	want := "label pod shop/web: role=api (also opens 2, closes 0 pairs of pods; opens pods to or from addresses outside): " +
		"ReplicaSet web-7d4 disowns pod shop/web if it selects by role, and starts another pod in its place"
	if got != want {
		t.Errorf("the second advice is %s,\nnot %s", got, want)
	}
	w.pod("shop/web", "pod-template-hash=7d4")
	changes = w.nearest("shop/web", "shop/db", "tcp/5432")
	want = "ReplicaSet web-7d4 makes its next pod without the label, unless its template has it too"
	if len(changes) != 2 || changes[1].Notes[0] != want {
		t.Errorf("of a new label, it is said: %+v", changes)
	}
}

// TestSelectorsOfAdvice shows which labels select pods: few, those that later replicas have too, and such that they
// match no more pods than necessary.
func TestSelectorsOfAdvice(t *testing.T) {
	const head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: db-from-%s-tcp-80\n  namespace: shop\nspec:\n" +
		"  ingress:\n  - from:\n    - podSelector:%s\n    ports:\n    - port: 80\n      protocol: TCP\n" +
		"  podSelector:\n    matchLabels:\n      role: db\n  policyTypes:\n  - Ingress\n"
	for _, c := range []struct {
		name   string
		labels string
		others []string
		// nick and selector stand in the advice.
		nick, selector, effect string
	}{
		{"replicas_are_not_distinguished", "app=x pod-template-hash=abc", []string{"app=x pod-template-hash=abc"}, "x",
			"\n        matchLabels:\n          app: x", "also opens 1, closes 0 pairs of pods"},
		{"a_stateful_pod_is", "app=x statefulset.kubernetes.io/pod-name=x-0", []string{"app=x statefulset.kubernetes.io/pod-name=x-1"},
			"x-new", "\n        matchLabels:\n          statefulset.kubernetes.io/pod-name: x-0", "also opens 0, closes 0 pairs of pods"},
		{"two_labels_if_one_is_not_enough", "app=x tier=a", []string{"app=x tier=b", "app=y tier=a"}, "x",
			"\n        matchLabels:\n          app: x\n          tier: a", "also opens 0, closes 0 pairs of pods"},
		{"no_label_of_others", "app=x", []string{"app=x canary=true"}, "x",
			"\n        matchExpressions:\n        - key: canary\n          operator: DoesNotExist\n        matchLabels:\n          app: x",
			"also opens 0, closes 0 pairs of pods"},
		{"no_labels_at_all", "", nil, "x-new", "\n        matchExpressions:\n        - key: role\n          operator: DoesNotExist",
			"also opens 0, closes 0 pairs of pods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.pod("shop/x-new", c.labels)
			for i, labels := range c.others {
				w.pod(fmt.Sprintf("shop/other-%d", i), labels)
			}
			changes := w.nearest("shop/x-new", "shop/db", "tcp/80")
			if len(changes) == 0 {
				t.Fatal("there is no advice")
			}
			if diff := cmp.Diff(fmt.Sprintf(head, c.nick, c.selector), changes[0].Apply); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := changes[0].String(); got != c.effect {
				t.Errorf("it %s, not %s", got, c.effect)
			}
		})
	}
}

// TestNamesOfAdvisedPolicies shows that no policy that there is would be overwritten, and that names are valid.
func TestNamesOfAdvisedPolicies(t *testing.T) {
	w := newHarness(t)
	w.policy("shop/db-from-web-tcp-80", `{podSelector: {matchLabels: {role: absent}}}`)
	if changes := w.nearest("shop/web", "shop/db", "tcp/80"); changes[0].Text != "add policy shop/db-from-web-tcp-80-2" {
		t.Errorf("it says %s", changes[0].Text)
	}
	long := strings.Repeat("Long.", 12)
	w.pod("shop/long", "role="+long+"x")
	changes := w.nearest("shop/long", "shop/db", "tcp/80")
	name, ok := strings.CutPrefix(changes[0].Text, "add policy shop/")
	if !ok || !strings.HasPrefix(name, "db-from-long-long-") || len(validation.IsDNS1123Label(name)) > 0 {
		t.Errorf("it says %s", changes[0].Text)
	}
}

// TestNoAdvice shows where there is none: nothing is denied, or no policy could say it.
func TestNoAdvice(t *testing.T) {
	w := newHarness(t)
	if changes := w.nearest("shop/api", "shop/db", "tcp/5432"); changes != nil {
		t.Errorf("of what is allowed, it is said: %+v", changes)
	}
	// Of an agent of a node, only one address is also claimed by an isolated pod: no policy selects the other one.
	w.SetPod(fixture.Pod("ops/agent node2 HostNetwork 172.31.0.1 10.32.1.3"))
	if changes := w.nearest("ops/agent", "198.51.100.7", "tcp/80"); changes != nil {
		t.Errorf("of an address that is no pod's, it is said: %+v", changes)
	}
	w.pod("late/x", "role=x")
	if changes := w.nearest("late/x", "shop/db", "tcp/5432"); changes != nil {
		t.Errorf("of a namespace without an object, it is said: %+v", changes)
	}
}

// TestAdviceOfLabels shows which labels are advised, and that the change which opens least is.
func TestAdviceOfLabels(t *testing.T) {
	const text = "label pod shop/x: "
	for _, c := range []struct{ name, pod, peer, want string }{
		{"a_missing_label", "", `podSelector: {matchLabels: {role: api}}`, text + "role=api"},
		{"one_that_must_be_there", "", `podSelector: {matchExpressions: [{key: trusted, operator: Exists}]}`, text + "trusted=true"},
		{"one_that_must_not_be_there", "old=a b=c", `podSelector: {matchExpressions: [{key: old, operator: DoesNotExist}]}`, text + "old-"},
		{"one_that_must_be_another", "env=test", `podSelector: {matchExpressions: [{key: env, operator: NotIn, values: [test]}]}`, text + "env-"},
		{"the_first_of_several_values", "", `podSelector: {matchExpressions: [{key: env, operator: In, values: [stage, prod]}]}`, text + "env=prod"},
		{"a_value_that_no_label_can_have", "", `podSelector: {matchLabels: {role: "no label;"}}`, "none"},
		{"a_contradiction", "", `podSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}`, "none"},
		{"the_namespace", "role=x", `namespaceSelector: {matchLabels: {team: a}}`, "label namespace shop: team=a"},
		{"the_namespace_and_the_pod", "role=x", `namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {role: api}}`,
			"label namespace shop: team=a, and label pod shop/x: role=api"},
		{"the_name_of_a_namespace", "role=x", `namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}`, "none"},
		{"a_pod_instead_of_its_namespace", "", `namespaceSelector: {matchLabels: {team: a}}}, {podSelector: {matchLabels: {role: api}}`,
			text + "role=api"},
		{"what_opens_less", "", `podSelector: {matchLabels: {role: api}}}, {podSelector: {matchLabels: {fresh: "1"}}`, text + "fresh=1"},
		{"what_opens_nothing_outside", "env=closed", `podSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}, ` +
			`{podSelector: {matchLabels: {fresh: "1"}}`, text + "fresh=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.pod("shop/x", c.pod)
			w.policy("shop/closed", `{podSelector: {matchLabels: {env: closed}}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {}}]}]}`)
			w.policy("shop/api", `{podSelector: {matchLabels: {role: web}}, ingress: [{from: [{podSelector: {matchLabels: {role: api}}}]}]}`)
			w.policy("shop/db", `{podSelector: {matchLabels: {role: db}}, ingress: [{from: [{`+c.peer+`}]}]}`)
			got := "none"
			if changes := w.nearest("shop/x", "shop/db", "tcp/80"); len(changes) == 2 {
				got = changes[1].Text
			} else if len(changes) != 1 || changes[0].Apply == "" {
				t.Fatalf("%+v", changes)
			}
			if got != c.want {
				t.Errorf("the advice is %s, not %s", got, c.want)
			}
		})
	}
}

// TestAdviceOfLabelsAtBothEnds shows a flow that both ends deny, and that the advice is enough.
func TestAdviceOfLabelsAtBothEnds(t *testing.T) {
	w := newHarness(t)
	w.pod("shop/a", "role=a")
	w.pod("shop/b", "role=b")
	w.policy("shop/a", `{podSelector: {matchLabels: {role: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {in: "1"}}}]}]}`)
	w.policy("shop/b", `{podSelector: {matchLabels: {role: b}}, ingress: [{ports: [{port: 99}]}, {from: [{podSelector: {matchLabels: {out: "1"}}}]}]}`)
	changes := w.nearest("shop/a", "shop/b", "tcp/80")
	if len(changes) != 2 || changes[0].Text != "add policy shop/a-to-b-tcp-80 and policy shop/b-from-a-tcp-80" ||
		changes[1].Text != "label pod shop/b: in=1, and label pod shop/a: out=1" {
		t.Fatalf("%+v", changes)
	}
	for _, c := range changes {
		after := c.In(w.Cluster)
		if v := explain.Explain(after.View(), fixture.Flows(t, after.View(), "shop/a", "shop/b", "tcp/80")[0]); !v.Allowed {
			t.Errorf("%s is not enough:\n%s", c.Text, v)
		}
	}
	// One change of a namespace is enough for both directions.
	w.policy("shop/a", `{podSelector: {matchLabels: {role: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {t: a}}}]}]}`)
	w.policy("shop/b", `{podSelector: {matchLabels: {role: b}}, ingress: [{from: [{namespaceSelector: {matchLabels: {t: a}}}]}]}`)
	if changes = w.nearest("shop/a", "shop/b", "tcp/80"); len(changes) != 2 || changes[1].Text != "label namespace shop: t=a" {
		t.Errorf("%d changes, the last is %s", len(changes), changes[len(changes)-1].Text)
	}
}

// TestAdviceForOtherProtocols shows that a policy for icmp is advised together with what else it allows.
func TestAdviceForOtherProtocols(t *testing.T) {
	changes := newHarness(t).nearest("shop/web", "shop/db", "icmp")
	if len(changes) == 0 || strings.Contains(changes[0].Apply, "ports") ||
		strings.Join(changes[0].Notes, ";") != "a policy cannot name icmp: without ports it allows every protocol and port between the two" {
		t.Errorf("%+v", changes)
	}
}

// TestVersionLabelsAreSelectedLast shows that the version of a pod is the last thing that an advised policy selects by.
func TestVersionLabelsAreSelectedLast(t *testing.T) {
	w := newHarness(t)
	w.pod("shop/x", "app.kubernetes.io/version=v1 zone=a helm.sh/chart=c")
	changes := w.nearest("shop/x", "shop/db", "tcp/80")
	if len(changes) == 0 || !strings.Contains(changes[0].Apply, "matchLabels:\n          zone: a\n    ports") {
		t.Errorf("%+v", changes)
	}
}

// TestWhatYAMLCannotHold is an error: manifests may have labels that an API server refuses.
func TestWhatYAMLCannotHold(t *testing.T) {
	w := newHarness(t)
	w.pod("shop/odd", "role=x\x7fy")
	flows := fixture.Flows(w, w.View(), "shop/odd", "shop/db", "tcp/5432")
	changes, err := advice.Request{Cluster: w.Cluster, Flows: flows}.Nearest()
	if err == nil || !strings.Contains(err.Error(), "writing down the nearest change: ") {
		t.Errorf("%v, %v", changes, err)
	}
}
