package enforce

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// foreign is what others have on a node: rules of both families, and sets, some with names that weave-npc might give.
func foreign(t *testing.T, n *lab.Node, backend lab.Backend) {
	t.Helper()
	for _, args := range []string{
		"create weave-foo hash:ip", "add weave-foo 192.0.2.77", "create weave-expose hash:net,iface",
		"create weave-foo6 hash:ip family inet6", "create KUBE-SETS list:set", "add KUBE-SETS weave-foo",
	} {
		run(t, n.Host, "ipset", strings.Fields(args)...)
	}
	for _, iptables := range []string{"iptables-" + string(backend), "ip6tables-" + string(backend)} {
		set := "weave-foo"
		if iptables[2] == '6' {
			set = "weave-foo6"
		}
		for _, args := range []string{
			"-N WEAVE-CANARY", "-N KUBE-FORWARD", "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
			"-A FORWARD -j KUBE-FORWARD",
			"-A FORWARD -m set --match-set " + set + " src -m comment --comment WEAVE-NPC -j DROP",
			"-A INPUT -p tcp --dport 23 -j REJECT", "-t nat -N WEAVE", "-t nat -A POSTROUTING -j WEAVE",
		} {
			run(t, n.Host, iptables, append([]string{"-w"}, strings.Fields(args)...)...)
		}
	}
}

func TestCleanupLeavesWhatIsNotOurs(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		before := map[*lab.Node]string{}
		for _, n := range w.Nodes() {
			foreign(t, n, backend)
			before[n] = snapshot(t, n)
		}
		w.begin(t, rich())
		w.expect(t, richWants())
		for _, d := range w.daemons {
			d.signal(t, syscall.SIGTERM)
			stdout, stderr, status := execute(t, d.node, nil, "cleanup")
			if status != 0 || !strings.Contains(stdout, "removed") {
				t.Errorf("cleanup on %s ends with %d\n%s\n%s", d.node, status, stdout, stderr)
			}
			unchanged(t, d.node, before[d.node])
			if stdout, stderr, status = execute(t, d.node, nil, "cleanup"); status != 0 || stdout != "" {
				t.Errorf("again, cleanup on %s ends with %d\n%s\n%s", d.node, status, stdout, stderr)
			}
			unchanged(t, d.node, before[d.node])
		}
		w.expect(t, wants{"tcp 80": "", "icmp": ""})
	})
}

func TestCleanupOfANodeThatHasNothing(t *testing.T) {
	t.Parallel()
	w := newHarness(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	before := snapshot(t, n)
	if stdout, stderr, status := execute(t, n, nil, "cleanup"); status != 0 || stdout != "" {
		t.Errorf("cleanup ends with %d\n%s\n%s", status, stdout, stderr)
	}
	unchanged(t, n, before)
}

// original leaves on a node what the original weave-npc leaves when it is killed, alongside the rules of weave-net in
// FORWARD: all hosts may reach web, and no other pod may be reached.
func original(t *testing.T, w *harness, n *lab.Node) {
	t.Helper()
	const (
		targets = "weave-;rGqyMIl1HN^cfDki~Z$3]6!N"
		peers   = "weave-Rzff}h:=]JaaJl/G;(XJpGjZ["
		spaces  = "weave-P.B|!ZhkAr5q=XZ?3}tMBA+0@"
		sources = "weave-s_+ChJId4Uy_$}G;WdH|~TK)I"
	)
	web := w.hosts["web"].Addr4().String()
	for _, args := range [][]string{
		{"create", targets, "hash:ip", "family", "inet", "comment"},
		{"add", targets, web, "comment", "namespace: shop, pod: web"},
		{"create", peers, "hash:ip", "family", "inet", "comment"},
		{"create", sources, "hash:ip", "family", "inet", "comment"},
		{"add", sources, "10.32.1.99", "comment", "namespace: shop, pod: gone"},
		{"create", spaces, "list:set", "comment"},
		{"add", spaces, peers, "comment", "namespace: shop"},
	} {
		run(t, n.Host, "ipset", args...)
	}
	chains := []string{"WEAVE-NPC", "WEAVE-NPC-DEFAULT", "WEAVE-NPC-INGRESS", "WEAVE-NPC-EGRESS",
		"WEAVE-NPC-EGRESS-DEFAULT", "WEAVE-NPC-EGRESS-CUSTOM", "WEAVE-NPC-EGRESS-ACCEPT", "WEAVE-NPC-EGRESS-MARK"}
	iptables := func(args ...string) {
		t.Helper()
		run(t, n.Host, "iptables-"+string(w.backend), append([]string{"-w"}, args...)...)
	}
	for _, c := range chains {
		iptables("-N", c)
	}
	words := strings.Fields
	for _, rule := range [][]string{
		words("FORWARD -i cni0 -j WEAVE-NPC-EGRESS"),
		words("FORWARD -o cni0 -j WEAVE-NPC"),
		words("FORWARD -o cni0 -j DROP"),
		words("INPUT -i cni0 -j WEAVE-NPC-EGRESS"),
		words("WEAVE-NPC -m state --state RELATED,ESTABLISHED -j ACCEPT"),
		words("WEAVE-NPC -d 224.0.0.0/4 -j ACCEPT"),
		words("WEAVE-NPC -m physdev --physdev-is-bridged --physdev-out vethwe-bridge -j ACCEPT"),
		words("WEAVE-NPC -m state --state NEW -j WEAVE-NPC-DEFAULT"),
		words("WEAVE-NPC -m state --state NEW -j WEAVE-NPC-INGRESS"),
		{"WEAVE-NPC-DEFAULT", "-m", "set", "--match-set", targets, "dst", "-m", "comment", "--comment",
			"DefaultAllow ingress isolation for namespace: shop", "-j", "ACCEPT"},
		{"WEAVE-NPC-INGRESS", "-m", "set", "--match-set", spaces, "src", "-m", "set", "--match-set", targets, "dst",
			"-j", "ACCEPT"},
		words("WEAVE-NPC-EGRESS -m state --state RELATED,ESTABLISHED -j ACCEPT"),
		words("WEAVE-NPC-EGRESS -m addrtype --dst-type LOCAL -j RETURN"),
		words("WEAVE-NPC-EGRESS -m state --state NEW -j WEAVE-NPC-EGRESS-DEFAULT"),
		words("WEAVE-NPC-EGRESS -m state --state NEW -m mark ! --mark 0x40000/0x40000 -j WEAVE-NPC-EGRESS-CUSTOM"),
		words("WEAVE-NPC-EGRESS-ACCEPT -j MARK --set-xmark 0x40000/0x40000"),
		words("WEAVE-NPC-EGRESS-MARK -j MARK --set-xmark 0x40000/0x40000"),
		{"WEAVE-NPC-EGRESS-DEFAULT", "-m", "set", "--match-set", sources, "src", "-j", "WEAVE-NPC-EGRESS-ACCEPT"},
		{"WEAVE-NPC-EGRESS-DEFAULT", "-m", "set", "--match-set", sources, "src", "-j", "RETURN"},
	} {
		iptables(append([]string{"-A"}, rule...)...)
	}
}

func TestCleanupRemovesWhatTheOriginalLeft(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		n := w.Node("node1")
		foreign(t, n, backend)
		run(t, n.Host, "iptables-"+string(backend), "-w", "-A", "FORWARD", "-o", "cni0", "-j", "DROP")
		before := snapshot(t, n)
		run(t, n.Host, "iptables-"+string(backend), "-w", "-D", "FORWARD", "-o", "cni0", "-j", "DROP")
		original(t, w, n)
		if stdout, stderr, status := execute(t, n, nil, "cleanup"); status != 0 {
			t.Errorf("cleanup ends with %d\n%s\n%s", status, stdout, stderr)
		}
		unchanged(t, n, before)
	})
}

func TestWhatTheOriginalLeftIsTakenOver(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		for name, jump := range map[string]bool{"forward_jump": true, "no_forward_jump": false} {
			t.Run(name, func(t *testing.T) {
				w := newHarness(t, backend, lab.Config{IPv4: true})
				for _, n := range w.Nodes() {
					foreign(t, n, backend)
					original(t, w, n)
				}
				w.begin(t, rich(), fmt.Sprintf("--forward-jump=%t", jump))
				if jump {
					// What drops stands behind weave-net's jumps, as long as weave-net's rules are there.
					for _, n := range w.Nodes() {
						run(t, n.Host, "iptables-"+string(backend), "-w", "-D", "FORWARD", "-o", "cni0", "-j", "DROP")
					}
				}
				w.expect(t, richWants())
				for _, n := range w.Nodes() {
					var left []string
					await.Within(t, timeout, func() bool {
						left = nil
						for line := range strings.Lines(snapshot(t, n)) {
							if strings.Contains(line, "VLAN tag") {
								continue
							}
							if strings.ContainsAny(line, ";$^(}") && strings.Contains(line, "weave-") ||
								strings.Contains(line, "EGRESS-ACCEPT") || strings.Contains(line, "EGRESS-MARK") {
								left = append(left, line)
							}
						}
						return len(left) == 0
					}, func() string { return "still there: " + strings.Join(left, "") })
				}
				time.Sleep(time.Second)
				w.expect(t, richWants())
			})
		}
	})
}
