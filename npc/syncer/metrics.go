package syncer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/claims"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Metrics are what the syncer counts. All durations are in seconds.
type Metrics struct {
	EnforcementErrors prometheus.Counter
	SyncDuration      prometheus.Histogram
	LastSync          prometheus.Gauge
	Latency           prometheus.Histogram
	Transactions      *prometheus.CounterVec
	Retries           *prometheus.CounterVec
	Drift             *prometheus.CounterVec
	Failing           *prometheus.GaugeVec
	Refused           prometheus.Gauge
	Conflicts         *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them, together with gauges of what the model holds.
func NewMetrics(r prometheus.Registerer, m *controller.Controller) *Metrics {
	x := &Metrics{
		EnforcementErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weavenpc_policy_enforcement_errors",
			Help: "Failures to bring sets and chains up to date."}),
		SyncDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weavenpc_sync_duration_seconds", Help: "Time to plan and apply the changes of both families.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
		LastSync: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weavenpc_last_sync_timestamp_seconds",
			Help: "When the kernel was last seen or made to hold all that is wanted, in Unix time."}),
		Latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weavenpc_event_latency_seconds",
			Help:    "Time from the first of the changes of objects that a sync carries out until the kernel holds them all.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18)}),
		Transactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_transactions_total", Help: "Transactions applied."}, []string{"family"}),
		Retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_retries_total", Help: "Syncs that tried again what had failed."}, []string{"family"}),
		Drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_drift_total", Help: "Times that others were found to have changed what is ours."},
			[]string{"family", "kind"}),
		Failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weavenpc_failing", Help: "Whether sets and chains cannot be brought up to date."}, []string{"family"}),
		Refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weavenpc_refused_policies", Help: "Policies of which the kernel refuses a rule or a set, which is left out."}),
	}
	x.Conflicts = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weavenpc_address_conflicts",
		Help: "Addresses claimed by local pods that something contradicts: the node, another pod's hostIPs, another pod."}, []string{"kind"})
	for _, kind := range claims.Kinds() {
		x.Conflicts.WithLabelValues(string(kind))
	}
	r.MustRegister(x.EnforcementErrors, x.SyncDuration, x.LastSync, x.Latency, x.Transactions, x.Retries, x.Drift, x.Failing,
		x.Refused, x.Conflicts, controller.Collector(m))
	for _, f := range traffic.Families {
		// A series that is there before the first event shows the first event.
		for _, v := range []*prometheus.CounterVec{x.Transactions, x.Retries} {
			v.WithLabelValues(f.String())
		}
		for _, kind := range []string{"set", "chain"} {
			x.Drift.WithLabelValues(f.String(), kind)
		}
	}
	return x
}
