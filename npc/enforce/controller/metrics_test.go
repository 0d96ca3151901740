package controller_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// TestMetricsOfTheModel shows the metrics of local pods, isolation and the fail-closed filter.
func TestMetricsOfTheModel(t *testing.T) {
	w := newHarness(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(controller.Collector(w.Model.Controller))
	w.Namespace("a")
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Pod("a/client", "10.32.1.3", "app=client")
	w.Remote("a/far", "10.32.2.9", "app=web")
	w.Policy("a/bad", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 99999}]}]}`)
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	w.Sync()
	cluster.WantMetrics(t, registry, map[string]float64{
		"weavenpc_local_pods": 2, "weavenpc_invalid_policies": 1,
		"weavenpc_isolated_pods ingress": 1, "weavenpc_isolated_pods egress": 1,
		"weavenpc_pending_pods ingress": 0, "weavenpc_pending_pods egress": 0,
		"weavenpc_fail_closed ingress": 0, "weavenpc_fail_closed egress": 0,
	})
	w.SetPod("a/new", "", []string{"app=new"}, nil)
	w.Policy("a/new", `{podSelector: {matchLabels: {app: new}}, policyTypes: [Egress], egress: [{}]}`)
	w.Again(false)
	cluster.WantMetrics(t, registry, map[string]float64{
		"weavenpc_local_pods":            3,
		"weavenpc_isolated_pods ingress": 1, "weavenpc_isolated_pods egress": 2,
		"weavenpc_pending_pods ingress": 0, "weavenpc_pending_pods egress": 1,
		"weavenpc_fail_closed ingress": 0, "weavenpc_fail_closed egress": 1,
	})
	entries := 0
	for _, s := range w.Kernels[npc.IPv4].Sets {
		if s.Family == naming.IPSet(npc.IPv4) {
			entries += len(s.Members)
		}
	}
	cluster.WantMetrics(t, registry, map[string]float64{"weavenpc_set_entries IPv4": float64(entries)})
}
