package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/serve"
)

// The kinds that spans depend on.
const (
	spaces          = "namespaces"
	pods            = "pods"
	policies        = "networkpolicies"
	clusterPolicies = "clusternetworkpolicies"
)

// spanMetrics counts what the computation of spans does.
type spanMetrics struct {
	agents, pods prometheus.Gauge
	applied      *prometheus.HistogramVec
}

func newSpanMetrics(registry prometheus.Registerer) *spanMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "weavenpcrelay_span_" + name, Help: help})
	}
	m := &spanMetrics{
		agents: gauge("agents", "Watches of agents that get only the pods that their nodes need."),
		pods:   gauge("pods", "Pods among which the ones that nodes need are found; 0 while no agent asks for them."),
		applied: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weavenpcrelay_span_apply_seconds",
			Help:    "Time in which a change is taken in, and the pods are found that nodes need by it.",
			Buckets: []float64{10e-6, 100e-6, 1e-3, 10e-3, 100e-3, 1}}, []string{"kind"}),
	}
	registry.MustRegister(m.agents, m.pods, m.applied)
	for _, kind := range []string{spaces, pods, policies, clusterPolicies} {
		m.applied.WithLabelValues(kind)
	}
	return m
}

// Applied implements serve.SpanObserver.
func (m *spanMetrics) Applied(kind string, took time.Duration) {
	m.applied.WithLabelValues(kind).Observe(took.Seconds())
}

// Spans implements serve.SpanObserver.
func (m *spanMetrics) Spans(agents, from int) {
	m.agents.Set(float64(agents))
	m.pods.Set(float64(from))
}

// newSpans returns the spans of the pods that are followed.
func (r *Relay) newSpans() (*serve.Spans, error) {
	by := map[string]*serve.Kind{}
	for _, f := range r.kinds {
		by[f.kind.Name] = f.served
	}
	return serve.NewSpans(serve.SpanKinds{Namespaces: by[spaces], Pods: by[pods], Policies: by[policies],
		ClusterPolicies: by[clusterPolicies]}, newSpanMetrics(r.registry))
}
