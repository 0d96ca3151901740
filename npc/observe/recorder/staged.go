package recorder

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/observe/dedup"
)

// maxStagedPolicies is how many staged policies have label values of their own. All further ones share one.
const maxStagedPolicies = 200

// stagedReporter reports recorded connections that staged policies would decide otherwise: in the log and as a metric.
type stagedReporter struct {
	groups func() map[string]string
	lines  *dedup.Log[stagedKind, string, stagedConnection]
	log    *slog.Logger

	connections             *prometheus.CounterVec
	suppressed, unevaluated prometheus.Counter
	labelled                limited[stagedPolicy] // those with label values of their own
	known                   map[string]string     // the groups as the store knows them; nil at first
	any                     atomic.Bool           // whether there are groups
}

// stagedKind is what connections have in common that are repeats of each other in the log.
type stagedKind struct {
	group, policy string
	from, to      string
	connection    flowlog.Connection
}

type stagedPolicy struct{ group, policy string }

// stagedConnection is what a line of the log is about.
type stagedConnection struct {
	flowlog.Connection
	flowlog.Evaluation
	would flowlog.Staged
}

func newStagedReporter(
	groups func() map[string]string, log *slog.Logger, registry prometheus.Registerer,
) *stagedReporter {
	r := &stagedReporter{groups: groups, log: log,
		labelled: limited[stagedPolicy]{max: maxStagedPolicies, other: stagedPolicy{"other", "other"}},
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weavenpc_staged_connections_total",
			Help: "Recorded connections that a group of staged policies would decide otherwise, " +
				"by the staged policy that decides (other for further ones)."},
			[]string{"group", "policy", "outcome"}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{Name: "weavenpc_staged_log_suppressed_total",
			Help: "Connections that staged policies would decide otherwise, counted, " +
				"but neither logged nor summed up in a line of the log."}),
		unevaluated: prometheus.NewCounter(prometheus.CounterOpts{Name: "weavenpc_staged_unevaluated_connections_total",
			Help: "Recorded connections that staged policies were not asked about, because that took too much time."}),
	}
	r.lines = dedup.New[stagedKind](r.line, func(number int, most string) {
		log.Info("staged", "not_logged", number, "most_from", most)
	})
	registry.MustRegister(r.connections, r.suppressed, r.unevaluated)
	return r
}

// seen reports what groups would do with a number of connections. It is called by one goroutine at a time.
func (r *stagedReporter) seen(c flowlog.Connection, j flowlog.Evaluation, number int) {
	if j.Unevaluated && r.any.Load() {
		r.unevaluated.Add(float64(number))
	}
	for _, s := range j.Staged {
		p := r.labelled.of(stagedPolicy{s.Group, s.Policy})
		r.connections.WithLabelValues(p.group, p.policy, "would_"+would(s.Verdict)).Add(float64(number))
		kind := stagedKind{s.Group, s.Policy, j.From.String(), j.To.String(), flowlog.Connection{Service: c.Service}}
		if !j.From.IsPod() {
			kind.connection.Src = c.Src
		}
		if !j.To.IsPod() {
			kind.connection.Dst = c.Dst
		}
		r.suppressed.Add(float64(r.lines.Add(kind, kind.from, stagedConnection{c, j, s}, number, time.Now())))
	}
}

// would returns what would be done with connections.
func would(v flowlog.Verdict) string {
	if v == flowlog.Denied {
		return "drop"
	}
	return "allow"
}

// line logs a connection, with its repeats if there are any.
func (r *stagedReporter) line(c stagedConnection, number int, within time.Duration) {
	args := []any{"group", c.would.Group, "would", would(c.would.Verdict), "policy", c.would.Policy,
		"from", describe(c.From), "to", describe(c.To), "port", c.Service}
	if c.would.By != nil {
		args = append(args, "by", *c.would.By)
	}
	if len(c.By) > 0 {
		args = append(args, "now_by", c.By[0].RuleRef)
	}
	if number > 0 {
		args = append(args, "repeats", number, "within", within.Round(time.Second))
	}
	r.log.Info("staged", args...)
}

// describe returns an end as lines of the log have it.
func describe(e flowlog.End) string {
	if !e.IsPod() {
		return e.String()
	}
	return fmt.Sprintf("%s (%s %s)", e, e.Pod, e.Addr)
}

// watchStaged logs repeats, and has the store remove the results of groups that have changed.
func (r *Recorder) watchStaged(ctx context.Context) {
	s := r.staged
	for sleep(ctx, time.Second) {
		s.suppressed.Add(float64(s.lines.SumUp(time.Now())))
		if groups := s.groups(); groups != nil && (s.known == nil || !maps.Equal(groups, s.known)) {
			r.store.KeepStaged(groups)
			s.known = groups
			s.any.Store(len(groups) > 0)
		}
	}
	s.lines.SumUp(time.Now().Add(dedup.Window)) // as if all windows had ended
}
