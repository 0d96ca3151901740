package controller_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// TestVerdictsOfBlocks checks address blocks and their exceptions.
func TestVerdictsOfBlocks(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S33_to_S36_blocks", func(w *harness) {
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
		{"S35_blocks_with_the_same_excepts", func(w *harness) {
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
		{"S36_a_half_is_excepted", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
				{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1]}}, {ipBlock: {cidr: "::/0", except: ["::/1"]}}]}]}`)
			w.Sync()
			w.Expect("198.51.100.7 > 10.32.1.2 tcp:1 = yes\n 98.51.100.7 > 10.32.1.2 tcp:1 = no\n" +
				"2001:db8::7 > fd32:1::2 tcp:1 = no\n fd00::1 > fd32:1::2 tcp:1 = yes")
		}},
	})
}

// TestVerdictsOfPorts checks ports by number, range and name, in both directions.
func TestVerdictsOfPorts(t *testing.T) {
	verdicts(t, []verdictCase{
		{"S40_to_S49_ports", func(w *harness) {
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
		{"S43_one_between_two_ranges", func(w *harness) {
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 10, endPort: 12}, {port: 14}, {port: 15, endPort: 15}]}]}`)
			w.Sync()
			w.Expect("outside > a/web tcp:12 = yes\n outside > a/web tcp:13 = no\n outside > a/web tcp:14 = yes\n outside > a/web tcp:15 = yes\n" +
				"outside > a/web tcp:16 = no")
		}},
		{"S44_S46_a_named_port_with_peers", func(w *harness) {
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
		{"S45_S48_named_ports_on_egress", func(w *harness) {
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
		{"S45_S32_a_named_port_towards_anywhere_before_the_namespace_has_arrived", func(w *harness) {
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
	})
}
