package syncer_test

import (
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// TestMetricsOfTheSyncer: a change counts as late until the kernel holds it.
func TestMetricsOfTheSyncer(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well() // what was there at the start is no change
		cluster.WantMetrics(t, s.Registry, map[string]float64{
			"weavenpc_event_latency_seconds": 0, "weavenpc_retries_total IPv4": 0, "weavenpc_policy_enforcement_errors": 0,
			"weavenpc_failing IPv4": 0, "weavenpc_failing IPv6": 0, "weavenpc_transactions_total IPv4": 1,
		})
		s.program("iptables-" + string(b) + "-restore:fail")
		s.Policy("a/new", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
		began := time.Now()
		s.ill("no")
		s.ill("no")
		cluster.WantMetrics(t, s.Registry, map[string]float64{"weavenpc_event_latency_seconds": 0, "weavenpc_retries_total IPv4": 1,
			"weavenpc_retries_total IPv6": 0, "weavenpc_failing IPv4": 1, "weavenpc_failing IPv6": 0})
		s.program()
		s.Pod("a/late", "10.32.1.9", "app=web")
		least := time.Since(began)
		s.well()
		s.well() // nothing has changed
		got := cluster.Metrics(t, s.Registry)
		if n, sum := got["weavenpc_event_latency_seconds"], got["weavenpc_event_latency_seconds sum"]; n != 1 || sum < least.Seconds() {
			t.Errorf("%v changes took %v s, not one at least %s", n, sum, least)
		}
		cluster.WantMetrics(t, s.Registry, map[string]float64{"weavenpc_retries_total IPv4": 2, "weavenpc_failing IPv4": 0})
		// Twelve that every node has, two more for what opens no connection, and that of namespace a.
		cluster.WantMetrics(t, s.Registry, map[string]float64{"weavenpc_chains IPv4": 15})
	})
}
