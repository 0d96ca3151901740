package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/blocked"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/ulogd"
)

// allMetrics returns a registry with every metric of weave-npc.
func allMetrics() *prometheus.Registry {
	r := newRegistry()
	m := npc.New(npc.Config{NodeName: "node1"})
	x := npc.NewMetrics(r, m)
	x.Failing.WithLabelValues("IPv4").Set(0)
	registerReports(r, new(ulogd.Stats))
	registerInputs(r, source.Source{})
	registerReadiness(r, func() string { return "" })
	blocked.NewReporter(m, nil, r, slog.New(slog.DiscardHandler)).Handle(ulogd.Packet{})
	return r
}

// TestMetricsFollowTheRules lints the metrics by the rules of Prometheus. One name is an exception, as it comes from the original weave-npc.
func TestMetricsFollowTheRules(t *testing.T) {
	response := httptest.NewRecorder()
	promhttp.HandlerFor(allMetrics(), promhttp.HandlerOpts{}).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := response.Body.String()
	if response.Code != http.StatusOK {
		t.Fatalf("status %d: %s", response.Code, text)
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

// TestMetricsPage compares docs/metrics.md with the registered metrics.
func TestMetricsPage(t *testing.T) {
	const page = "../../docs/metrics.md"
	gathered, err := allMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from the code. The metrics that `--metrics-addr` serves under `/metrics`, beside\nthose of the process and the " +
		"Go runtime (`process_...`, `go_...`).\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
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

// TestNoLabelHasManyValues checks that no metric has labels for pods, addresses or policies.
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
