package faults

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS65_WhatOthersChangeIsPutBackAndReported(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		d := w.Daemons[0]
		before := e2e.AwaitSteady(t, d.Node)
		d.Log.Expect("drift found|drift is found again and again")
		program := "iptables-" + string(backend)
		web := w.Hosts["web"].Addr4().String()
		for _, c := range []struct {
			about   string
			command []string
			reports string
		}{
			{"our chain is flushed", []string{program, "-w", "-F", "WEAVE-NPC-INGRESS"}, "WEAVE-NPC-INGRESS"},
			{"our jump is deleted", []string{program, "-w", "-D", "FORWARD", "1"}, "FORWARD"},
			{"an entry is deleted", []string{"ipset", "del", "weave-local-pods", web}, "weave-local-pods"},
			{"everything is removed", []string{"sh", "-c", fmt.Sprintf(
				"for i in %s %s; do $i -w -F; $i -w -X; done; ipset destroy || true", program, "ip6"+program[2:])},
				"WEAVE-NPC"},
		} {
			said := d.Log.Len()
			e2e.Run(t, d.Node.Host, c.command[0], c.command[1:]...)
			d.AwaitLine(t, said, "drift found.*"+c.reports)
			e2e.AwaitSnapshot(t, d.Node, before)
		}
		w.Expect(t, e2e.RichWants())

		said := d.Log.Len()
		e2e.Run(t, d.Node.Host, program, "-w", "-I", "FORWARD", "-p", "udp", "-j", "ACCEPT")
		d.AwaitLine(t, said, "drift found.*FORWARD.*ACCEPT")
		w.Expect(t, e2e.RichWants())
		rules := strings.Split(e2e.Run(t, d.Node.Host, program, "-w", "-S", "FORWARD"), "\n")
		if !strings.Contains(rules[1], "WEAVE-NPC-FORWARD") || rules[2] != "-A FORWARD -p udp -j ACCEPT" {
			t.Errorf("FORWARD is %q", rules)
		}
		// A rule that drops or jumps may stand above the jump of weave-npc.
		e2e.Run(t, d.Node.Host, program, "-w", "-I", "FORWARD", "-p", "tcp", "--dport", "1", "-j", "DROP")
		time.Sleep(2 * time.Second)
		rules = strings.Split(e2e.Run(t, d.Node.Host, program, "-w", "-S", "FORWARD"), "\n")
		if !strings.Contains(rules[2], "WEAVE-NPC-FORWARD") {
			t.Errorf("a rule that drops above the jump is taken for drift: %q", rules)
		}
	})
}

func TestS65_WhatLooksTheSameIsFoundWithinThirtySeconds(t *testing.T) {
	t.Parallel()
	w := e2e.Start(t, lab.Legacy, e2e.Rich())
	w.Expect(t, e2e.RichWants())
	d := w.Daemons[0]
	d.Log.Expect("drift found|drift is found again and again")
	before := e2e.AwaitSteady(t, d.Node)
	// The number of entries and the size of the table stay as they are.
	web := w.Hosts["web"].Addr4().String()
	e2e.Run(t, d.Node.Host, "ipset", "del", "weave-local-pods", web)
	e2e.Run(t, d.Node.Host, "ipset", "add", "weave-local-pods", "198.51.100.1")
	rules := strings.Split(e2e.Run(t, d.Node.Host, "iptables-legacy", "-w", "-S", "WEAVE-NPC-DROP-INGRESS"), "\n")
	comment := regexp.MustCompile(`--comment "([^"]*)" -j DROP`).FindStringSubmatch(rules[3])
	if comment == nil {
		t.Fatalf("the chain is %q", rules)
	}
	e2e.Run(t, d.Node.Host, "iptables-legacy", "-w", "-R", "WEAVE-NPC-DROP-INGRESS", "3", "-m", "comment",
		"--comment", comment[1], "-j", "RETURN")
	deadline := time.Now().Add(30*time.Second + e2e.Converged)
	for time.Now().Before(deadline) && e2e.Snapshot(t, d.Node) != before {
		time.Sleep(500 * time.Millisecond)
	}
	e2e.Unchanged(t, d.Node, before)
}
