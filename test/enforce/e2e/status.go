package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// AwaitReady waits until /readyz reports that policies are enforced.
func (d *Daemon) AwaitReady(t *testing.T) {
	t.Helper()
	var last string
	await.Within(t, Timeout, func() bool {
		if !d.Running() {
			t.Fatalf("weave-npc on %s has ended: %v\n%s", d.Node, d.End.Err, d.Log)
		}
		var status int
		status, last = d.Get("/readyz")
		return status == http.StatusOK
	}, func() string {
		return "weave-npc on " + d.Node.Name() + " is not ready: " + last + "\n" + d.Log.String()
	})
}

// AwaitOpen waits until packets of unknown addresses pass, as they do not before all manifests were read.
func (d *Daemon) AwaitOpen(t *testing.T) {
	t.Helper()
	d.AwaitMetric(t, `weavenpc_fail_closed\{direction="ingress"\} 0`)
	d.AwaitMetric(t, `weavenpc_fail_closed\{direction="egress"\} 0`)
}

// Get asks weave-npc's server, which listens on its default address.
func (d *Daemon) Get(path string) (status int, body string) { return d.GetAt(6781, path) }

// GetAt asks a server of the daemon.
func (d *Daemon) GetAt(port int, path string) (status int, body string) {
	return GetFrom(d.Node.Host, fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
}

// GetFrom has a host ask a server. The status is 0 if there is no answer; the body then says why.
func GetFrom(h *lab.Host, url string) (status int, body string) {
	transport := &http.Transport{DialContext: h.DialContext}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: await.Scaled(10 * time.Second)}).Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// Metric returns the value of one of the metrics.
func (d *Daemon) Metric(t *testing.T, name string) int {
	t.Helper()
	_, text := d.Get("/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

// Usage is what a process has used.
type Usage struct {
	CPU time.Duration
	RSS int // KiB
}

// UsageOf returns what a process has used since its start.
func UsageOf(t *testing.T, pid int) Usage {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // from the state on, which is the third (proc(5))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	var u Usage
	u.CPU = time.Duration(ticks) * 10 * time.Millisecond
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found != nil {
		u.RSS, _ = strconv.Atoi(string(found[1]))
	}
	return u
}

// BlockedIsNamed has a packet blocked, and expects its sender in the first node's log.
func (w *Cluster) BlockedIsNamed(t *testing.T) {
	t.Helper()
	d := w.Daemons[0]
	said := d.Log.Len()
	w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 4711}, lab.Dropped)
	if line := d.AwaitLine(t, said, "msg=blocked"); !strings.Contains(line, "ops/mon") {
		t.Errorf("the blocked packet's line is %q", line)
	}
}

// AwaitUnready waits until /readyz gives a reason that matches.
func (d *Daemon) AwaitUnready(t *testing.T, pattern string) {
	t.Helper()
	wanted, last := regexp.MustCompile(pattern), ""
	await.Within(t, Timeout, func() bool {
		if !d.Running() {
			t.Fatalf("weave-npc on %s has ended: %v\n%s", d.Node, d.End.Err, d.Log)
		}
		var status int
		status, last = d.Get("/readyz")
		return status == http.StatusServiceUnavailable && wanted.MatchString(last)
	}, func() string {
		return "readiness of weave-npc on " + d.Node.Name() + " does not say " + pattern + ": " + last + "\n" +
			d.Log.String()
	})
}

// Idle reports whether the kernel holds all changes that weave-npc has read.
func (d *Daemon) Idle() bool {
	_, text := d.Get("/metrics")
	return strings.Contains(text, "\nweavenpc_waiting_seconds 0\n")
}

// AwaitMetric waits until a line of /metrics matches.
func (d *Daemon) AwaitMetric(t *testing.T, pattern string) {
	t.Helper()
	wanted, last := regexp.MustCompile("(?m)^"+pattern+"$"), ""
	await.Within(t, Timeout, func() bool {
		_, last = d.Get("/metrics")
		return wanted.MatchString(last)
	}, func() string { return "no metric " + pattern + "\n" + last })
}
