package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
)

// Collector returns the gauges of what a controller and the kernel hold, which are read when they are asked for.
func Collector(c *Controller) prometheus.Collector { return collector{c} }

// collector implements prometheus.Collector.
type collector struct{ c *Controller }

var (
	localPodsDesc = prometheus.NewDesc("weavenpc_local_pods", "Pods of this node that are enforced.", nil, nil)
	isolatedDesc  = prometheus.NewDesc("weavenpc_isolated_pods", "Local pods that are isolated.",
		[]string{"direction"}, nil)
	setsDesc    = prometheus.NewDesc("weavenpc_sets", "ipsets in use.", []string{"family"}, nil)
	entriesDesc = prometheus.NewDesc("weavenpc_set_entries", "Entries of all ipsets in use.",
		[]string{"family"}, nil)
	chainsDesc  = prometheus.NewDesc("weavenpc_chains", "iptables chains in use.", []string{"family"}, nil)
	rulesDesc   = prometheus.NewDesc("weavenpc_rules", "iptables rules in use.", []string{"family"}, nil)
	invalidDesc = prometheus.NewDesc("weavenpc_invalid_policies",
		"Policies that could not be compiled and allow nothing.", nil, nil)
	overBudgetDesc = prometheus.NewDesc("weavenpc_over_quota_policies",
		"Policies beyond the limits of their namespace or of the node, which allow nothing.", nil, nil)
	clusterPoliciesDesc        = prometheus.NewDesc("weavenpc_cluster_policies", "Cluster network policies.", nil, nil)
	invalidClusterPoliciesDesc = prometheus.NewDesc("weavenpc_invalid_cluster_policies",
		"Cluster network policies with an invalid rule, which fails closed, "+
			"or that are invalid and decide nothing.",
		nil, nil)
	waitingDesc = prometheus.NewDesc("weavenpc_waiting_seconds",
		"How long the oldest change has been waiting that the kernel may not hold yet.", nil, nil)
	failClosedDesc = prometheus.NewDesc("weavenpc_fail_closed",
		"Whether packets of unknown addresses that may be those of this node's pods are dropped.",
		[]string{"direction"}, nil)
	droppedDesc = prometheus.NewDesc("weavenpc_dropped_packets_total",
		"Packets that policies dropped, reported or not; read from the kernel every half minute.",
		[]string{"family", "direction"}, nil)
	heldDesc = prometheus.NewDesc("weavenpc_quarantined_addresses",
		"Addresses that are not opened to their pods until the connections of their former pods are deleted.",
		[]string{"family"}, nil)
	unlistedDesc = prometheus.NewDesc("weavenpc_unlisted_addresses",
		"Addresses that isolated local pods have and no object lists. They are closed.", nil, nil)
	unlabelledDesc = prometheus.NewDesc("weavenpc_unlabelled_pods",
		"Local pods whose labels or ports are too many to be kept, so that policies close them.", nil, nil)
	pendingDesc = prometheus.NewDesc("weavenpc_pending_pods",
		"Isolated local pods that have no address yet, so that packets of unknown addresses are dropped.",
		[]string{"direction"}, nil)
)

// Describe implements prometheus.Collector.
func (m collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m collector) Collect(out chan<- prometheus.Metric) {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counts, facts := c.state.isolation.Counts(), c.state.facts()
	gauge(localPodsDesc, c.state.index.CountLocal())
	gauge(invalidDesc, counts.Invalid)
	gauge(overBudgetDesc, counts.Denied)
	gauge(clusterPoliciesDesc, c.state.tiers.Counts().Policies)
	gauge(invalidClusterPoliciesDesc, c.state.tiers.Counts().Invalid)
	unlabelled := 0
	for p := range c.state.index.LocalPods() {
		if p.Unlabelled {
			unlabelled++
		}
	}
	gauge(unlabelledDesc, unlabelled)
	gauge(unlistedDesc, len(c.state.failClosed.Unlisted()))
	out <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, c.changes.waiting().Seconds())
	for _, d := range npc.Directions {
		gauge(isolatedDesc, counts.Isolated[d], d.String())
		gauge(pendingDesc, c.state.failClosed.Waiting(d), d.String())
		closed := 0
		if what, _ := c.state.failClosed.Closed(d, facts); what != "" {
			closed = 1
		}
		gauge(failClosedDesc, closed, d.String())
	}
	for _, t := range c.state.tables {
		sets, entries, chains, rules := t.Size()
		gauge(setsDesc, sets, t.Family.String())
		gauge(entriesDesc, entries, t.Family.String())
		gauge(chainsDesc, chains, t.Family.String())
		gauge(rulesDesc, rules, t.Family.String())
		gauge(heldDesc, t.Flows.Urgent(), t.Family.String())
		for _, d := range npc.Directions {
			out <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(t.Chains.Dropped(d)),
				t.Family.String(), d.String())
		}
	}
}
