package npc_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
)

// TestVerdictsOfAddresses checks which pod an address belongs to, as pods claim it, leave it and come back.
func TestVerdictsOfAddresses(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S25_host_network_pod_is_no_pod", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}}]}]}`)
			w.setPod("a/host", "172.31.0.1", []string{"app=web"}, func(p *npc.Pod) { p.HostNetwork = true })
			w.sync()
			w.expect("172.31.0.1 > a/web tcp:80 = no\n a/client > 172.31.0.1 tcp:80 = yes")
		}},
		{"S25_an_address_of_a_node_is_no_pods", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)
			w.setPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) {
				p.HostAddrs = []netip.Addr{netip.MustParseAddr("10.32.1.40"), netip.MustParseAddr("fd32:1::40")}
			})
			w.remote("a/liar", "10.32.1.40,fd32:1::40", "app=client")
			w.sync()
			w.expect("a/liar > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
			w.deletePod("a/client") // the last object that names it as the address of a node
			w.again(false)
			w.expect("a/liar > a/web tcp:80 = yes")
		}},
		{"S26_finished_pod_leaves", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)
			w.sync()
			w.expect("a/client > a/web tcp:80 = yes")
			w.setPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.Finished = true })
			w.again(false)
			w.expect("a/client > a/web tcp:80 = no")
			for f, k := range w.kernels {
				if len(k.Forgotten) != 1 || k.Forgotten[0] != w.addrs["a/client"][f] {
					w.Errorf("forgotten: %v", k.Forgotten)
				}
			}
		}},
		{"S27_address_moves_before_the_delete", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.sync()
			w.setPod("a/late", "10.32.1.3,fd32:1::3", []string{"app=late"}, func(p *npc.Pod) { p.Started = time.Unix(9, 0) })
			w.again(false)
			w.expect("a/late > a/web tcp:80 = no")
			w.deletePod("a/client")
			w.again(false)
			w.expect("a/late > a/web tcp:80 = no\n outside > a/late tcp:80 = yes")
			if got := len(w.kernels[0].Forgotten); got != 1 {
				w.Errorf("flows of %d addresses were forgotten, not of one", got)
			}
		}},
		{"S27_of_two_that_claim_an_address", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			claim := func(name, addrs string, change func(*npc.Pod)) { w.setPod(name, addrs, []string{"app=client"}, change) }
			later := time.Unix(9, 0)
			claim("a/local", "10.32.1.20,fd32:1::20", func(p *npc.Pod) { p.Labels = nil })
			claim("a/remote", "10.32.1.20,fd32:1::20", func(p *npc.Pod) { p.Node, p.Started = "node2", later })
			claim("a/stays", "10.32.1.21,fd32:1::21", func(p *npc.Pod) { p.Labels = nil })
			claim("a/ends", "10.32.1.21,fd32:1::21", func(p *npc.Pod) { p.Deleting, p.Started = true, later })
			claim("a/older", "10.32.1.22,fd32:1::22", func(p *npc.Pod) { p.Created = time.Unix(1, 0) })
			claim("a/newer", "10.32.1.22,fd32:1::22", func(p *npc.Pod) { p.Labels, p.Created = nil, time.Unix(2, 0) })
			w.sync()
			w.expect("a/local > a/web tcp:80 = no\n a/stays > a/web tcp:80 = no\n a/newer > a/web tcp:80 = no")
			for _, name := range []string{"a/local", "a/stays", "a/newer"} {
				w.deletePod(name)
			}
			w.again(false)
			w.expect("a/remote > a/web tcp:80 = yes\n a/ends > a/web tcp:80 = yes\n a/older > a/web tcp:80 = yes")
		}},
		{"S27_a_flow_between_other_nodes_pods_is_not_ours_to_forget", func(w *world) {
			w.sync()
			w.remote("b/next", "10.32.2.9,fd32:2::9", "app=next")
			w.deletePod("b/other")
			w.again(false)
			for _, k := range w.kernels {
				if len(k.Forgotten) > 0 {
					w.Errorf("forgotten: %v", k.Forgotten)
				}
			}
		}},
		{"S30_made_again_with_the_same_name_and_address", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.sync()
			w.setPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.UID = "another" })
			w.again(false)
			w.expect("a/client > a/web tcp:80 = yes")
			for f, k := range w.kernels {
				if len(k.Forgotten) != 1 || k.Forgotten[0] != w.addrs["a/client"][f] {
					w.Errorf("forgotten: %v", k.Forgotten)
				}
			}
		}},
		{"S32_pods_before_and_after_their_namespaces", func(w *world) {
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}], ports: [{port: 1}]},
				{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}, podSelector: {matchLabels: {app: x}}}],
					ports: [{port: 2}]}]}`)
			w.sync()
			w.remote("late/x", "10.32.2.20,fd32:2::20", "app=x")
			w.again(false)
			w.expect("late/x > a/web tcp:1 = no\n late/x > a/web tcp:2 = no")
			w.namespace("late")
			w.again(false)
			w.expect("late/x > a/web tcp:1 = yes\n late/x > a/web tcp:2 = yes")
			w.remote("late/y", "10.32.2.21,fd32:2::21", "app=x")
			w.again(false)
			w.expect("late/y > a/web tcp:1 = yes\n late/y > a/web tcp:2 = yes")
			w.model.DeleteNamespace("late", "ns-late")
			w.again(false)
			w.expect("late/x > a/web tcp:1 = no\n late/x > a/web tcp:2 = no")
		}},
	})
}
