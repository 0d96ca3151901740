package enforce

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/lab"
)

// killScenarios returns the scenarios of TestS63_KilledAtEveryStep.
func killScenarios() []killScenario {
	return slices.Concat([]killScenario{
		{name: "first_start_on_a_live_node", states: []change{killed()}, reset: func(t *testing.T, w *harness) {
			t.Helper()
			w.clean(t)
		}},
		{name: "the_first_policies_come_and_the_last_go", states: []change{killedBase(), killed()}},
		{name: "a_policy_comes_and_goes", states: []change{killed(), do(killed(), policy("shop/q", `
podSelector: {matchExpressions: [{key: app, operator: In, values: [api, db]}]}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}]}, {from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 7, protocol: UDP}]}]
egress: [{to: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: b}}}]}]`))}},
		{name: "a_policy_is_edited", states: []change{killed(), do(killed(), policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, api]}]}}]
  ports: [{port: 7, endPort: 9, protocol: UDP}]
- from: [{ipBlock: {cidr: 192.0.0.0/16, except: [192.0.3.0/24]}}, {ipBlock: {cidr: "2001:db8::/48"}}]
egress: [{to: [{namespaceSelector: {}}]}]`))}},
		{name: "a_pod_is_not_isolated_any_more", states: []change{killed(), do(killed(), policy("ops/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: a}}}]}]`))}},
		{name: "pods_come_and_finish", states: []change{
			do(killed(), newcomers(phase(corev1.PodSucceeded))), do(killed(), newcomers(phase(corev1.PodRunning)))}},
		{name: "a_peer_is_relabelled", states: []change{killed(), do(killed(), pod("shop/db", labelled("app=none")),
			pod("ops/mon", labelled("app=web")))}},
		{name: "a_target_is_relabelled", states: []change{killed(), do(killed(), pod("shop/api", labelled("app=web")))}},
		{name: "a_target_goes_to_another_part", states: []change{do(killed(), targets(40)),
			do(killed(), targets(40), pod("shop/api", labelled("app=web")))}},
		{name: "a_namespace_is_divided", states: []change{do(killed(), targets(4)), do(killed(), targets(40))}},
		{name: "an_address_is_handed_over", states: []change{killed(), do(killed(), without("shop/web"),
			pod("ops/next", at("web"), uid("next"), started, labelled("app=next")))},
			prepare: oldFlowPasses, check: oldFlowEnded},
		{name: "an_address_is_handed_to_a_pod_of_the_same_name", states: []change{do(killed(), closed()),
			do(killed(), closed(), pod("shop/web", uid("again"), labelled("app=other")))}, prepare: oldFlowPasses, check: oldFlowEnded},
		{name: "a_namespace_is_relabelled", states: []change{killed(), do(killed(), namespace("ops", "team=a"))}},
		{name: "a_pod_waits_for_its_address", states: []change{killed(), do(killed(), pod("shop/waits", on("node1"), labelled("app=web")),
			pod("shop/too", on("node2"), labelled("app=web")))},
			evaluated: []change{killed(), do(killed(), pod("shop/late", labelled("app=unknown")), pod("shop/later", labelled("app=unknown")),
				policy("shop/unknown", `{podSelector: {matchLabels: {app: unknown}}, policyTypes: [Ingress, Egress]}`))}},
		{name: "an_isolated_pod_is_deleted", states: []change{killed(), do(killed(), without("shop/web"))},
			evaluated: []change{killed(), do(killed(), pod("shop/web", labelled("app=deleted"), noPorts),
				policy("shop/deleted", `{podSelector: {matchLabels: {app: deleted}}, policyTypes: [Ingress, Egress]}`))}},
		{name: "a_thousand_pods_are_relabelled", states: []change{do(killed(), crowd("app=none")), do(killed(), crowd("app=db"))}},
		{name: "take_over_from_the_original", families: []int{4}, states: []change{do(killed(), newcomers(phase(corev1.PodRunning)))},
			arrives: "-*>pods +*>web", reset: func(t *testing.T, w *harness) {
				t.Helper()
				w.clean(t)
				for _, n := range w.Nodes() {
					run(t, n.Host, "iptables-"+string(w.backend), "-w", "-F", "FORWARD")
					original(t, w, n)
				}
			}},
		{name: "another_version_left_it", states: []change{killed()}, stands: true, says: "were written by another version|sets by our names are not ours",
			reset: func(t *testing.T, w *harness) {
				t.Helper()
				for _, n := range w.Nodes() {
					for _, iptables := range []string{"iptables-", "ip6tables-"} {
						run(t, n.Host, iptables+string(w.backend), "-w", "-E", "WEAVE-NPC-LAYOUT-1", "WEAVE-NPC-LAYOUT-0")
					}
				}
			}},
		{name: "drift_is_repaired", states: []change{killed()}, says: "drift found", disturb: drift},
	}, killTierScenarios(), killTerminateScenarios())
}

// killedBase returns base with pods that name the port of the streams.
func killedBase() change {
	return do(base(), pod("shop/web", port("echo", streamPort, corev1.ProtocolUDP)),
		pod("shop/api", port("echo", streamPort+1, corev1.ProtocolUDP)))
}

// killed makes a state of the cluster with sets of every type. In it, the streams' flows have all kinds of verdicts.
func killed() change {
	return do(killedBase(), richPolicies(`{port: echo, protocol: UDP}, {port: 53, protocol: UDP}, {port: 80}`, `{port: echo, protocol: UDP}`))
}

// targets returns policies with different targets: all pods except some that do not exist, and one target without web.
// They allow next to nothing.
func targets(n int) change {
	var all []change
	for i := range n {
		but := fmt.Sprintf("none-%d", i)
		if i == 0 {
			but = "web"
		}
		all = append(all, policy(fmt.Sprintf("shop/target-%d", i), fmt.Sprintf(`
podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [%s]}]}
policyTypes: [Ingress, Egress]
ingress: [{from: [{ipBlock: {cidr: 192.0.2.%d/32}}], ports: [{port: 81}]}]
egress: [{to: [{ipBlock: {cidr: 192.0.2.%d/32}}], ports: [{port: 81}]}]`, but, i+1, i+1)))
	}
	return do(all...)
}

// closed isolates the pods with a label from everything.
func closed() change {
	return policy("shop/closed", `{podSelector: {matchLabels: {app: other}}, policyTypes: [Ingress, Egress]}`)
}

// newcomers returns pods for the two hosts whose addresses no other object has: one is isolated, the other is not.
func newcomers(now func(*harness, *corev1.Pod)) change {
	return do(pod("ops/late", now, labelled("app=web")), pod("shop/later", now, labelled("app=db")))
}

// crowd returns pods of a node that is not there, and that have names so long that a set of them takes more than one
// message, and more than is sent at once.
func crowd(labels string) change {
	return func(w *harness, o *objects) {
		for i := range 1000 {
			pod(fmt.Sprintf("shop/%s-%d", strings.Repeat("crowd-", 30), i), on("node9"), labelled(labels), func(_ *harness, p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Status.PodIP = fmt.Sprintf("10.32.%d.%d", 100+i/250, 1+i%250)
				p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}, {IP: fmt.Sprintf("fd10:32:0:9::%x", 1+i)}}
			})(w, o)
		}
	}
}

// clean removes all that is weave-npc's from the nodes.
func (w *harness) clean(t *testing.T) {
	t.Helper()
	for _, n := range w.Nodes() {
		if _, stderr, status := execute(t, n, nil, "cleanup"); status != 0 {
			t.Fatalf("cleanup on %s ends with %d\n%s", n, status, stderr)
		}
	}
}

// oldFlowPasses opens a flow to the pod that has web's address, always from the same port.
func oldFlowPasses(t *testing.T, w *harness, state int) {
	t.Helper()
	if state == 0 {
		families(func(family int) { w.probe(t, "db", oldFlow(w, "web", family), lab.Allowed) })
	}
}

// oldFlowEnded expects that the next pod has nothing of it.
func oldFlowEnded(t *testing.T, w *harness, state int) {
	t.Helper()
	if state == 1 {
		families(func(family int) { w.probe(t, "db", oldFlow(w, "web", family), lab.Dropped) })
	}
}

// drift is what others do to the rules and sets of weave-npc without changing any verdict that is asked for.
func drift(t *testing.T, w *harness) {
	t.Helper()
	for _, n := range w.Nodes() {
		for _, iptables := range []string{"iptables-", "ip6tables-"} {
			iptables += string(w.backend)
			run(t, n.Host, iptables, strings.Fields("-w -I WEAVE-NPC-INGRESS -p tcp --dport 1 -j ACCEPT")...)
			run(t, n.Host, iptables, strings.Fields("-w -I WEAVE-NPC-FORWARD -p tcp --dport 2 -j ACCEPT")...)
			// Another program's rule was put above the jump, and stays below it.
			rule := strings.Fields("FORWARD -p tcp --dport 3 -j ACCEPT")
			_ = n.Command(t.Context(), iptables, append([]string{"-w", "-D"}, rule...)...).Run() // there is none at first
			run(t, n.Host, iptables, append([]string{"-w", "-I"}, rule...)...)
		}
		run(t, n.Host, "ipset", "add", "weave-local-pods", "198.51.100.1")
		run(t, n.Host, "ipset", "add", "weave-local-pods-v6", "2001:db8:9::1")
	}
}
