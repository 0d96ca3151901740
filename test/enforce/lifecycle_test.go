package enforce

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestASecondStartChangesNothingAndSIGTERMLeavesEverything(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		time.Sleep(3 * time.Second) // until what does no harm has been removed
		before, written := map[*lab.Node]string{}, map[*lab.Node][2]iptables.Fingerprint{}
		for _, n := range w.Nodes() {
			before[n], written[n] = snapshot(t, n), prints(t, n, backend)
		}
		for _, d := range w.daemons {
			d.signal(t, syscall.SIGTERM)
			if d.end.err != nil {
				t.Errorf("after SIGTERM weave-npc on %s ends with %v\n%s", d.node, d.end.err, d.log)
			}
			unchanged(t, d.node, before[d.node])
		}
		w.expect(t, richWants())
		for _, d := range w.daemons {
			said := d.log.len()
			d.start(t)
			d.awaitReady(t)
			time.Sleep(2 * time.Second)
			unchanged(t, d.node, before[d.node])
			if now := prints(t, d.node, backend); now != written[d.node] {
				t.Errorf("weave-npc on %s wrote its rules again: %+v, before %+v\n%s", d.node, now, written[d.node],
					d.log.since(said))
			}
			// The fail-closed filter drops packets as long as not all objects are known.
			_, metrics := d.get("/metrics")
			made := regexp.MustCompile(`(?m)^weavenpc_transactions_total.* (\d+)$`).FindAllStringSubmatch(metrics, -1)
			for _, m := range made {
				if n, err := strconv.Atoi(m[1]); err != nil || n > 2 {
					t.Errorf("weave-npc on %s changed something: %s\n%s", d.node, m[0], d.log.since(said))
				}
			}
		}
	})
}

// prints returns the fingerprints of a node's filter tables.
func prints(t *testing.T, n *lab.Node, backend lab.Backend) (both [2]iptables.Fingerprint) {
	t.Helper()
	if err := n.Do(func() error {
		for i, family := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
			table, err := iptables.New(family, iptables.Backend(backend))
			if err != nil {
				return err
			}
			if both[i], err = table.Fingerprint(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return both
}

func TestS60_InstallingAndCleaningUpOnALiveNodeCutsNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		for _, n := range w.Nodes() {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				// kube-proxy has rules of this kind: conntrack knows the connections from before.
				run(t, n.Host, program+string(backend), "-w", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID")
			}
		}
		var talks []conversation
		for _, from := range []string{"db", "mon", "out"} {
			families(func(family int) { talks = append(talks, w.converse(t, from, "web", family)) })
		}
		load := w.load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"copy>mon udp 53")
		w.begin(t, rich())
		for _, c := range talks {
			c.say(t)
		}
		time.Sleep(2 * time.Second)
		for _, d := range w.daemons {
			d.signal(t, syscall.SIGTERM)
			if _, stderr, status := execute(t, d.node, nil, "cleanup"); status != 0 {
				t.Errorf("cleanup ends with %d\n%s", status, stderr)
			}
		}
		load.stop(t)
		for _, c := range talks {
			c.say(t)
		}
	})
}

func TestDryRunPrintsAndChangesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		m := w.fromManifests(t, rich())
		n := w.Node("node1")
		before := snapshot(t, n)
		args := []string{"--node-name", "node1", "--iptables-backend", string(backend), "--manifests", m.dir,
			"--pod-interface", "cni0"}
		stdout, stderr, status := execute(t, n, nil, append(args, "--dry-run")...)
		if status != 0 {
			t.Fatalf("exit status %d\n%s", status, stderr)
		}
		for _, wanted := range []string{"create weave-local-pods hash:ip",
			"add weave-local-pods " + w.hosts["web"].Addr4().String(),
			"add weave-local-pods-v6 " + w.hosts["web"].Addr6().String(), "WEAVE-NPC-FORWARD", "shop/p rule 1"} {
			if !strings.Contains(stdout, wanted) {
				t.Errorf("%q is not in\n%s", wanted, stdout)
			}
		}
		unchanged(t, n, before)
		w.expect(t, wants{"tcp 80": ""})

		d := startDaemon(t, n, args[2:]...)
		d.awaitReady(t)
		stdout, stderr, status = execute(t, n, nil, append(args, "--dry-run")...)
		if status != 0 || strings.TrimSpace(stdout) != "" {
			t.Errorf("with nothing to do: exit status %d\n%s\n%s", status, stdout, stderr)
		}
	})
}
