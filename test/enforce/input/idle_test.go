package input

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/nightly"
)

// TestS76_IdleConnectionsOfPodsTakeNothingFromEnforcement: two pods open more connections to the port of the metrics
// than weave-npc may have descriptors, and open again what is closed. Policies are enforced, the node and a scraper on
// another one get answers.
func TestS76_IdleConnectionsOfPodsTakeNothingFromEnforcement(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		descriptors := nightly.Times(1024, 9_000)
		w := e2e.New(t, backend, lab.Config{})
		o := w.Objects(e2e.Base())
		m := w.FromManifests(t, e2e.Base())
		w.StartEach(t, func(i int, n *lab.Node) *e2e.Daemon {
			d := e2e.NewDaemon(n, w.DaemonArgs(i, "--manifests", m.Dir)...)
			if i == 0 {
				d.Wrap = []string{"prlimit", fmt.Sprintf("--nofile=%d:%[1]d", descriptors)}
			}
			return d
		})
		for _, d := range w.Daemons {
			d.AwaitReady(t)
		}
		d := w.Daemons[0]
		pid := d.Cmd.Process.Pid
		before := e2e.UsageOf(t, pid).RSS
		addr := net.JoinHostPort(d.Node.Addr4().String(), "6781")
		for _, pod := range []string{"web", "mon"} {
			holdIdle(t, w.Hosts[pod], addr, descriptors/2)
		}
		await.Within(t, e2e.Timeout, func() bool {
			entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			return err == nil && len(entries) > 16
		}, func() string { return "no connection is open" })
		time.Sleep(2 * time.Second)

		start := time.Now()
		e2e.Policy("shop/p", `podSelector: {matchLabels: {app: db}}`)(w, o)
		w.Apply(t, o)
		t.Logf("a policy was enforced after %s; at most %d KiB resident before, %d KiB since", time.Since(start), before,
			e2e.UsageOf(t, pid).RSS)
		w.Expect(t, e2e.Wants{"tcp 80": "-*>db"})
		if status, text := d.Get("/healthz"); status != http.StatusOK {
			t.Errorf("the node gets %d %s", status, text)
		}
		if status, text := e2e.GetFrom(w.Hosts["n2"], "http://"+addr+"/metrics"); status != http.StatusOK {
			t.Errorf("another node gets %d %s", status, text)
		}
		if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil || len(entries) > descriptors/2 {
			t.Errorf("%d of %d descriptors are open, %v", len(entries), descriptors, err)
		}
	})
}

// holdIdle has a host keep connections open on which nothing is sent, until the test ends. What is closed is opened
// again.
func holdIdle(t *testing.T, from *lab.Host, addr string, connections int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	dials := make(chan struct{}, 64) // each takes a thread
	for range connections {
		holding.Go(func() {
			for ctx.Err() == nil {
				dials <- struct{}{}
				conn, err := from.DialContext(ctx, "tcp", addr)
				<-dials
				if err == nil {
					closed := context.AfterFunc(ctx, func() { _ = conn.Close() })
					_, _ = conn.Read(make([]byte, 1))
					closed()
					_ = conn.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		holding.Wait()
	})
}
