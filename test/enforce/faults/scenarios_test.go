package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// killScenarios returns the scenarios of TestS63_KilledAtEveryStep.
func killScenarios() []killScenario {
	return slices.Concat([]killScenario{
		{name: "first_start_on_a_live_node", states: []e2e.Change{killed()}, reset: func(t *testing.T, w *e2e.Cluster) {
			t.Helper()
			clean(t, w)
		}},
		{name: "the_first_policies_come_and_the_last_go", states: []e2e.Change{killedBase(), killed()}},
		{name: "a_policy_comes_and_goes", states: []e2e.Change{killed(), e2e.Do(killed(), e2e.Policy("shop/q", `
podSelector: {matchExpressions: [{key: app, operator: In, values: [api, db]}]}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}]}, {from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 7, protocol: UDP}]}]
egress: [{to: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: b}}}]}]`))}},
		{name: "a_policy_is_edited", states: []e2e.Change{killed(), e2e.Do(killed(), e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, api]}]}}]
  ports: [{port: 7, endPort: 9, protocol: UDP}]
- from: [{ipBlock: {cidr: 192.0.0.0/16, except: [192.0.3.0/24]}}, {ipBlock: {cidr: "2001:db8::/48"}}]
egress: [{to: [{namespaceSelector: {}}]}]`))}},
		{name: "a_pod_is_not_isolated_any_more", states: []e2e.Change{killed(), e2e.Do(killed(), e2e.Policy("ops/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: a}}}]}]`))}},
		{name: "pods_come_and_finish", states: []e2e.Change{ // first they run: once bound, their ports stay so
			e2e.Do(killed(), newcomers(e2e.Phase(corev1.PodRunning))), e2e.Do(killed(),
				newcomers(e2e.Phase(corev1.PodSucceeded)))}},
		{name: "a_peer_is_relabelled", states: []e2e.Change{killed(),
			e2e.Do(killed(), e2e.Pod("shop/db", e2e.Labelled("app=none")),
				e2e.Pod("ops/mon", e2e.Labelled("app=web")))}},
		{name: "a_target_is_relabelled", states: []e2e.Change{killed(),
			e2e.Do(killed(), e2e.Pod("shop/api", e2e.Labelled("app=web")))}},
		{name: "a_target_goes_to_another_part", states: []e2e.Change{e2e.Do(killed(), targets(40)),
			e2e.Do(killed(), targets(40), e2e.Pod("shop/api", e2e.Labelled("app=web")))}},
		{name: "a_namespace_is_divided", states: []e2e.Change{e2e.Do(killed(), targets(4)),
			e2e.Do(killed(), targets(40))}},
		{name: "rules_are_united", states: []e2e.Change{e2e.Do(killed(), peers(3)), e2e.Do(killed(), peers(6)),
			e2e.Do(killed(), peers(8), e2e.Pod("shop/db", e2e.Labelled("app=none")))}},
		{name: "an_address_is_handed_over", states: []e2e.Change{killed(), e2e.Do(killed(), e2e.Without("shop/web"),
			e2e.Pod("ops/next", e2e.At("web"), e2e.UID("next"), e2e.Started, e2e.Labelled("app=next")))},
			prepare: oldFlowPasses, check: oldFlowEnded},
		{name: "an_address_is_handed_to_a_pod_of_the_same_name", states: []e2e.Change{e2e.Do(killed(), closed()),
			e2e.Do(killed(), closed(), e2e.Pod("shop/web", e2e.UID("again"), e2e.Labelled("app=other")))},
			prepare: oldFlowPasses, check: oldFlowEnded},
		{name: "a_namespace_is_relabelled", states: []e2e.Change{killed(),
			e2e.Do(killed(), e2e.Namespace("ops", "team=a"))}},
		{name: "a_pod_waits_for_its_address", states: []e2e.Change{killed(),
			e2e.Do(killed(), e2e.Pod("shop/waits", e2e.On("node1"), e2e.Labelled("app=web")),
				e2e.Pod("shop/too", e2e.On("node2"), e2e.Labelled("app=web")))},
			evaluated: []e2e.Change{killed(), e2e.Do(killed(), e2e.Pod("shop/late", e2e.Labelled("app=unknown")),
				e2e.Pod("shop/later", e2e.Labelled("app=unknown")),
				e2e.Policy("shop/unknown", `{podSelector: {matchLabels: {app: unknown}}, policyTypes: [Ingress, Egress]}`))}},
		{name: "an_isolated_pod_is_deleted", states: []e2e.Change{killed(), e2e.Do(killed(), e2e.Without("shop/web"))},
			evaluated: []e2e.Change{killed(), e2e.Do(killed(), e2e.Pod("shop/web", e2e.Labelled("app=deleted"),
				e2e.NoPorts),
				e2e.Policy("shop/deleted", `{podSelector: {matchLabels: {app: deleted}}, policyTypes: [Ingress, Egress]}`))}},
		{name: "the_address_of_a_free_pod_is_used_again", states: []e2e.Change{killed(),
			e2e.Do(killed(), e2e.Without("shop/api")),
			e2e.Do(killed(), e2e.Without("shop/api"), e2e.Pod("shop/next", e2e.At("api"), e2e.UID("next"), e2e.Started,
				e2e.Labelled("app=next")))}},
		{name: "a_thousand_pods_are_relabelled", states: []e2e.Change{e2e.Do(killed(), crowd("app=none")),
			e2e.Do(killed(), crowd("app=db"))}},
		{name: "take_over_from_the_original", families: []int{4},
			states:  []e2e.Change{e2e.Do(killed(), newcomers(e2e.Phase(corev1.PodRunning)))},
			arrives: "-*>pods +*>web", reset: func(t *testing.T, w *e2e.Cluster) {
				t.Helper()
				clean(t, w)
				for _, n := range w.Nodes() {
					e2e.Run(t, n.Host, "iptables-"+string(w.Backend), "-w", "-F", "FORWARD")
					e2e.LeaveOriginal(t, w, n)
				}
			}},
		{name: "another_version_left_it", states: []e2e.Change{killed()}, stands: true,
			says: "were written by another version|sets by our names are not ours",
			reset: func(t *testing.T, w *e2e.Cluster) {
				t.Helper()
				for _, n := range w.Nodes() {
					for _, iptables := range []string{"iptables-", "ip6tables-"} {
						e2e.Run(t, n.Host, iptables+string(w.Backend), "-w", "-E", "WEAVE-NPC-LAYOUT-1",
							"WEAVE-NPC-LAYOUT-0")
					}
				}
			}},
		{name: "drift_is_repaired", states: []e2e.Change{killed()}, says: "drift found", disturb: drift},
	}, killTierScenarios(), killTerminateScenarios())
}

// killedBase returns e2e.Base with pods that name the port of the streams.
func killedBase() e2e.Change {
	return e2e.Do(e2e.Base(), e2e.Pod("shop/web", e2e.Port("echo", e2e.StreamPort, corev1.ProtocolUDP)),
		e2e.Pod("shop/api", e2e.Port("echo", e2e.StreamPort+1, corev1.ProtocolUDP)))
}

// killed makes a state of the cluster with sets of every type. In it, the streams' flows have all kinds of verdicts.
func killed() e2e.Change {
	return e2e.Do(killedBase(), e2e.RichPolicies(`{port: echo, protocol: UDP}, {port: 53, protocol: UDP}, {port: 80}`,
		`{port: echo, protocol: UDP}`))
}

// targets returns policies with different targets: all pods except some that do not exist, and one target without web.
// They allow next to nothing.
func targets(n int) e2e.Change {
	var all []e2e.Change
	for i := range n {
		but := fmt.Sprintf("none-%d", i)
		if i == 0 {
			but = "web"
		}
		all = append(all, e2e.Policy(fmt.Sprintf("shop/target-%d", i), fmt.Sprintf(`
podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [%s]}]}
policyTypes: [Ingress, Egress]
ingress: [{from: [{ipBlock: {cidr: 192.0.2.%d/32}}], ports: [{port: 81}]}]
egress: [{to: [{ipBlock: {cidr: 192.0.2.%d/32}}], ports: [{port: 81}]}]`, but, i+1, i+1)))
	}
	return e2e.Do(all...)
}

// peers returns policies that let the database and a pod that does not exist, which is another for each, reach web.
func peers(n int) e2e.Change {
	var all []e2e.Change
	for i := range n {
		all = append(all, e2e.Policy(fmt.Sprint("shop/peer-", i), fmt.Sprintf(`
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, none-%d]}]}}]}]`, i)))
	}
	return e2e.Do(all...)
}

// closed isolates the pods with a label from everything.
func closed() e2e.Change {
	return e2e.Policy("shop/closed", `{podSelector: {matchLabels: {app: other}}, policyTypes: [Ingress, Egress]}`)
}

// newcomers returns pods for the two hosts whose addresses no other object has: one is isolated, the other is not.
func newcomers(now func(*e2e.Cluster, *corev1.Pod)) e2e.Change {
	return e2e.Do(e2e.Pod("ops/late", now, e2e.Labelled("app=web")), e2e.Pod("shop/later", now, e2e.Labelled("app=db")))
}

// crowd returns pods of a node that is not there, and that have names so long that a set of them takes more than one
// message, and more than is sent at once.
func crowd(labels string) e2e.Change {
	return func(w *e2e.Cluster, o *e2e.Objects) {
		for i := range 1000 {
			e2e.Pod(fmt.Sprintf("shop/%s-%d", strings.Repeat("crowd-", 30), i), e2e.On("node9"), e2e.Labelled(labels),
				func(_ *e2e.Cluster, p *corev1.Pod) {
					p.Status.Phase = corev1.PodRunning
					p.Status.PodIP = fmt.Sprintf("10.32.%d.%d", 100+i/250, 1+i%250)
					p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}, {IP: fmt.Sprintf("fd10:32:0:9::%x", 1+i)}}
				})(w, o)
		}
	}
}

// clean removes all that is weave-npc's from the nodes.
func clean(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	for _, n := range w.Nodes() {
		if _, stderr, status := e2e.Execute(t, n, nil, "cleanup"); status != 0 {
			t.Fatalf("cleanup on %s ends with %d\n%s", n, status, stderr)
		}
	}
}

// oldFlowPasses opens a flow to the pod that has web's address, always from the same port.
func oldFlowPasses(t *testing.T, w *e2e.Cluster, state int) {
	t.Helper()
	if state == 0 {
		e2e.EachFamily(func(family int) { w.Probe(t, "db", e2e.OldFlow(w, "web", family), lab.Allowed) })
	}
}

// oldFlowEnded expects that the next pod has nothing of it.
func oldFlowEnded(t *testing.T, w *e2e.Cluster, state int) {
	t.Helper()
	if state == 1 {
		e2e.EachFamily(func(family int) { w.Probe(t, "db", e2e.OldFlow(w, "web", family), lab.Dropped) })
	}
}

// drift is what others do to the rules and sets of weave-npc without changing any verdict that is asked for.
func drift(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	for _, n := range w.Nodes() {
		for _, iptables := range []string{"iptables-", "ip6tables-"} {
			iptables += string(w.Backend)
			e2e.Run(t, n.Host, iptables, strings.Fields("-w -I WEAVE-NPC-INGRESS -p tcp --dport 1 -j ACCEPT")...)
			e2e.Run(t, n.Host, iptables, strings.Fields("-w -I WEAVE-NPC-FORWARD -p tcp --dport 2 -j ACCEPT")...)
			// Another program's rule was put above the jump, and stays below it.
			rule := strings.Fields("FORWARD -p tcp --dport 3 -j ACCEPT")
			_ = n.Command(t.Context(), iptables, append([]string{"-w", "-D"}, rule...)...).Run() // there is none at first
			e2e.Run(t, n.Host, iptables, append([]string{"-w", "-I"}, rule...)...)
		}
		e2e.Run(t, n.Host, "ipset", "add", "weave-local-pods", "198.51.100.1")
		e2e.Run(t, n.Host, "ipset", "add", "weave-local-pods-v6", "2001:db8:9::1")
	}
}
