package enforce

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/lab"
)

// conflict is the log line about an address that something contradicts.
const conflict = "conflict about an address"

// addressCases show what the claims of objects do to addresses that pods have.
func addressCases() []testCase {
	const onlyDB = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	closed := wants{"tcp 80": "-*>web +db>web", "udp 53": "-*>web +db>web"}
	justStarted := started
	started := func(at time.Time) func(*harness, *corev1.Pod) {
		return func(_ *harness, p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}}
		}
	}
	sandbox := func(ready corev1.ConditionStatus) func(*harness, *corev1.Pod) {
		return func(_ *harness, p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: ready}}
		}
	}
	// Policies alone do not decide about an address that does not count.
	waits := func(t *testing.T, w *harness) { w.expect(t, wants{"tcp 80": "-*>web", "udp 53": "-*>web"}) }
	beforeBoot := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	return []testCase{
		{name: "S73_an_address_counts_from_when_it_was_reported", steps: []step{
			{do: policy("shop/p", onlyDB), want: closed},
			{about: "since before the node was started", do: pod("shop/web", started(beforeBoot)), then: waits},
			{about: "it is reported again", do: pod("shop/web", started(time.Now())), want: closed},
			{about: "the sandbox is not there any more", do: pod("shop/web", sandbox(corev1.ConditionFalse)), then: waits},
			{about: "it was made again", do: pod("shop/web", sandbox(corev1.ConditionTrue)), want: closed},
			{about: "a pod that nothing isolates still claims, since before the start, what an isolated one has now that has not reported it",
				do: do(pod("ops/old", at("web"), started(beforeBoot)), pod("shop/web", noAddresses)), then: waits},
			{about: "the isolated one has reported it", do: pod("shop/web", at("web"), started(time.Now())), want: closed},
			{about: "a peer's address is of a former sandbox", do: pod("shop/db", sandbox(corev1.ConditionFalse)), then: waits},
			{about: "and of the present one", do: pod("shop/db", sandbox(corev1.ConditionTrue)), want: closed},
		}},
		{name: "S72_no_object_takes_a_local_pods_address_out_of_enforcement", says: []string{conflict, "outside its range"}, steps: []step{
			{do: policy("shop/p", onlyDB), want: closed},
			{about: "a finished pod of the other node has it in its hostIPs", do: pod("ops/liar", at("copy"), hostedAt("web"),
				phase(corev1.PodSucceeded)), want: closed, then: reported("kind=host-ips .*pod=shop/web other=ops/liar")},
			{about: "a pod of the same node does", do: pod("ops/liar", hostedAt("web"), phase(corev1.PodRunning), node1, noAddresses), want: closed},
			{about: "a pod in the host's network has it itself", do: pod("ops/liar", at("web"), hostedAt("web"), hostNetwork), want: closed},
			{about: "a later pod of the other node claims it", do: do(without("ops/liar"), pod("ops/late", at("web"), justStarted, node2)),
				then: func(t *testing.T, w *harness) { w.expect(t, closed) }}, // without a node, the owner of the address is unknown
			{about: "a later pod of the same node that nothing isolates claims it: nothing is allowed", do: do(without("ops/late"),
				pod("ops/later", at("web"), justStarted)), then: func(t *testing.T, w *harness) {
				w.expect(t, wants{"tcp 80": "-*>web", "udp 53": "-*>web"}) // policies alone do not decide it
			}},
			{about: "and does not any more", do: pod("ops/later", phase(corev1.PodSucceeded)), want: closed},
			{about: "the node has it itself", then: func(t *testing.T, w *harness) {
				for _, a := range w.hosts["web"].Addrs() {
					run(t, w.Node("node1").Host, "ip", "addr", "add", a.String()+hostBits(a.Is4()), "dev", "lo")
				}
				for _, d := range w.daemons[:1] {
					d.awaitLine(t, 0, "kind=node .*pod=shop/web")
				}
			}},
			{about: "a packet to the address that another pod sends is not let in", then: func(t *testing.T, w *harness) {
				families(func(family int) {
					w.probe(t, "mon", lab.Packet{Proto: "udp", To: w.hosts["web"].Addr(family), Port: 53}, lab.Dropped)
				})
				for _, a := range w.hosts["web"].Addrs() {
					run(t, w.Node("node1").Host, "ip", "addr", "del", a.String()+hostBits(a.Is4()), "dev", "lo")
				}
			}},
			{about: "the node does not have it any more", do: pod("shop/web", labelled("app=web,again=yes")), want: closed},
		}},
	}
}

func hostBits(is4 bool) string {
	if is4 {
		return "/32"
	}
	return "/128"
}

// reported returns what waits until the first node's weave-npc has reported a conflict.
func reported(pattern string) func(*testing.T, *harness) {
	return func(t *testing.T, w *harness) {
		t.Helper()
		w.daemons[0].awaitLine(t, 0, conflict+".*"+pattern)
		_, metrics := w.daemons[0].get("/metrics")
		if !strings.Contains(metrics, `weavenpc_address_conflicts{kind="host-ips"} 2`+"\n") {
			t.Errorf("the conflicts are not counted:\n%s", metrics)
		}
	}
}

// hostedAt makes a pod name a host's addresses as those of its node.
func hostedAt(host string) func(*harness, *corev1.Pod) {
	return func(w *harness, p *corev1.Pod) {
		p.Status.HostIPs = nil
		for _, a := range w.hosts[host].Addrs() {
			p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.String()})
		}
		p.Status.HostIP = p.Status.HostIPs[0].IP
	}
}

func node1(_ *harness, p *corev1.Pod) { p.Spec.NodeName = "node1" }
func node2(_ *harness, p *corev1.Pod) { p.Spec.NodeName = "node2" }

func noAddresses(_ *harness, p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }
