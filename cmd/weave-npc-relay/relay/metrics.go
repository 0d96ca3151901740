package relay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
)

// metrics counts what the relay does. No label has an agent, an address or an object.
type metrics struct {
	watchers, lag                                                                *prometheus.GaugeVec
	deliveries, writes, heartbeats, reconnects, failures, expired, slow, refused *prometheus.CounterVec
	ready                                                                        prometheus.GaugeFunc
}

func newMetrics(registry prometheus.Registerer, ready func() string) *metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weavenpcrelay_" + name, Help: help}, []string{"kind"})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weavenpcrelay_" + name, Help: help},
			[]string{label})
	}
	m := &metrics{
		watchers: gauge("watchers", "Watches of agents that are open."),
		lag: gauge("upstream_silence_seconds",
			"Time since the API server's watch brought anything; it is renewed every two seconds."),
		deliveries: counter("deliveries_total", "Events passed on to agents, without bookmarks.", "kind"),
		writes: counter("writes_total",
			"Writes to agents' connections; events that are close together share one.", "kind"),
		heartbeats: counter("bookmarks_total", "Bookmarks that confirm to agents that no event is missing.", "kind"),
		reconnects: counter("upstream_reconnects_total",
			"Times that the API server's watch was made again after it broke.", "kind"),
		failures: counter("upstream_failures_total", "Lists and watches of the API server that failed.", "kind"),
		expired: counter("expired_total",
			"Requests of agents whose version is too old (410), so that they list again.", "kind"),
		slow:    counter("slow_agents_total", "Watches that were ended because their agent did not read.", "kind"),
		refused: counter("rejected_tokens_total", "Requests refused for their token, by reason.", "reason"),
	}
	m.ready = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weavenpcrelay_ready",
		Help: "Whether agents may use this replica: 1 or 0."},
		func() float64 {
			if ready() == "" {
				return 1
			}
			return 0
		})
	registry.MustRegister(m.watchers, m.lag, m.deliveries, m.writes, m.heartbeats, m.reconnects, m.failures,
		m.expired, m.slow, m.refused, m.ready)
	for _, reason := range []string{auth.ReasonAbsent, auth.ReasonInvalid, auth.ReasonAccount, auth.ReasonUnavailable,
		auth.ReasonBusy} {
		m.refused.WithLabelValues(reason)
	}
	return m
}

// observer counts what happens to one kind, and logs what fails, not more often than it must.
type observer struct {
	watchers                                                      prometheus.Gauge
	delivered, written, heartbeat, reconnected, failed, old, slow prometheus.Counter
	kind                                                          string
	log                                                           *slog.Logger

	mu     sync.Mutex // guards the fields below
	logged time.Time
}

func (m *metrics) observer(k *kinds.Kind, log *slog.Logger) *observer {
	m.lag.WithLabelValues(k.Name)
	return &observer{
		kind: k.Name, log: log,
		watchers: m.watchers.WithLabelValues(k.Name), delivered: m.deliveries.WithLabelValues(k.Name),
		written: m.writes.WithLabelValues(k.Name), heartbeat: m.heartbeats.WithLabelValues(k.Name),
		reconnected: m.reconnects.WithLabelValues(k.Name), failed: m.failures.WithLabelValues(k.Name),
		old: m.expired.WithLabelValues(k.Name), slow: m.slow.WithLabelValues(k.Name),
	}
}

// Watching implements serve.Observer.
func (o *observer) Watching(delta int) { o.watchers.Add(float64(delta)) }

// Delivered implements serve.Observer.
func (o *observer) Delivered(events int) { o.delivered.Add(float64(events)) }

// Heartbeat implements serve.Observer.
func (o *observer) Heartbeat() { o.heartbeat.Inc() }

// Written implements serve.Observer.
func (o *observer) Written() { o.written.Inc() }

// Expired implements serve.Observer.
func (o *observer) Expired() { o.old.Inc() }

// Slow implements serve.Observer.
func (o *observer) Slow() {
	o.slow.Inc()
	o.log.Debug("an agent does not read, its watch ends", "kind", o.kind)
}

// Reconnected implements upstream.Observer.
func (o *observer) Reconnected() {
	o.reconnected.Inc()
	o.log.Info("the API server's watch works again", "kind", o.kind)
}

// Failed implements upstream.Observer.
func (o *observer) Failed(doing string, err error) {
	o.failed.Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.logged) < 30*time.Second {
		return
	}
	o.logged = time.Now()
	o.log.Warn("the API server fails, will be retried indefinitely", "kind", o.kind, "doing", doing, "err", err)
}

// lags writes how long each kind has been silent.
func (m *metrics) lags(kind string, reached upstream.Reached, ok bool) {
	if !ok {
		m.lag.DeleteLabelValues(kind)
		return
	}
	m.lag.WithLabelValues(kind).Set(reached.Silent.Seconds())
}
