package policies

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// addressCases show what the claims of objects do to addresses that pods have.
func addressCases() []e2e.Case {
	const onlyDB = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	const unlisted = "addresses that no object lists"
	closed := e2e.Wants{"tcp 80": "-*>web +db>web", "udp 53": "-*>web +db>web"}
	justStarted := e2e.Started
	started := func(at time.Time) func(*e2e.Cluster, *corev1.Pod) {
		return func(_ *e2e.Cluster, p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}}
		}
	}
	sandbox := func(ready corev1.ConditionStatus) func(*e2e.Cluster, *corev1.Pod) {
		return func(_ *e2e.Cluster, p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: ready}}
		}
	}
	// Policies alone do not decide about an address that does not count.
	waits := func(t *testing.T, w *e2e.Cluster) {
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web", "udp 53": "-*>web"})
	}
	beforeBoot := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	return []e2e.Case{
		{Name: "S73_an_address_counts_from_when_it_was_reported", Says: []string{unlisted}, Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", onlyDB), Want: closed},
			{About: "since before the node was started", Do: e2e.Pod("shop/web", started(beforeBoot)), Then: waits},
			{About: "it is reported again", Do: e2e.Pod("shop/web", started(time.Now())), Want: closed},
			{About: "the sandbox is not there any more", Do: e2e.Pod("shop/web", sandbox(corev1.ConditionFalse)),
				Then: waits},
			{About: "it was made again", Do: e2e.Pod("shop/web", sandbox(corev1.ConditionTrue)), Want: closed},
			{About: "a pod that nothing isolates still claims, since before the start, what an isolated one has now that has not reported it",
				Do: e2e.Do(e2e.Pod("ops/old", e2e.At("web"), started(beforeBoot)),
					e2e.Pod("shop/web", noAddresses)), Then: waits},
			{About: "the isolated one has reported it", Do: e2e.Pod("shop/web", e2e.At("web"), started(time.Now())),
				Want: closed},
			{About: "a peer's address is of a former sandbox", Do: e2e.Pod("shop/db", sandbox(corev1.ConditionFalse)),
				Then: waits},
			{About: "and of the present one", Do: e2e.Pod("shop/db", sandbox(corev1.ConditionTrue)), Want: closed},
		}},
		{Name: "S72_no_object_takes_a_local_pods_address_out_of_enforcement", Says: []string{e2e.Conflict,
			"outside its range"}, Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", onlyDB), Want: closed},
			{About: "a finished pod of the other node has it in its hostIPs", Do: e2e.Pod("ops/liar", e2e.At("copy"),
				hostedAt("web"),
				e2e.Phase(corev1.PodSucceeded)), Want: closed,
				Then: reported("kind=host-ips .*pod=shop/web other=ops/liar")},
			{About: "a pod of the same node does", Do: e2e.Pod("ops/liar", hostedAt("web"),
				e2e.Phase(corev1.PodRunning), node1, noAddresses), Want: closed},
			{About: "a pod in the host's network has it itself", Do: e2e.Pod("ops/liar", e2e.At("web"),
				hostedAt("web"), e2e.HostNetwork), Want: closed},
			{About: "a later pod of the other node claims it", Do: e2e.Do(e2e.Without("ops/liar"),
				e2e.Pod("ops/late", e2e.At("web"), justStarted, node2)),
				Then: func(t *testing.T, w *e2e.Cluster) { w.Expect(t, closed) }}, // without a node, the owner of the address is unknown
			{About: "a later pod of the same node that nothing isolates claims it: nothing is allowed",
				Do: e2e.Do(e2e.Without("ops/late"),
					e2e.Pod("ops/later", e2e.At("web"), justStarted)), Then: func(t *testing.T, w *e2e.Cluster) {
					w.Expect(t, e2e.Wants{"tcp 80": "-*>web", "udp 53": "-*>web"}) // policies alone do not decide it
				}},
			{About: "and does not any more", Do: e2e.Pod("ops/later", e2e.Phase(corev1.PodSucceeded)), Want: closed},
			{About: "the node has it itself", Then: func(t *testing.T, w *e2e.Cluster) {
				for _, a := range w.Hosts["web"].Addrs() {
					e2e.Run(t, w.Node("node1").Host, "ip", "addr", "add", a.String()+hostBits(a.Is4()), "dev", "lo")
				}
				for _, d := range w.Daemons[:1] {
					d.AwaitLine(t, 0, "kind=node .*pod=shop/web")
				}
			}},
			{About: "a packet to the address that another pod sends is not let in",
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						w.Probe(t, "mon", lab.Packet{Proto: "udp", To: w.Hosts["web"].Addr(family), Port: 53}, lab.Dropped)
					})
					for _, a := range w.Hosts["web"].Addrs() {
						e2e.Run(t, w.Node("node1").Host, "ip", "addr", "del", a.String()+hostBits(a.Is4()), "dev", "lo")
					}
				}},
			{About: "the node does not have it any more", Do: e2e.Pod("shop/web", e2e.Labelled("app=web,again=yes")),
				Want: closed},
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
func reported(pattern string) func(*testing.T, *e2e.Cluster) {
	return func(t *testing.T, w *e2e.Cluster) {
		t.Helper()
		w.Daemons[0].AwaitLine(t, 0, e2e.Conflict+".*"+pattern)
		_, metrics := w.Daemons[0].Get("/metrics")
		if !strings.Contains(metrics, `weavenpc_address_conflicts{kind="host-ips"} 2`+"\n") {
			t.Errorf("the conflicts are not counted:\n%s", metrics)
		}
	}
}

// hostedAt makes a pod name a host's addresses as those of its node.
func hostedAt(host string) func(*e2e.Cluster, *corev1.Pod) {
	return func(w *e2e.Cluster, p *corev1.Pod) {
		p.Status.HostIPs = nil
		for _, a := range w.Hosts[host].Addrs() {
			p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.String()})
		}
		p.Status.HostIP = p.Status.HostIPs[0].IP
	}
}

func node1(_ *e2e.Cluster, p *corev1.Pod) { p.Spec.NodeName = "node1" }
func node2(_ *e2e.Cluster, p *corev1.Pod) { p.Spec.NodeName = "node2" }

func noAddresses(_ *e2e.Cluster, p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }
