package enforce

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS65_WhatOthersChangeIsPutBackAndReported(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		time.Sleep(3 * time.Second)
		d := w.daemons[0]
		before := snapshot(t, d.node)
		d.log.expect("drift found|drift is found again and again")
		program := "iptables-" + string(backend)
		web := w.hosts["web"].Addr4().String()
		for _, c := range []struct {
			about   string
			command []string
			reports string
		}{
			{"our chain is flushed", []string{program, "-w", "-F", "WEAVE-NPC-INGRESS"}, "WEAVE-NPC-INGRESS"},
			{"our jump is deleted", []string{program, "-w", "-D", "FORWARD", "1"}, "FORWARD"},
			{"an entry is deleted", []string{"ipset", "del", "weave-local-pods", web}, "weave-local-pods"},
			{"everything is removed", []string{"sh", "-c", fmt.Sprintf(
				"for i in %s %s; do $i -w -F; $i -w -X; done; ipset destroy || true", program, "ip6"+program[2:])}, "WEAVE-NPC"},
		} {
			said := d.log.len()
			run(t, d.node.Host, c.command[0], c.command[1:]...)
			d.awaitLine(t, said, "drift found.*"+c.reports)
			awaitSnapshot(t, d.node, before)
		}
		w.expect(t, richWants())

		said := d.log.len()
		run(t, d.node.Host, program, "-w", "-I", "FORWARD", "-p", "udp", "-j", "ACCEPT")
		d.awaitLine(t, said, "drift found.*FORWARD.*ACCEPT")
		w.expect(t, richWants())
		rules := strings.Split(run(t, d.node.Host, program, "-w", "-S", "FORWARD"), "\n")
		if !strings.Contains(rules[1], "WEAVE-NPC-FORWARD") || rules[2] != "-A FORWARD -p udp -j ACCEPT" {
			t.Errorf("FORWARD is %q", rules)
		}
		// A rule that drops or jumps may stand above the jump of weave-npc.
		run(t, d.node.Host, program, "-w", "-I", "FORWARD", "-p", "tcp", "--dport", "1", "-j", "DROP")
		time.Sleep(2 * time.Second)
		rules = strings.Split(run(t, d.node.Host, program, "-w", "-S", "FORWARD"), "\n")
		if !strings.Contains(rules[2], "WEAVE-NPC-FORWARD") {
			t.Errorf("a rule that drops above the jump is taken for drift: %q", rules)
		}
	})
}

func TestS65_WhatLooksTheSameIsFoundWithinThirtySeconds(t *testing.T) {
	t.Parallel()
	w := start(t, lab.Legacy, rich())
	w.expect(t, richWants())
	d := w.daemons[0]
	d.log.expect("drift found|drift is found again and again")
	time.Sleep(3 * time.Second)
	before := snapshot(t, d.node)
	// The number of entries and the size of the table stay as they are.
	web := w.hosts["web"].Addr4().String()
	run(t, d.node.Host, "ipset", "del", "weave-local-pods", web)
	run(t, d.node.Host, "ipset", "add", "weave-local-pods", "198.51.100.1")
	rules := strings.Split(run(t, d.node.Host, "iptables-legacy", "-w", "-S", "WEAVE-NPC-DROP-INGRESS"), "\n")
	comment := regexp.MustCompile(`--comment "([^"]*)" -j DROP`).FindStringSubmatch(rules[3])
	if comment == nil {
		t.Fatalf("the chain is %q", rules)
	}
	run(t, d.node.Host, "iptables-legacy", "-w", "-R", "WEAVE-NPC-DROP-INGRESS", "3", "-m", "comment",
		"--comment", comment[1], "-j", "RETURN")
	deadline := time.Now().Add(35 * time.Second)
	for time.Now().Before(deadline) && snapshot(t, d.node) != before {
		time.Sleep(500 * time.Millisecond)
	}
	unchanged(t, d.node, before)
}
