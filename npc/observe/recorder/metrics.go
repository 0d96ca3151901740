package recorder

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// maxPairs is how many pairs of namespaces have a label value of their own. All further ones share one.
const maxPairs = 500

// maxRules is how many rules have label values of their own. All further ones share one.
const maxRules = 1000

// pair is what the ends of connections are counted by.
type pair struct{ from, to string }

// totals are what was not recorded.
type totals struct{ lost, resumed uint64 }

func (t *totals) add(r *conntrack.EventReader) {
	t.lost += r.Lost() + r.Unsynced()
	t.resumed += r.Resumed()
}

// totals returns what was not recorded by this reader of events and by former ones.
func (r *Recorder) totals() totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.former
	if reader := r.reader.Load(); reader != nil {
		t.add(reader)
	}
	return t
}

// register registers the metrics, and has the store count connections.
func (r *Recorder) register(registry prometheus.Registerer) {
	connections := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weavenpc_flows_connections_total",
		Help: "New connections from or to pods of this node that were recorded, by namespace " +
			"(outside and node for what is no pod, other for further pairs). Denied ones are reports of packets."},
		[]string{"from", "to", "verdict"})
	unknown := prometheus.NewCounter(prometheus.CounterOpts{Name: "weavenpc_flows_rule_unknown_connections_total",
		Help: "Recorded connections whose rule was not looked for, because that took too much time."})
	ruleConnections, countRule := ruleCounter()
	pairs := limited[pair]{max: maxPairs, other: pair{"other", "other"}}
	r.store.Seen = func(c flowlog.Connection, j flowlog.Evaluation, number int) { // one call at a time
		for _, rule := range j.By {
			countRule(rule.RuleRef, j.Verdict, number)
		}
		if j.RuleUnknown {
			unknown.Add(float64(number))
		}
		p := pairs.of(pair{group(&j.From), group(&j.To)})
		connections.WithLabelValues(p.from, p.to, string(j.Verdict)).Add(float64(number))
		r.staged.seen(c, j, number)
	}
	counter := func(name, help string, value func() uint64) prometheus.Collector {
		opts := prometheus.CounterOpts{Name: name, Help: help}
		return prometheus.NewCounterFunc(opts, func() float64 { return float64(value()) })
	}
	gauge := func(name, help string, value func() uint64) prometheus.Collector {
		opts := prometheus.GaugeOpts{Name: name, Help: help}
		return prometheus.NewGaugeFunc(opts, func() float64 { return float64(value()) })
	}
	registry.MustRegister(connections, ruleConnections, unknown,
		counter("weavenpc_flows_lost_events_total",
			"New connections of this node that were not recorded, because the kernel dropped their events.",
			func() uint64 { return r.totals().lost }),
		counter("weavenpc_flows_resumed_connections_total",
			"TCP connections that the kernel took up in the middle. They are not recorded.",
			func() uint64 { return r.totals().resumed }),
		counter("weavenpc_flows_evicted_records_total",
			"Records that went because there were more than --flows-records.",
			func() uint64 { return r.store.Counts().Evicted }),
		counter("weavenpc_flows_evicted_rules_total",
			"Rules whose hits are not known any more, because there were too many.",
			func() uint64 { return r.store.Counts().EvictedRules }),
		gauge("weavenpc_flows_records", "Records of connections in memory.",
			func() uint64 { return r.store.Counts().Held }),
		gauge("weavenpc_flows_recording", "Whether allowed connections are recorded; the log has the reason if not.",
			func() uint64 {
				if r.reader.Load() == nil {
					return 0
				}
				return 1
			}))
}

// limited is the values of labels, which are limited in number: all further ones are other. The zero value of known
// will do.
type limited[K comparable] struct {
	known map[K]bool
	max   int
	other K
}

// of returns the value that counts for another one.
func (l *limited[K]) of(k K) K {
	switch {
	case l.known[k]:
	case len(l.known) >= l.max:
		return l.other
	case l.known == nil:
		l.known = map[K]bool{k: true}
	default:
		l.known[k] = true
	}
	return k
}

// ruleCounter returns the metric of connections by rule, and what adds to it, one call at a time.
func ruleCounter() (prometheus.Collector, func(flowlog.RuleRef, flowlog.Verdict, int)) {
	type key struct {
		flowlog.RuleRef
		verdict flowlog.Verdict
	}
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weavenpc_flows_rule_connections_total",
		Help: "New connections that were recorded, by the rule that decided " +
			"(of a NetworkPolicy if there is no tier; other for further rules). " +
			"A rule that is moved within its policy has another number."},
		[]string{"tier", "policy", "rule", "direction", "verdict"})
	known := map[key]prometheus.Counter{}
	return c, func(r flowlog.RuleRef, v flowlog.Verdict, number int) {
		k := key{r, v}
		counter := known[k]
		switch {
		case counter != nil:
		case len(known) < maxRules:
			counter = c.WithLabelValues(r.Tier, r.Policy, strconv.Itoa(r.Number), r.Direction, string(v))
			known[k] = counter
		default:
			counter = c.WithLabelValues("other", "other", "other", "other", "other")
		}
		counter.Add(float64(number))
	}
}

// group returns what an end is counted as. No namespace is called outside by accident: it would share the value, no
// more.
func group(e *flowlog.End) string {
	switch {
	case e.IsPod():
		return e.Namespace
	case e.NodeAddr:
		return "node"
	}
	return "outside"
}
