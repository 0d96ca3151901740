package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/syncer"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/ulogd"
)

// allMetrics are all metrics that weave-npc has, each at least once.
func allMetrics() *prometheus.Registry {
	r := newRegistry()
	m := controller.New(npc.Config{NodeName: "node1"})
	syncer.NewMetrics(r, m, traffic.Families[:])
	countReports(r, new(ulogd.Stats))
	showInputs(r, source.Source{})
	showReadiness(r, func() string { return "" })
	newBlocked(m, nil, r, slog.New(slog.DiscardHandler)).handle(ulogd.Packet{})
	return r
}

// get asks a server that serves the registry.
func get(t *testing.T, r *prometheus.Registry, path, notReady string) (int, string) {
	t.Helper()
	s, err := listen("127.0.0.1:0", r, func() string { return notReady })
	if err != nil {
		t.Fatal(err)
	}
	return request(t, s, path)
}

// request starts a server, asks it, and ends it.
func request(t *testing.T, s *server, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.run(ctx, slog.New(slog.DiscardHandler)) }()
	response, err := http.Get("http://" + s.addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(body)
}

// TestMetricsFollowTheRules of Prometheus, but for one name, which the original weave-npc gave.
func TestMetricsFollowTheRules(t *testing.T) {
	status, text := get(t, allMetrics(), "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	problems, err := promlint.New(bytes.NewBufferString(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric != "weavenpc_policy_enforcement_errors" || !strings.Contains(p.Text, "_total") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, name := range []string{"weavenpc_blocked_connections_total{dport=\"other\",protocol=\"other\"} 1",
		"weavenpc_policy_enforcement_errors 0", "weavenpc_build_info{goversion=", "go_goroutines ", "process_resident_memory_bytes ",
		"weavenpc_ulogd_running 0", "weavenpc_drift_total{family=\"IPv6\",kind=\"chain\"} 0"} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
}

// TestMetricsPage lists what there is.
func TestMetricsPage(t *testing.T) {
	const page = "../../docs/metrics.md"
	gathered, err := allMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\nWhat `/metrics` on `--metrics-addr` says of weave-npc, beside what it says of its process and the Go runtime " +
		"(`process_...`, `go_...`).\n\n| metric | type | labels | what it is |\n|---|---|---|---|\n")
	for _, family := range gathered {
		if !strings.HasPrefix(family.GetName(), "weavenpc_") {
			continue
		}
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", "),
			family.GetHelp())
	}
	checkFile(t, page, b.String())
}

// TestNoLabelHasManyValues: no metric tells pods, addresses or policies apart.
func TestNoLabelHasManyValues(t *testing.T) {
	known := []string{"family", "direction", "kind", "protocol", "dport", "version", "goversion"}
	gathered, err := allMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range gathered {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.HasPrefix(family.GetName(), "weavenpc_") && !slices.Contains(known, l.GetName()) {
					t.Errorf("%s has the label %s", family.GetName(), l.GetName())
				}
			}
		}
	}
}

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		path, notReady string
		status         int
		says           string
	}{
		{"/healthz", "the kernel says no", http.StatusOK, "ok"},
		{"/readyz", "", http.StatusOK, "ok"},
		{"/readyz", "the kernel says no", http.StatusServiceUnavailable, "the kernel says no"},
		{"/debug/pprof/", "", http.StatusNotFound, "not found"},
	} {
		t.Run(c.path+" "+c.notReady, func(t *testing.T) {
			if status, text := get(t, prometheus.NewRegistry(), c.path, c.notReady); status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("status %d: %s", status, text)
			}
		})
	}
}

func TestProfilesAreServedOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "localhost.example:0", "127.0.0.1"} {
		if _, err := listenProfiles(addr); err == nil || !strings.Contains(err.Error(), "--pprof-addr") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		s, err := listenProfiles(addr)
		if err != nil {
			t.Fatal(err)
		}
		if status, text := request(t, s, "/debug/pprof/"); status != http.StatusOK || !strings.Contains(text, "goroutine") {
			t.Errorf("status %d: %s", status, text)
		}
	}
}
