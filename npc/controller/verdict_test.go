package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// TestVerdicts tells what packets get, by the promises' numbers, on paper and by what a real kernel holds.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world)
	}{
		{"S1_no_policy", func(w *world) {
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes\n outside > a/web udp:53 = yes\n a/web > outside tcp:1 = yes")
		}},
		{"S2_ingress_leaves_egress_free", func(w *world) {
			w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = no\n a/web > a/client tcp:80 = yes\n a/web > outside icmp = yes")
		}},
		{"S4_egress_only", func(w *world) {
			w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes\n a/web > a/client tcp:80 = no\n a/web > outside tcp:80 = no")
		}},
		{"S3_types_absent", func(w *world) {
			w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}]}]}`)
			w.Policy("a/q", `{podSelector: {matchLabels: {app: client}}}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = no\n a/web > outside tcp:80 = no\n outside > a/client tcp:1 = no\n a/client > outside tcp:1 = yes")
		}},
		{"S5_ingress_section_ignored", func(w *world) {
			w.Policy("a/p", `{podSelector: {}, policyTypes: [Egress], ingress: [], egress: [{}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:80 = yes\n a/web > outside tcp:80 = yes")
		}},
		{"S7_S10_allow_all_beside_deny_all", func(w *world) {
			w.Policy("a/deny", `{podSelector: {}}`)
			w.Policy("a/allow", `{podSelector: {}, ingress: [{}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:80 = yes\n outside > a/web sctp:80 = yes\n outside > a/web icmp = yes")
		}},
		{"S8_empty_lists_are_everything", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [], ports: [{port: 80}]}]}`)
			w.Policy("a/client", `{podSelector: {matchLabels: {app: client}}, ingress: [{from: [{podSelector: {}}], ports: []}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:80 = yes\n outside > a/web tcp:81 = no\n a/web > a/client icmp = yes\n b/other > a/client icmp = no")
		}},
		{"S9_empty_selector_its_namespace_only", func(w *world) {
			w.Policy("a/deny", `{podSelector: {}}`)
			w.Sync()
			w.Expect("b/other > a/web tcp:80 = no\n a/web > b/other tcp:80 = yes")
		}},
		{"S10_rules_are_for_the_pods_of_their_policy", func(w *world) {
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
		{"S11_both_must_allow", func(w *world) {
			w.Policy("a/in", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)
			w.Policy("b/out", `{podSelector: {}, policyTypes: [Egress]}`)
			w.Sync()
			w.Expect("b/client > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
			w.Policy("b/out", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`)
			w.Again(false)
			w.Expect("b/client > a/web tcp:80 = yes\n b/client > a/web tcp:81 = no")
		}},
		{"S12_peers_that_match_nobody", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{}], ports: [{port: 1}]},
				{from: [{podSelector: {matchLabels: {app: none}}}], ports: [{port: 2}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:1 = no\n outside > a/web tcp:1 = no\n a/client > a/web tcp:2 = no\n outside > a/web tcp:2 = no")
		}},
		{"S13_last_policy_goes", func(w *world) {
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
		{"S13_one_of_two_with_the_same_rules_goes", func(w *world) {
			spec := `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: client}}}, {ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]}`
			w.Policy("a/one", spec)
			w.Policy("a/two", spec)
			// It shares a selector and blocks with them, and no rule.
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
		{"S13_of_two_with_the_same_many_peers_one_goes", func(w *world) {
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
		{"S15_S16_S17_S18_peers", func(w *world) {
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
		{"S19_the_same_selectors_in_two_namespaces", func(w *world) {
			w.Remote("b/far", "10.32.2.8,fd32:2::8", "app=client")
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.Policy("b/client", `{podSelector: {matchLabels: {app: client}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:80 = yes\n b/client > a/web tcp:80 = no\n a/client > b/client tcp:80 = no\n b/far > b/client tcp:80 = yes\n" +
				"b/far > a/web tcp:80 = no")
		}},
		{"S20_operators", func(w *world) {
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
		{"S20_operators_of_pods_that_arrive_late", func(w *world) {
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
		{"S22_namespace_relabelled", func(w *world) {
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
		{"S23_a_target_is_relabelled", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:81 = no\n outside > a/client tcp:81 = yes")
			w.Relabel("a/web", "app=client")
			w.Relabel("a/client", "app=web")
			w.Again(false)
			w.Expect("outside > a/web tcp:81 = yes\n outside > a/client tcp:81 = no\n outside > a/client tcp:80 = yes")
		}},
		{"S25_host_network_pod_is_no_pod", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}}]}]}`)
			w.SetPod("a/host", "172.31.0.1", []string{"app=web"}, func(p *npc.Pod) { p.HostNetwork = true })
			w.Sync()
			w.Expect("172.31.0.1 > a/web tcp:80 = no\n a/client > 172.31.0.1 tcp:80 = yes")
		}},
		{"S25_an_address_of_a_node_is_no_pods", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`)
			w.SetPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) {
				p.HostAddrs = []netip.Addr{netip.MustParseAddr("10.32.1.40"), netip.MustParseAddr("fd32:1::40")}
			})
			w.Remote("a/liar", "10.32.1.40,fd32:1::40", "app=client")
			w.Sync()
			w.Expect("a/liar > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
			w.DeletePod("a/client") // and nobody says any more that it is a node's
			w.Again(false)
			w.Expect("a/liar > a/web tcp:80 = yes")
		}},
		{"S26_finished_pod_leaves", func(w *world) {
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
		{"S27_address_moves_before_the_delete", func(w *world) {
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
		{"S27_of_two_that_claim_an_address", func(w *world) {
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
		{"S27_a_flow_between_other_nodes_pods_is_not_ours_to_forget", func(w *world) {
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
		{"S30_made_again_with_the_same_name_and_address", func(w *world) {
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
		{"S32_pods_before_and_after_their_namespaces", func(w *world) {
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
		{"S33_to_S36_blocks", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.0/29]}}], ports: [{port: 1}]},
				{from: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.0/29]}}, {ipBlock: {cidr: 198.51.100.4/30}}], ports: [{port: 2}]},
				{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [128.0.0.0/1]}}, {ipBlock: {cidr: "::/0"}}], ports: [{port: 3}]},
				{from: [{ipBlock: {cidr: 198.051.100.9/24}}], ports: [{port: 4}]}]}`)
			w.Sync()
			w.Expect(`
				198.51.100.7 > 10.32.1.2 tcp:1 = no
				198.51.100.8 > 10.32.1.2 tcp:1 = yes
				198.51.100.7 > 10.32.1.2 tcp:2 = yes
				198.51.100.7 > 10.32.1.2 tcp:3 = no
				98.51.100.7 > 10.32.1.2 tcp:3 = yes
				2001:db8::7 > fd32:1::2 tcp:3 = yes
				fd00::1 > fd32:1::2 tcp:3 = yes
				198.51.100.7 > 10.32.1.2 tcp:4 = yes`)
		}},
		{"S35_blocks_with_the_same_excepts", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.0/29]}}, {ipBlock: {cidr: "2001:db8::/64", except: ["2001:db8::/120"]}}],
					ports: [{port: 1}]},
				{from: [{ipBlock: {cidr: 198.51.0.0/16, except: [198.51.100.0/29]}}, {ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::/120"]}}],
					ports: [{port: 2}]},
				{from: [{ipBlock: {cidr: 198.51.100.0/24}}], ports: [{port: 3}]}]}`)
			w.Sync()
			w.Expect(`
				198.51.9.9 > 10.32.1.2 tcp:1 = no
				198.51.9.9 > 10.32.1.2 tcp:2 = yes
				198.51.100.9 > 10.32.1.2 tcp:1 = yes
				outside > a/web tcp:1 = no
				outside > a/web tcp:2 = no
				198.51.100.7 > 10.32.1.2 tcp:3 = yes
				2001:db8:1::7 > fd32:1::2 tcp:1 = no
				2001:db8:1::7 > fd32:1::2 tcp:2 = yes
				2001:db8:1::7 > fd32:1::2 tcp:3 = no`)
		}},
		{"S36_a_half_is_excepted", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1]}}, {ipBlock: {cidr: "::/0", except: ["::/1"]}}]}]}`)
			w.Sync()
			w.Expect("198.51.100.7 > 10.32.1.2 tcp:1 = yes\n 98.51.100.7 > 10.32.1.2 tcp:1 = no\n" +
				"2001:db8::7 > fd32:1::2 tcp:1 = no\n fd00::1 > fd32:1::2 tcp:1 = yes")
		}},
		{"S40_to_S49_ports", func(w *world) {
			w.SetPod("a/web", "10.32.1.2,fd32:1::2", []string{"app=web"}, func(p *npc.Pod) {
				p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: 80}, {Name: "dns", Protocol: 17, Port: 53}}
			})
			w.SetPod("a/web2", "10.32.1.9,fd32:1::9", []string{"app=web"}, func(p *npc.Pod) {
				p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: 8080}}
			})
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}, {port: dns}, {port: dns, protocol: UDP},
				{protocol: SCTP}, {port: 1000, endPort: 1002}, {port: none}, {port: 1}, {port: 3}, {port: 5}, {port: 7}, {port: 9}, {port: 11},
				{port: 13}, {port: 15}, {port: 17}, {port: 19}, {port: 21}, {port: 23}, {port: 25}, {port: 27}, {port: 29}, {port: 31}]}]}`)
			w.Sync()
			w.Expect(`
				outside > a/web tcp:80 = yes
				outside > a/web tcp:8080 = no
				outside > a/web2 tcp:8080 = yes
				outside > a/web2 tcp:80 = no
				outside > a/web udp:53 = yes
				outside > a/web tcp:53 = no
				outside > a/web2 udp:53 = no
				outside > a/web sctp:77 = yes
				outside > a/web tcp:999 = no
				outside > a/web tcp:1000 = yes
				outside > a/web tcp:1002 = yes
				outside > a/web tcp:1003 = no
				outside > a/web tcp:31 = yes
				outside > a/web tcp:30 = no
				outside > a/web udp:31 = no`)
		}},
		{"S43_one_between_two_ranges", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 10, endPort: 12}, {port: 14}, {port: 15, endPort: 15}]}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:12 = yes\n outside > a/web tcp:13 = no\n outside > a/web tcp:14 = yes\n outside > a/web tcp:15 = yes\n" +
				"outside > a/web tcp:16 = no")
		}},
		{"S44_S46_a_named_port_with_peers", func(w *world) {
			w.SetPod("a/web", "10.32.1.2,fd32:1::2", []string{"app=web"}, func(p *npc.Pod) {
				p.Ports = []npc.NamedPort{{Name: "dns", Protocol: 6, Port: 53}, {Name: "dns", Protocol: 17, Port: 54}}
			})
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: dns}]},
				{from: [{ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: dns, protocol: UDP}]}]}`)
			w.Sync()
			w.Expect(`
				a/client > a/web tcp:53 = yes
				a/client > a/web udp:54 = no
				b/client > a/web tcp:53 = no
				outside > a/web tcp:53 = no
				outside > a/web udp:54 = yes
				outside > a/web udp:53 = no
				b/other > a/web udp:54 = no`)
		}},
		{"S45_S48_named_ports_on_egress", func(w *world) {
			w.SetPod("b/other", "10.32.2.9", []string{"app=other"}, func(p *npc.Pod) {
				p.Node, p.Ports = "node2", []npc.NamedPort{{Name: "http", Protocol: 6, Port: 8080}}
			})
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`)
			w.Policy("a/client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [
				{to: [{namespaceSelector: {matchLabels: {team: b}}}, {ipBlock: {cidr: 10.32.2.0/24}}], ports: [{port: http}]}]}`)
			w.Sync()
			w.Expect(`
				a/web > b/other tcp:8080 = yes
				a/web > b/other tcp:80 = no
				a/web > outside tcp:8080 = no
				a/client > b/other tcp:8080 = yes
				a/client > b/other tcp:80 = no
				a/client > a/web tcp:8080 = no`)
		}},
		{"S45_S32_a_named_port_towards_anywhere_before_the_namespace_has_arrived", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`)
			w.SetPod("late/other", "10.32.2.10,fd32:2::10", nil, func(p *npc.Pod) {
				p.Node, p.Ports = "node2", []npc.NamedPort{{Name: "http", Protocol: 6, Port: 8080}}
			})
			w.Sync()
			w.Expect("a/web > late/other tcp:8080 = yes\n a/web > late/other tcp:80 = no")
			w.Namespace("late")
			w.Again(false)
			w.Expect("a/web > late/other tcp:8080 = yes\n a/web > late/other tcp:80 = no")
		}},
		{"S61_invalid_policy", func(w *world) {
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
		{"S20_value_that_no_label_can_have", func(w *world) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{podSelector: {matchLabels: {app: "no label;"}}}], ports: [{port: 1}]},
				{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: ["no label;"]}]}}], ports: [{port: 2}]}]}`)
			w.Sync()
			w.Expect("a/client > a/web tcp:1 = no\n a/client > a/web tcp:2 = yes")
			if bad := w.Model.Unreported(); len(bad) > 0 {
				w.Errorf("reported: %v", bad)
			}
		}},
	} {
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

// TestGate tells what unknown addresses of the node's range get.
func TestGate(t *testing.T) {
	each := func(name string, do func(t *testing.T, start starter)) {
		t.Run(name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, fresh starter) {
				do(t, func(t *testing.T, configure ...func(*npc.Config)) *world {
					w := fresh(t, configure...)
					w.Namespace("a")
					w.Addr("unknown", "10.32.1.77", "fd32:1::77")
					return w
				})
			})
		})
	}
	deny := `{podSelector: {matchLabels: {app: web}}}`
	each("S60_open_without_policy", func(t *testing.T, start starter) {
		w := start(t)
		w.SetPod("a/new", "", []string{"app=web"}, nil)
		w.Sync()
		w.Expect("outside > unknown tcp:80 = yes")
	})
	each("S59_closed_while_a_selected_pod_has_no_address", func(t *testing.T, start starter) {
		w := start(t)
		w.Policy("a/web", deny)
		w.SetPod("a/new", "", []string{"app=web"}, nil)
		w.Sync()
		w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = yes")
		w.Pod("a/new", "10.32.1.5,fd32:1::5", "app=web")
		w.Again(false)
		w.Expect("outside > unknown tcp:80 = yes\n outside > a/new tcp:80 = no")
	})
	each("closed_by_flag", func(t *testing.T, start starter) {
		w := start(t, func(c *npc.Config) { c.Gate = npc.GateClosed })
		w.Sync()
		w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no")
	})
	each("open_by_flag", func(t *testing.T, start starter) {
		w := start(t, func(c *npc.Config) { c.Gate = npc.GateOpen })
		w.Policy("a/web", deny)
		w.SetPod("a/new", "", []string{"app=web"}, nil)
		w.Sync()
		w.Expect("outside > unknown tcp:80 = yes")
	})
	each("remote_pods_within_the_range_pass", func(t *testing.T, start starter) {
		w := start(t, func(c *npc.Config) {
			c.Gate, c.PodInterface = npc.GateClosed, ""
			c.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.32.0.0/16")}
		})
		w.Remote("a/far", "10.32.2.9")
		w.Sync()
		w.Expect("outside > a/far tcp:80 = yes\n outside > 10.32.2.10 tcp:80 = no")
	})
	each("closed_by_flag_without_a_range", func(t *testing.T, start starter) {
		w := start(t, func(c *npc.Config) { c.Gate, c.PodRanges = npc.GateClosed, nil })
		w.Sync()
		w.Expect("outside > 98.51.100.7 tcp:80 = no\n outside > 198.51.100.8 tcp:80 = no\n" +
			"outside > 2001:db8::9 tcp:80 = no\n outside > fd00::9 tcp:80 = no")
	})
	each("S27_the_address_of_an_isolated_pod_that_vanished_is_one_of_another_node", func(t *testing.T, start starter) {
		w := start(t)
		w.Policy("a/web", deny)
		w.Pod("a/old", "10.32.1.5,fd32:1::5", "app=web")
		w.Sync()
		w.DeletePod("a/old")
		w.Again(false)
		w.Expect("outside > a/old tcp:80 = no")
		w.Remote("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.Again(false)
		w.Expect("outside > a/next tcp:80 = yes")
	})
	each("an_isolated_pod_that_vanished_stays_closed", func(t *testing.T, start starter) {
		w := start(t)
		w.Policy("a/web", deny)
		w.Pod("a/old", "10.32.1.5,fd32:1::5", "app=web")
		w.Sync()
		w.DeletePod("a/old")
		w.Again(false)
		w.Expect("outside > a/old tcp:80 = no")
		w.Pod("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.Again(false)
		w.Expect("outside > a/next tcp:80 = yes")
	})
	each("S68_link_local", func(t *testing.T, start starter) {
		w := start(t)
		w.Policy("a/web", deny)
		w.Pod("a/web", "10.32.1.5,fd32:1::5", "app=web")
		w.Sync()
		w.Expect("fe80::1 > fe80::2 tcp:80 = no")
		if v := w.Judge(walk.Packet{Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("fe80::2"), Protocol: 58,
			ICMPType: 135, HopLimit: 255, In: "cni0", Out: "cni0"}); !v.Accepted {
			t.Errorf("neighbour discovery is dropped by %q", v.By)
		}
	})
	each("S68_link_local_where_pods_are_told_by_their_range", func(t *testing.T, start starter) {
		w := start(t, func(c *npc.Config) { c.PodInterface = "" })
		w.Policy("a/web", deny)
		w.Pod("a/web", "10.32.1.5,fd32:1::5", "app=web")
		w.Sync()
		w.Expect("fe80::1 > fe80::2 tcp:80 = no")
		w.DeletePolicy("a/web")
		w.Again(false)
		w.Expect("fe80::1 > fe80::2 tcp:80 = yes")
	})
	each("before_the_objects_are_known", func(t *testing.T, start starter) {
		w := start(t)
		w.Boot()
		w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no\n outside > outside tcp:80 = yes")
		w.Sync()
		w.Expect("outside > unknown tcp:80 = yes")
	})
}

// TestLifecycle tells what is left behind and what is touched.
func TestLifecycle(t *testing.T) {
	populate := func(w *world) {
		w.Namespace("a", "team=a")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
		w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [
			{from: [{podSelector: {matchLabels: {app: client}}}, {namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}],
			egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: client}}}]}]}`)
	}
	t.Run("S31_nothing_is_left", func(t *testing.T) {
		w := newWorld(t)
		w.Sync()
		sets, chains := len(w.Kernels[0].Sets), len(w.Kernels[0].Chains)
		populate(w)
		w.Again(false)
		if len(w.Kernels[0].Chains) != chains+2 {
			t.Errorf("there are %d chains, not two more than %d", len(w.Kernels[0].Chains), chains)
		}
		w.DeletePolicy("a/web")
		w.DeletePod("a/web")
		w.DeletePod("a/client")
		w.Model.DeleteNamespace("a", "ns-a")
		w.Again(false)
		w.CollectGarbage()
		if len(w.Kernels[0].Sets) != sets || len(w.Kernels[0].Chains) != chains {
			t.Errorf("left: %d sets and %d chains, not %d and %d", len(w.Kernels[0].Sets), len(w.Kernels[0].Chains), sets, chains)
		}
		if w.Model.HasGarbage() {
			t.Error("there is still something to tidy up")
		}
	})
	t.Run("a_second_start_changes_nothing", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.Sync()
		w.CollectGarbage()
		again := newWorld(t)
		again.Kernels = w.Kernels
		populate(again)
		again.Load()
		again.Sync()
		again.CollectGarbage()
		if text := again.Applied(); text != "" {
			t.Errorf("the second start changes\n%s", text)
		}
		if forgotten := w.Kernels[0].Forgotten; len(forgotten) > 0 {
			t.Errorf("flows of %v were cut", forgotten)
		}
	})
	t.Run("S27_an_address_changed_hands_while_nobody_looked", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.Sync()
		again := newWorld(t)
		again.Kernels = w.Kernels
		again.Load()
		populate(again)
		again.DeletePod("a/client")
		again.Pod("a/other", "10.32.1.3", "app=client")
		again.Sync()
		if got := w.Kernels[0].Forgotten; len(got) != 1 || got[0].String() != "10.32.1.3" {
			t.Errorf("forgotten: %v", got)
		}
	})
	t.Run("S63_a_list_of_one_family_outlives_what_the_other_family_does", func(t *testing.T) {
		allow := func(w *world, peer string) {
			populate(w)
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [`+peer+`]}]}`)
		}
		w := newWorld(t)
		allow(w, `{namespaceSelector: {matchLabels: {team: a}}}`)
		w.Sync()
		// The policy was edited while nobody looked. The first family is done before the second one begins.
		again := newWorld(t)
		again.Kernels = w.Kernels
		again.Load()
		allow(again, `{podSelector: {matchLabels: {app: client}}}`)
		for _, k := range again.Kernels {
			k.AfterStep = func() { again.Expect("a/client > a/web tcp:80 = yes") }
		}
		again.Sync()
		again.CollectGarbage()
		for _, s := range again.Kernels[0].Sets {
			if s.Type == ipset.ListSet {
				t.Errorf("%s is left", s.Name)
			}
		}
	})
	t.Run("S59_a_booting_node_is_closed_if_who_was_killed_made_only_the_sets", func(t *testing.T) {
		w := newWorld(t)
		w.PlanStart(true, func(tx dataplane.Transaction) {
			tx.Rules = iptables.Update{}
			if err := w.Kernels[tx.Family].Apply(tx); err != nil {
				t.Fatal(err)
			}
		})
		again := newWorld(t)
		again.Kernels = w.Kernels
		again.Load()
		again.Addr("unknown", "10.32.1.77", "fd32:1::77")
		again.Boot()
		again.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no")
	})
	t.Run("S59_an_isolated_pod_that_vanished_stays_closed_over_a_start", func(t *testing.T) {
		deny := `{podSelector: {matchLabels: {app: web}}}`
		w := newWorld(t)
		w.Policy("a/web", deny)
		w.Pod("a/before", "10.32.1.5,fd32:1::5", "app=web")
		w.Pod("a/meanwhile", "10.32.1.6,fd32:1::6", "app=web")
		w.Pod("a/free", "10.32.1.7,fd32:1::7", "app=other")
		w.Pod("a/finished", "10.32.1.8,fd32:1::8", "app=web")
		w.Sync()
		w.DeletePod("a/before")
		w.Again(false)
		for range 2 {
			again := newWorld(t)
			again.Kernels, again.Addrs = w.Kernels, w.Addrs
			again.Load()
			again.Policy("a/web", deny)
			again.SetPod("a/finished", "10.32.1.8,fd32:1::8", []string{"app=web"}, func(p *npc.Pod) { p.Finished = true })
			again.Sync()
			again.CollectGarbage()
			again.Expect(`
				outside > a/before tcp:80 = no
				a/before > outside tcp:80 = yes
				outside > a/meanwhile tcp:80 = no
				outside > a/free tcp:80 = yes
				outside > a/finished tcp:80 = yes`)
			w = again
		}
		w.Pod("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.Again(false)
		w.Expect("outside > a/next tcp:80 = yes\n outside > a/meanwhile tcp:80 = no")
	})
	t.Run("S27_a_pod_of_the_same_name_has_the_address_since_nobody_looked", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.Sync()
		again := newWorld(t)
		again.Kernels = w.Kernels
		again.Load()
		populate(again)
		again.SetPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.UID = "another" })
		again.Sync()
		for f, want := range []string{"[10.32.1.3]", "[fd32:1::3]"} {
			if got := fmt.Sprint(w.Kernels[f].Forgotten); got != want {
				t.Errorf("forgotten: %s, not %s", got, want)
			}
		}
	})
	t.Run("pods_come_and_go_without_iptables", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.Sync()
		w.Applied()
		w.Pod("a/web2", "10.32.1.4,fd32:1::4", "app=web")
		w.Remote("a/client2", "10.32.2.4,fd32:2::4", "app=client")
		w.Again(false)
		w.Relabel("a/client", "app=none")
		w.Policy("a/deny", `{podSelector: {}}`)
		w.Again(false)
		w.DeletePod("a/web2")
		w.Again(false)
		if text := w.Applied(); text == "" || strings.Contains(text, "*filter") {
			t.Errorf("pods and deny-all policies ran iptables:\n%s", text)
		}
	})
	t.Run("deletes_of_another_object_of_that_name_are_late", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.Sync()
		w.Model.DeletePod("a", "web", "another")
		w.Model.DeletePolicy("a", "web", "another")
		w.Again(false)
		w.Expect("outside > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
	})
	t.Run("drift_is_mended", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.Sync()
		w.CollectGarbage()
		w.Applied()
		k := w.Kernels[0]
		k.Chains["FORWARD"] = append([]string{"-j ACCEPT"}, k.Chains["FORWARD"]...)
		k.Chains["WEAVE-NPC-INGRESS"] = nil
		clear(k.Sets["weave-local-pods"].Members)
		w.Expect("10.32.1.2 > 10.32.1.3 tcp:80 = yes")
		w.Load()
		w.Again(false)
		w.Expect("198.51.100.7 > 10.32.1.2 tcp:80 = no\n 10.32.1.3 > 10.32.1.2 tcp:80 = yes")
		if k.Chains["FORWARD"][1] != "-j ACCEPT" {
			t.Errorf("FORWARD is %q", k.Chains["FORWARD"])
		}
	})
	t.Run("many_namespaces_make_a_flat_set", func(t *testing.T) {
		w := newWorld(t, func(c *npc.Config) { c.MaxListSize = 2 })
		populate(w)
		w.Sync()
		for _, name := range []string{"b", "c", "d"} {
			w.Namespace(name)
			w.Remote(name+"/x", "10.32.2."+map[string]string{"b": "1", "c": "2", "d": "3"}[name])
			w.Again(false)
			w.Expect(name + "/x > a/web tcp:80 = yes")
		}
		w.CollectGarbage()
		for _, s := range w.Kernels[0].Sets {
			if s.Type == "list:set" {
				t.Errorf("%s is a list of %d", s.Name, len(s.Members))
			}
		}
		w.Model.DeleteNamespace("d", "ns-d")
		w.Model.DeleteNamespace("c", "ns-c")
		w.Again(false)
		w.Expect("b/x > a/web tcp:80 = yes")
	})
}
