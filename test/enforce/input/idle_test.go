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
		before, pid := resident(t, d), d.Cmd.Process.Pid
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
		t.Logf("a policy was enforced after %s; resident %d kB before, %d kB now", time.Since(start), before, resident(t, d))
		w.Expect(t, e2e.Wants{"tcp 80": "-*>db"})
		if status, text := d.Get("/healthz"); status != http.StatusOK {
			t.Errorf("the node gets %d %s", status, text)
		}
		if status, err := statusFrom(w.Hosts["n2"], "http://"+addr+"/metrics"); err != nil || status != http.StatusOK {
			t.Errorf("another node gets %d %v", status, err)
		}
		if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil || len(entries) > descriptors/2 {
			t.Errorf("%d of %d descriptors are open, %v", len(entries), descriptors, err)
		}
	})
}

// resident returns the memory of a daemon, in kB.
func resident(t *testing.T, d *e2e.Daemon) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() / 1024
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

// statusFrom returns the status that a host gets.
func statusFrom(h *lab.Host, url string) (int, error) {
	transport := &http.Transport{DialContext: h.DialContext}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(url)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
