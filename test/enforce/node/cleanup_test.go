package node

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// foreign is what others have on a node: rules of both families, and sets, some with names that weave-npc might give.
func foreign(t *testing.T, n *lab.Node, backend lab.Backend) {
	t.Helper()
	for _, args := range []string{
		"create weave-foo hash:ip", "add weave-foo 192.0.2.77", "create weave-expose hash:net,iface",
		"create weave-foo6 hash:ip family inet6", "create KUBE-SETS list:set", "add KUBE-SETS weave-foo",
	} {
		e2e.Run(t, n.Host, "ipset", strings.Fields(args)...)
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
			e2e.Run(t, n.Host, iptables, append([]string{"-w"}, strings.Fields(args)...)...)
		}
	}
}

func TestCleanupLeavesWhatIsNotOurs(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		before := map[*lab.Node]string{}
		for _, n := range w.Nodes() {
			foreign(t, n, backend)
			before[n] = e2e.Snapshot(t, n)
		}
		w.Begin(t, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		for _, d := range w.Daemons {
			d.Signal(t, syscall.SIGTERM)
			stdout, stderr, status := e2e.Execute(t, d.Node, nil, "cleanup")
			if status != 0 || !strings.Contains(stdout, "removed") {
				t.Errorf("cleanup on %s ends with %d\n%s\n%s", d.Node, status, stdout, stderr)
			}
			e2e.Unchanged(t, d.Node, before[d.Node])
			if stdout, stderr, status = e2e.Execute(t, d.Node, nil, "cleanup"); status != 0 || stdout != "" {
				t.Errorf("again, cleanup on %s ends with %d\n%s\n%s", d.Node, status, stdout, stderr)
			}
			e2e.Unchanged(t, d.Node, before[d.Node])
		}
		w.Expect(t, e2e.Wants{"tcp 80": "", "icmp": ""})
	})
}

func TestCleanupOfANodeThatHasNothing(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	before := e2e.Snapshot(t, n)
	if stdout, stderr, status := e2e.Execute(t, n, nil, "cleanup"); status != 0 || stdout != "" {
		t.Errorf("cleanup ends with %d\n%s\n%s", status, stdout, stderr)
	}
	e2e.Unchanged(t, n, before)
}

func TestCleanupRemovesWhatTheOriginalLeft(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		n := w.Node("node1")
		foreign(t, n, backend)
		e2e.Run(t, n.Host, "iptables-"+string(backend), "-w", "-A", "FORWARD", "-o", "cni0", "-j", "DROP")
		before := e2e.Snapshot(t, n)
		e2e.Run(t, n.Host, "iptables-"+string(backend), "-w", "-D", "FORWARD", "-o", "cni0", "-j", "DROP")
		e2e.LeaveOriginal(t, w, n)
		if stdout, stderr, status := e2e.Execute(t, n, nil, "cleanup"); status != 0 {
			t.Errorf("cleanup ends with %d\n%s\n%s", status, stdout, stderr)
		}
		e2e.Unchanged(t, n, before)
	})
}

func TestWhatTheOriginalLeftIsTakenOver(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for name, jump := range map[string]bool{"forward_jump": true, "no_forward_jump": false} {
			t.Run(name, func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{IPv4: true})
				for _, n := range w.Nodes() {
					foreign(t, n, backend)
					e2e.LeaveOriginal(t, w, n)
				}
				w.Begin(t, e2e.Rich(), fmt.Sprintf("--forward-jump=%t", jump))
				if jump {
					// What drops stands behind weave-net's jumps, as long as weave-net's rules are there.
					for _, n := range w.Nodes() {
						e2e.Run(t, n.Host, "iptables-"+string(backend), "-w", "-D", "FORWARD", "-o", "cni0", "-j",
							"DROP")
					}
				}
				w.Expect(t, e2e.RichWants())
				for _, n := range w.Nodes() {
					var left []string
					await.Within(t, e2e.Timeout, func() bool {
						left = nil
						for line := range strings.Lines(e2e.Snapshot(t, n)) {
							if strings.Contains(line, "VLAN tag") || strings.Contains(line, "EtherType") {
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
				w.Expect(t, e2e.RichWants())
			})
		}
	})
}
