package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
)

// crossed is a spec with many peers and many ports.
func crossed(direction string, peers []string, ports int, more ...string) string {
	items := append([]string{}, more...)
	for i := range ports {
		items = append(items, fmt.Sprintf("{port: %d}", 1+2*i))
	}
	way := map[string]string{"Ingress": "ingress: [{from", "Egress": "egress: [{to"}[direction]
	return fmt.Sprintf("{podSelector: {matchLabels: {app: web}}, policyTypes: [%s], %s: [%s], ports: [%s]}]}", direction, way,
		strings.Join(peers, ","), strings.Join(items, ","))
}

func manyPeers(n int) []string {
	peers := []string{"{podSelector: {matchLabels: {app: client}}}", "{namespaceSelector: {matchLabels: {team: b}}}",
		"{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.8/29]}}", `{ipBlock: {cidr: "2001:db8::/64"}}`}
	for i := range n - len(peers) {
		peers = append(peers, fmt.Sprintf("{podSelector: {matchLabels: {number: n%d}}}", i))
	}
	return peers
}

// TestManyPeersWithManyPorts: they do not multiply, and mean the same.
func TestManyPeersWithManyPorts(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := start(t)
		w.Namespace("a", "team=a")
		w.Namespace("b", "team=b")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
		w.Pod("a/unknown", "10.32.1.4,fd32:1::4", "app=unknown")
		w.SetPod("b/other", "10.32.2.9,fd32:2::9", []string{"app=other"}, func(p *npc.Pod) {
			p.Node, p.Ports = "node2", []npc.NamedPort{{Name: "http", Protocol: 6, Port: 8080}}
		})
		w.SetPod("a/named", "10.32.1.5,fd32:1::5", []string{"app=named"}, func(p *npc.Pod) {
			p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: 8080}}
		})
		w.Policy("a/in", crossed("Ingress", manyPeers(40), 300))
		w.Policy("a/out", crossed("Egress", manyPeers(40), 300, "{port: http}"))
		w.Sync()
		if bad := w.Model.Unreported(); len(bad) > 0 {
			t.Fatal(bad)
		}
		for _, k := range w.Kernels {
			for name, rules := range k.Chains {
				if len(rules) > 30 {
					t.Errorf("%s has %d rules", name, len(rules))
				}
			}
		}
		w.Expect(`
			a/client > a/web tcp:1 = yes
			a/client > a/web tcp:599 = yes
			a/client > a/web tcp:2 = no
			a/client > a/web udp:1 = no
			b/other > a/web tcp:1 = yes
			a/unknown > a/web tcp:1 = no
			198.51.100.7 > 10.32.1.2 tcp:1 = yes
			198.51.100.9 > 10.32.1.2 tcp:1 = no
			2001:db8::7 > fd32:1::2 tcp:1 = yes
			2001:db9::7 > fd32:1::2 tcp:1 = no
			a/web > a/client tcp:3 = yes
			a/web > a/unknown tcp:3 = no
			a/web > b/other tcp:8080 = yes
			a/web > a/named tcp:8080 = no
			a/web > 198.51.100.7 tcp:8080 = no`)
		w.Relabel("a/unknown", "app=unknown", "number=n7")
		w.Again(false)
		w.Expect("a/unknown > a/web tcp:1 = yes\n a/web > a/unknown tcp:3 = yes")
		w.Namespace("b", "team=c")
		w.Again(false)
		w.Expect("b/other > a/web tcp:1 = no\n a/web > b/other tcp:8080 = no")
		w.DeletePolicy("a/in")
		w.DeletePolicy("a/out")
		w.Again(false)
		w.Expect("a/client > a/web tcp:2 = yes")
		if left := w.Model.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// TestTheLargestPolicies: a policy that is too large allows nothing and harms no others; the rest goes into the kernel.
func TestTheLargestPolicies(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := start(t)
		w.Namespace("a", "team=a")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
		w.Sync()
		var names []string
		for i := range 9000 {
			names = append(names, fmt.Sprintf("{port: n%d}", i))
		}
		w.Policy("a/names", crossed("Ingress", manyPeers(4), 0, names...))
		if bad := w.Model.Unreported(); len(bad) != 1 || !strings.Contains(bad[0].Reason, "sets") {
			t.Errorf("reported: %v", bad)
		}
		w.Again(false)
		w.Expect("a/client > a/web tcp:1 = no")
		w.DeletePolicy("a/names")
		begin := time.Now()
		w.Policy("a/large", crossed("Ingress", manyPeers(1000), 10_000))
		compiled := time.Since(begin)
		w.Again(false)
		t.Logf("1,000 peers with 10,000 ports: compiled within %s, in force within %s", compiled, time.Since(begin))
		if bad := w.Model.Unreported(); len(bad) > 0 {
			t.Errorf("reported: %v", bad)
		}
		w.Expect("a/client > a/web tcp:1 = yes\n a/client > a/web tcp:2 = no\n outside > a/web tcp:19999 = yes\n a/client > a/web tcp:20001 = no")
	})
}

// TestManyBlocksOfOneRuleAreOneSet in each family, and mean the same as one by one.
func TestManyBlocksOfOneRuleAreOneSet(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := start(t)
		w.Namespace("a", "team=a")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
		w.Sync()
		sets, rules := w.size()
		var blocks []string
		for i := range 7500 {
			blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: 100.%d.%d.0/24, except: [100.%d.%d.7/32]}}", i>>8, i&255, i>>8, i&255),
				fmt.Sprintf(`{ipBlock: {cidr: "2001:db8:%x::/48"}}`, i))
		}
		blocks = append(blocks, "{ipBlock: {cidr: 100.1.2.7/32}}", "{podSelector: {matchLabels: {app: client}}}")
		spec := func(blocks []string) string {
			return fmt.Sprintf("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [%s], ports: [{port: 80}]}]}", strings.Join(blocks, ","))
		}
		w.Policy("a/p", spec(blocks))
		w.Again(false)
		if bad := w.Model.Unreported(); len(bad) > 0 {
			t.Fatal(bad)
		}
		if moreSets, moreRules := w.size(); moreSets-sets > 10 || moreRules-rules > 20 {
			t.Errorf("%d more sets, and %d more rules", moreSets-sets, moreRules-rules)
		}
		expect := func(last string) {
			t.Helper()
			w.Expect(`
				100.29.75.6 > 10.32.1.2 tcp:80 = ` + last + `
				100.29.75.7 > 10.32.1.2 tcp:80 = no
				100.1.2.6 > 10.32.1.2 tcp:80 = yes
				100.1.2.7 > 10.32.1.2 tcp:80 = yes
				100.1.3.7 > 10.32.1.2 tcp:80 = no
				100.29.76.6 > 10.32.1.2 tcp:80 = no
				2001:db8:1d4b::1 > fd32:1::2 tcp:80 = ` + last + `
				2001:db8:1d4c::1 > fd32:1::2 tcp:80 = no
				a/client > a/web tcp:80 = yes`)
		}
		expect("yes")
		w.Policy("a/p", spec(append(blocks[:14_998:14_998], blocks[15_000:]...)))
		w.Again(false)
		expect("no")
		w.DeletePolicy("a/p")
		w.Again(false)
		if left := w.Model.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// size is how many sets and rules the kernels hold.
func (w *harness) size() (sets, rules int) {
	for _, k := range w.Kernels {
		for _, of := range k.Chains {
			rules += len(of)
		}
	}
	return len(w.Kernels[0].Sets), rules
}
