package established

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count evaluated, terminated and restored connections.
type Metrics struct {
	ended, restored, failures prometheus.Counter
	remembered                prometheus.Gauge
	duration                  prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &Metrics{
		ended: counter("weavenpc_terminated_connections_total",
			"Connections that were ended because a change denies them."),
		restored: counter("weavenpc_restored_connections_total", "Ended connections that are allowed again."),
		failures: counter("weavenpc_termination_failures_total",
			"Looks at the connections that failed. They are repeated."),
		remembered: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weavenpc_remembered_connections",
			Help: "Ended connections that are still in the table of connections, at the last look."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weavenpc_termination_duration_seconds",
			Help: "Duration of a look at all connections.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}),
	}
	r.MustRegister(m.remembered, m.duration)
	return m
}

// observe counts what a look did.
func (m *Metrics) observe(n counts, took time.Duration) {
	m.count(n)
	m.remembered.Set(float64(n.pinned + n.unpinned))
	m.duration.Observe(took.Seconds())
}

// count counts what was done.
func (m *Metrics) count(n counts) {
	m.ended.Add(float64(n.cut))
	m.restored.Add(float64(n.restored))
}
