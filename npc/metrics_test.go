package npc_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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

// wantMetrics compares metrics, by their names and the values of their labels.
func wantMetrics(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
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
			got[name] = m.GetGauge().GetValue()
		}
	}
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %s, not %v", name, fmt.Sprint(v), value)
		}
	}
}
