package node

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestASecondStartChangesNothingAndSIGTERMLeavesEverything(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		before, written := map[*lab.Node]string{}, map[*lab.Node][2]iptables.Fingerprint{}
		for _, n := range w.Nodes() {
			before[n] = e2e.AwaitSteady(t, n)
			written[n] = prints(t, n, backend)
		}
		for _, d := range w.Daemons {
			d.Signal(t, syscall.SIGTERM)
			if d.End.Err != nil {
				t.Errorf("after SIGTERM weave-npc on %s ends with %v\n%s", d.Node, d.End.Err, d.Log)
			}
			e2e.Unchanged(t, d.Node, before[d.Node])
		}
		w.Expect(t, e2e.RichWants())
		for _, d := range w.Daemons {
			said := d.Log.Len()
			d.Start(t)
			d.AwaitReady(t)
			time.Sleep(2 * time.Second)
			e2e.Unchanged(t, d.Node, before[d.Node])
			if now := prints(t, d.Node, backend); now != written[d.Node] {
				t.Errorf("weave-npc on %s wrote its rules again: %+v, before %+v\n%s", d.Node, now, written[d.Node],
					d.Log.Since(said))
			}
			// The fail-closed filter drops packets as long as not all objects are known.
			_, metrics := d.Get("/metrics")
			made := regexp.MustCompile(`(?m)^weavenpc_transactions_total.* (\d+)$`).FindAllStringSubmatch(metrics, -1)
			for _, m := range made {
				if n, err := strconv.Atoi(m[1]); err != nil || n > 2 {
					t.Errorf("weave-npc on %s changed something: %s\n%s", d.Node, m[0], d.Log.Since(said))
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
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		for _, n := range w.Nodes() {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				// kube-proxy has rules of this kind: conntrack knows the connections from before.
				e2e.Run(t, n.Host, program+string(backend), "-w", "-A", "FORWARD", "-m", "conntrack", "--ctstate",
					"INVALID")
			}
		}
		var talks []e2e.Conversation
		for _, from := range []string{"db", "mon", "out"} {
			e2e.EachFamily(func(family int) { talks = append(talks, w.Converse(t, from, "web", family)) })
		}
		load := w.Load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"copy>mon udp 53")
		w.Begin(t, e2e.Rich())
		for _, c := range talks {
			c.Say(t)
		}
		time.Sleep(2 * time.Second)
		for _, d := range w.Daemons {
			d.Signal(t, syscall.SIGTERM)
			if _, stderr, status := e2e.Execute(t, d.Node, nil, "cleanup"); status != 0 {
				t.Errorf("cleanup ends with %d\n%s", status, stderr)
			}
		}
		load.Stop(t)
		for _, c := range talks {
			c.Say(t)
		}
	})
}

func TestDryRunPrintsAndChangesNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		m := w.FromManifests(t, e2e.Rich())
		n := w.Node("node1")
		before := e2e.Snapshot(t, n)
		args := []string{"--node-name", "node1", "--iptables-backend", string(backend), "--manifests", m.Dir,
			"--pod-interface", "cni0"}
		stdout, stderr, status := e2e.Execute(t, n, nil, append(args, "--dry-run")...)
		if status != 0 {
			t.Fatalf("exit status %d\n%s", status, stderr)
		}
		for _, wanted := range []string{"create weave-local-pods hash:ip",
			"add weave-local-pods " + w.Hosts["web"].Addr4().String(),
			"add weave-local-pods-v6 " + w.Hosts["web"].Addr6().String(), "WEAVE-NPC-FORWARD", "shop/p rule 1"} {
			if !strings.Contains(stdout, wanted) {
				t.Errorf("%q is not in\n%s", wanted, stdout)
			}
		}
		e2e.Unchanged(t, n, before)
		w.Expect(t, e2e.Wants{"tcp 80": ""})

		d := e2e.StartDaemon(t, n, args[2:]...)
		d.AwaitReady(t)
		stdout, stderr, status = e2e.Execute(t, n, nil, append(args, "--dry-run")...)
		if status != 0 || strings.TrimSpace(stdout) != "" {
			t.Errorf("with nothing to do: exit status %d\n%s\n%s", status, stdout, stderr)
		}
	})
}
