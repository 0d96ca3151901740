package controller_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
)

// TestVerdictsOfAddresses checks which pod an address belongs to, as pods claim it, leave it and come back.
func TestVerdictsOfAddresses(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S25_host_network_pod_is_no_pod", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}}]}]}`)
			w.SetPod("a/host", "172.31.0.1", []string{"app=web"}, func(p *npc.Pod) { p.HostNetwork = true })
			w.Sync()
			w.Expect("172.31.0.1 > a/web tcp:80 = no\n a/client > 172.31.0.1 tcp:80 = yes")
		}},
		{"S25_an_address_of_a_node_is_no_pods", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)
			w.SetPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) {
				p.HostAddrs = []netip.Addr{netip.MustParseAddr("10.32.1.40"), netip.MustParseAddr("fd32:1::40")}
			})
			w.Remote("a/liar", "10.32.1.40,fd32:1::40", "app=client")
			w.Sync()
			w.Expect("a/liar > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
			w.DeletePod("a/client") // the last object that names it as the address of a node
			w.Again(false)
			w.Expect("a/liar > a/web tcp:80 = yes")
		}},
		{"S26_finished_pod_leaves", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes")
			w.SetPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.Finished = true })
			w.Again(false)
			w.Expect("a/client > a/web tcp:80 = no")
			for f, k := range w.Kernels {
				if len(k.Forgotten) != 1 || k.Forgotten[0] != w.Addrs["a/client"][f] {
					w.Errorf("forgotten: %v", k.Forgotten)
				}
			}
		}},
		{"S27_address_moves_before_the_delete", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.Sync()
			w.SetPod("a/late", "10.32.1.3,fd32:1::3", []string{"app=late"}, func(p *npc.Pod) { p.Started = time.Unix(9, 0) })
			w.Again(false)
			w.Expect("a/late > a/web tcp:80 = no")
			w.DeletePod("a/client")
			w.Again(false)
			w.Expect("a/late > a/web tcp:80 = no\n outside > a/late tcp:80 = yes")
			if got := len(w.Kernels[0].Forgotten); got != 1 {
				w.Errorf("flows of %d addresses were forgotten, not of one", got)
			}
		}},
		{"S27_of_two_that_claim_an_address", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			claim := func(name, addrs string, change func(*npc.Pod)) { w.SetPod(name, addrs, []string{"app=client"}, change) }
			later := time.Unix(9, 0)
			claim("a/local", "10.32.1.20,fd32:1::20", func(p *npc.Pod) { p.Labels = nil })
			claim("a/remote", "10.32.1.20,fd32:1::20", func(p *npc.Pod) { p.Node, p.Started = "node2", later })
			claim("a/stays", "10.32.1.21,fd32:1::21", func(p *npc.Pod) { p.Labels = nil })
			claim("a/ends", "10.32.1.21,fd32:1::21", func(p *npc.Pod) { p.Deleting, p.Started = true, later })
			claim("a/older", "10.32.1.22,fd32:1::22", func(p *npc.Pod) { p.Created = time.Unix(1, 0) })
			claim("a/newer", "10.32.1.22,fd32:1::22", func(p *npc.Pod) { p.Labels, p.Created = nil, time.Unix(2, 0) })
			w.Sync()
			w.Expect("a/local > a/web tcp:80 = no\n a/stays > a/web tcp:80 = no\n a/newer > a/web tcp:80 = no")
			for _, name := range []string{"a/local", "a/stays", "a/newer"} {
				w.DeletePod(name)
			}
			w.Again(false)
			w.Expect("a/remote > a/web tcp:80 = yes\n a/ends > a/web tcp:80 = yes\n a/older > a/web tcp:80 = yes")
		}},
		{"S27_a_flow_between_other_nodes_pods_is_not_ours_to_forget", func(w *harness) {
			w.Sync()
			w.Remote("b/next", "10.32.2.9,fd32:2::9", "app=next")
			w.DeletePod("b/other")
			w.Again(false)
			for _, k := range w.Kernels {
				if len(k.Forgotten) > 0 {
					w.Errorf("forgotten: %v", k.Forgotten)
				}
			}
		}},
		{"S30_made_again_with_the_same_name_and_address", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.Sync()
			w.SetPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.UID = "another" })
			w.Again(false)
			w.Expect("a/client > a/web tcp:80 = yes")
			for f, k := range w.Kernels {
				if len(k.Forgotten) != 1 || k.Forgotten[0] != w.Addrs["a/client"][f] {
					w.Errorf("forgotten: %v", k.Forgotten)
				}
			}
		}},
		{"S32_pods_before_and_after_their_namespaces", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}], ports: [{port: 1}]},
				{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}, podSelector: {matchLabels: {app: x}}}],
					ports: [{port: 2}]}]}`)
			w.Sync()
			w.Remote("late/x", "10.32.2.20,fd32:2::20", "app=x")
			w.Again(false)
			w.Expect("late/x > a/web tcp:1 = no\n late/x > a/web tcp:2 = no")
			w.Namespace("late")
			w.Again(false)
			w.Expect("late/x > a/web tcp:1 = yes\n late/x > a/web tcp:2 = yes")
			w.Remote("late/y", "10.32.2.21,fd32:2::21", "app=x")
			w.Again(false)
			w.Expect("late/y > a/web tcp:1 = yes\n late/y > a/web tcp:2 = yes")
			w.Model.DeleteNamespace("late", "ns-late")
			w.Again(false)
			w.Expect("late/x > a/web tcp:1 = no\n late/x > a/web tcp:2 = no")
		}},
	})
}
