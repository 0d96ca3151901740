package recorder

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/ulogd"
)

// TestS100_StagedVerdictsAreLogged once for all connections between two workloads and to one port, with what decides
// now and then.
func TestS100_StagedVerdictsAreLogged(t *testing.T) {
	var log strings.Builder
	registry := prometheus.NewRegistry()
	r := newRecorder(t, func(c *Config) {
		c.Registry = registry
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
	})
	for port := range uint16(3) {
		r.Denied(ulogd.Packet{Src: web, Dst: db, Protocol: 6, SrcPort: 4711 + port, DstPort: 5432})
	}
	r.Denied(ulogd.Packet{Src: outside, Dst: web, Protocol: 17, DstPort: 53})
	const rest = ` now_by="egress rule 2 of Admin policy guard"`
	want := `msg=staged group=open would=allow policy=open-all from="shop/Deployment/web (web-1 10.32.1.2)" to="data/Pod/db (db 10.32.2.2)" port=tcp/5432` + rest + `
msg=staged group=open would=allow policy=open-all from=192.0.2.1 to="shop/Deployment/web (web-1 10.32.1.2)" port=udp/53` + rest + "\n"
	if log.String() != want {
		t.Errorf("%s\nwant\n%s", log.String(), want)
	}
	collected, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range collected {
		if family.GetName() == "weavenpc_staged_connections_total" && (len(family.GetMetric()) != 1 || family.GetMetric()[0].GetCounter().GetValue() != 4) {
			t.Errorf("%v", family)
		}
	}
}

// TestStagedPoliciesInMetricsAreBounded, and those beyond the bound are counted together.
func TestStagedPoliciesInMetricsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newStagedReporter(nil, slog.New(slog.DiscardHandler), registry)
	for i := range maxStagedPolicies + 10 {
		r.seen(flowlog.Connection{Src: web, Dst: db, Service: flow.Service{Protocol: 6, Port: 1}},
			flowlog.Evaluation{Staged: []flowlog.Staged{{Group: "true", Policy: fmt.Sprint("shop/", i), Verdict: flowlog.Denied}}}, 1)
	}
	collected, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range collected {
		if n := len(family.GetMetric()); family.GetName() == "weavenpc_staged_connections_total" && n != maxStagedPolicies+1 {
			t.Errorf("%d series", n)
		}
	}
}

// TestStagedPoliciesTakeLittleTime: when recording takes too much of it, groups are not evaluated, which is counted,
// until it has taken less for a while.
func TestStagedPoliciesTakeLittleTime(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRecorder(t, func(c *Config) { c.Registry = registry })
	now := time.Unix(1000, 0)
	a := &allowance{}
	for range 100 {
		if a.exceeded(now) {
			t.Fatal("a tenth of the time is too much")
		}
		a.spend(10 * time.Millisecond)
		now = now.Add(100 * time.Millisecond)
	}
	over := 0
	for range 1000 {
		if a.exceeded(now) {
			over++
		} else {
			a.spend(50 * time.Millisecond)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if over < 650 || over > 750 {
		t.Errorf("%d of 1000 are over the share; each takes half of the time", over)
	}
	r.staged.any.Store(true)
	r.spent.at = time.Now()
	r.spent.spend(time.Hour)
	r.Denied(ulogd.Packet{Src: web, Dst: db, Protocol: 6, DstPort: 5432})
	records, _ := r.store.Since(0)
	if len(records) != 1 || len(records[0].Staged) > 0 || records[0].By == nil {
		t.Errorf("%+v", records)
	}
	if n := counted(t, registry, "weavenpc_staged_unevaluated_connections_total"); n != 1 {
		t.Errorf("%g are counted", n)
	}
}

// TestS76_CostlyRulesTakeLittleTime: when recording takes too much of it, rules that take many comparisons are not evaluated,
// which is counted, and others are. The record has the verdict of the kernel.
func TestS76_CostlyRulesTakeLittleTime(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRecorder(t, func(c *Config) { c.Registry = registry })
	r.spent.at = time.Now()
	r.spent.spend(time.Hour)
	for _, port := range []uint16{80, 2000} {
		r.Denied(ulogd.Packet{Src: web, Dst: db, Protocol: 6, DstPort: port})
	}
	records, _ := r.store.Since(0)
	if len(records) != 2 || records[0].By == nil || records[1].By != nil || records[1].Verdict != flowlog.Denied ||
		records[1].From.Workload != "Deployment/web" {
		t.Errorf("%+v", records)
	}
	if n := counted(t, registry, "weavenpc_flows_rule_unknown_connections_total"); n != 1 {
		t.Errorf("%g are counted", n)
	}
	if n := counted(t, registry, "weavenpc_staged_unevaluated_connections_total"); n != 0 {
		t.Errorf("%g are counted, and nothing is staged", n)
	}
}

// counted returns the value of a counter.
func counted(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	collected, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range collected {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
