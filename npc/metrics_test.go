package npc_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// TestMetricsOfTheModel tells what is counted of local pods, isolation and the gate.
func TestMetricsOfTheModel(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	npc.NewMetrics(registry, w.model.Model)
	w.namespace("a")
	w.pod("a/web", "10.32.1.2", "app=web")
	w.pod("a/client", "10.32.1.3", "app=client")
	w.remote("a/far", "10.32.2.9", "app=web")
	w.policy("a/bad", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 99999}]}]}`)
	w.policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	w.sync()
	wantMetrics(t, registry, map[string]float64{
		"weavenpc_local_pods": 2, "weavenpc_invalid_policies": 1,
		"weavenpc_isolated_pods ingress": 1, "weavenpc_isolated_pods egress": 1,
		"weavenpc_pending_pods ingress": 0, "weavenpc_pending_pods egress": 0,
		"weavenpc_gate_closed ingress": 0, "weavenpc_gate_closed egress": 0,
	})
	w.setPod("a/new", "", []string{"app=new"}, nil)
	w.policy("a/new", `{podSelector: {matchLabels: {app: new}}, policyTypes: [Egress], egress: [{}]}`)
	w.again(false)
	wantMetrics(t, registry, map[string]float64{
		"weavenpc_local_pods":            3,
		"weavenpc_isolated_pods ingress": 1, "weavenpc_isolated_pods egress": 2,
		"weavenpc_pending_pods ingress": 0, "weavenpc_pending_pods egress": 1,
		"weavenpc_gate_closed ingress": 0, "weavenpc_gate_closed egress": 1,
	})
	entries := 0
	for _, s := range w.kernels[npc.IPv4].Sets {
		if s.Family == npc.IPv4.IPSet() {
			entries += len(s.Members)
		}
	}
	wantMetrics(t, registry, map[string]float64{"weavenpc_set_entries IPv4": float64(entries)})
}

// TestMetricsOfTheSyncer: a change counts as late until the kernel holds it.
func TestMetricsOfTheSyncer(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well() // what was there at the start is no change
		wantMetrics(t, s.registry, map[string]float64{
			"weavenpc_event_latency_seconds": 0, "weavenpc_retries_total IPv4": 0, "weavenpc_policy_enforcement_errors": 0,
			"weavenpc_failing IPv4": 0, "weavenpc_failing IPv6": 0, "weavenpc_transactions_total IPv4": 1,
		})
		s.program("iptables-" + string(b) + "-restore:fail")
		s.policy("a/new", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
		began := time.Now()
		s.ill("no")
		s.ill("no")
		wantMetrics(t, s.registry, map[string]float64{"weavenpc_event_latency_seconds": 0, "weavenpc_retries_total IPv4": 1,
			"weavenpc_retries_total IPv6": 0, "weavenpc_failing IPv4": 1, "weavenpc_failing IPv6": 0})
		s.program()
		s.pod("a/late", "10.32.1.9", "app=web")
		least := time.Since(began)
		s.well()
		s.well() // nothing has changed
		got := metricsOf(t, s.registry)
		if n, sum := got["weavenpc_event_latency_seconds"], got["weavenpc_event_latency_seconds sum"]; n != 1 || sum < least.Seconds() {
			t.Errorf("%v changes took %v s, not one at least %s", n, sum, least)
		}
		wantMetrics(t, s.registry, map[string]float64{"weavenpc_retries_total IPv4": 2, "weavenpc_failing IPv4": 0})
		// Eleven that every node has, two more for what opens no connection, and that of namespace a.
		wantMetrics(t, s.registry, map[string]float64{"weavenpc_chains IPv4": 14})
	})
}

// metricsOf are the metrics by their names and the values of their labels. A histogram's value is the number of observations.
func metricsOf(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range gathered {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if h := m.GetHistogram(); h != nil {
				got[name+" sum"] = h.GetSampleSum()
			}
		}
	}
	return got
}

// wantMetrics compares metrics, by their names and the values of their labels.
func wantMetrics(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	got := metricsOf(t, registry)
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %s, not %v", name, fmt.Sprint(v), value)
		}
	}
}
