package syncer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
)

// Metrics are what the syncer counts. All durations are in seconds.
type Metrics struct {
	errors       prometheus.Counter
	syncDuration prometheus.Histogram
	lastSync     prometheus.Gauge
	latency      prometheus.Histogram
	transactions *prometheus.CounterVec
	retries      *prometheus.CounterVec
	drift        *prometheus.CounterVec
	failing      *prometheus.GaugeVec
	rejected     prometheus.Gauge
	conflicts    *prometheus.GaugeVec
}

// NewMetrics registers the metrics of a syncer of the given families, together with the gauges of its controller.
func NewMetrics(r prometheus.Registerer, c *controller.Controller, fs []npc.Family) *Metrics {
	x := &Metrics{
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weavenpc_policy_enforcement_errors",
			Help: "Failures to bring sets and chains up to date."}),
		syncDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weavenpc_sync_duration_seconds", Help: "Time to plan and apply the changes of both families.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
		lastSync: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weavenpc_last_sync_timestamp_seconds",
			Help: "When the kernel was last seen or made to hold all that is wanted, in Unix time."}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weavenpc_event_latency_seconds",
			Help: "Time from the first of the changes of objects that a sync applies " +
				"until the kernel holds them all.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18)}),
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_transactions_total", Help: "Transactions applied."}, []string{"family"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_retries_total", Help: "Syncs that tried again what had failed."}, []string{"family"}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_drift_total", Help: "Times that others were found to have changed what is ours."},
			[]string{"family", "kind"}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weavenpc_failing", Help: "Whether sets and chains cannot be brought up to date."},
			[]string{"family"}),
		rejected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weavenpc_rejected_policies",
			Help: "Policies with a rule or a set that the kernel refuses and that is left out."}),
	}
	x.conflicts = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weavenpc_address_conflicts",
		Help: "Addresses claimed by local pods that something contradicts: " +
			"the node, another pod's hostIPs, another pod."}, []string{"kind"})
	r.MustRegister(x.errors, x.syncDuration, x.lastSync, x.latency, x.transactions, x.retries, x.drift, x.failing,
		x.rejected, x.conflicts, controller.Collector(c))
	x.start(fs)
	return x
}

// start creates all series, so that the first event shows as an increase from 0.
func (x *Metrics) start(fs []npc.Family) {
	for _, f := range fs {
		x.failing.WithLabelValues(f.String())
	}
	for _, f := range npc.Families {
		x.transactions.WithLabelValues(f.String())
		x.retries.WithLabelValues(f.String())
		for _, kind := range []string{"set", "chain"} {
			x.drift.WithLabelValues(f.String(), kind)
		}
	}
	for _, kind := range ipowner.Kinds() {
		x.conflicts.WithLabelValues(string(kind))
	}
}
