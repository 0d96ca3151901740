package established

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
)

const (
	// lookAgain is when connections are looked at again that were being opened during the first look, whose first
	// packet the former rules let pass.
	lookAgain = 100 * time.Millisecond
	// evaluatedAtOnce is how many comparisons with rules, of about 10 ns, are made for a connection before those of
	// others.
	evaluatedAtOnce = 300
	// sentAtOnce is how many connections are ended or restored together.
	sentAtOnce = 128
	// A look that fails is repeated after retryFirst, and later after twice the last pause, up to retryLast.
	retryFirst, retryLast = 100 * time.Millisecond, 30 * time.Second
)

// Evaluator evaluates flows of local pods by the policies.
type Evaluator interface {
	// LocalAddrs returns the addresses of the local pods.
	LocalAddrs() map[netip.Addr]struct{}
	// EvaluateWithin returns the verdict on a flow or, if that takes more than most comparisons, the namespace whose
	// rules take them.
	EvaluateWithin(most int, f verdict.Flow) (v verdict.Verdict, costly string)
}

// Config is what a Worker is made of.
type Config struct {
	Evaluator Evaluator
	// Table has the connections of all families that there are rules for.
	Table *conntrack.Table
	// Bit is the bit of the mark.
	Bit uint32
	// MaxPinned is how many TCP connections may stay in the table, ended, for as long as they would have stayed without
	// a packet. More of them are forgotten soon after they are reset, and may be opened again by an end that was idle.
	MaxPinned int
	// EndLate, if it is not nil, has the rules written by which connections end. Then only those end that began before
	// their pod was known, and the rules are written once there are such.
	EndLate func()
	// AreKnown reports whether what the Evaluator evaluates by is known; nil if it always is.
	AreKnown func() bool
	Metrics  *Metrics
	Log      *slog.Logger
}

// Worker ends connections. Terminator returns one.
type Worker struct {
	Config
	asked chan struct{}
	late  late
	aside aside
	// began is when the last look began, and unreported is what was done since.
	began      time.Time
	unreported counts
	// former is how many ended connections the table had at the last look.
	former int
	// ended is set if there were ended connections at the last look, or before the first one.
	ended bool
	// full and misses are set while a look found too many ended connections, and some that meet no rule: each is
	// logged once.
	full, misses bool
}

// newTerminator returns a Worker that has ended nothing.
func newTerminator(c Config) *Worker {
	w := &Worker{Config: c, asked: make(chan struct{}, 1), aside: aside{waiting: map[string][]conntrack.Entry{},
		found: map[string]uint64{}, related: map[string][]conntrack.Entry{}, arrived: map[netip.Addr]int{}}}
	w.late.noted = make(chan struct{}, 1)
	if c.EndLate == nil {
		w.late.rules = written
	}
	return w
}

// Ask requests that all connections are evaluated again. It does not wait for that.
func (w *Worker) Ask() { notify(w.asked) }

// notify sends to a channel that holds one notification.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look evaluates all connections once, except those whose rules take many comparisons, which wait for their turn.
func (w *Worker) look() (counts, error) {
	w.began = time.Now()
	local := w.Evaluator.LocalAddrs()
	l := pass{Worker: w, arrived: w.late.pending()}
	w.aside.begin(l.arrived)
	err := w.Table.Entries(func(source, destination netip.Addr) bool {
		_, from := local[source]
		_, to := local[destination]
		return from || to
	}, l.take)
	if err == nil {
		err = l.end()
	}
	l.pinned += l.added
	w.ended = l.marked+l.cut > 0
	if w.former = l.pinned; err != nil {
		return l.counts, err
	}
	w.late.took = time.Since(w.began)
	w.Metrics.observe(l.counts, w.late.took)
	w.report(l.counts)
	return l.counts, w.concludeLate(&l)
}

// takeTurn evaluates the connection whose turn it is, however many comparisons that takes.
func (w *Worker) takeTurn() error {
	waited, namespace := w.aside.next()
	l := pass{Worker: w, arrived: w.aside.arrived}
	entries, err := w.Table.Refresh(append([]conntrack.Entry{waited}, w.aside.related[waited.Name]...))
	if err == nil && len(entries) > 0 && entries[0].Name == waited.Name {
		v, _ := w.evaluate(entries[0], verdict.NoBound)
		l.decide(entries[0], v)
		for _, e := range entries[1:] {
			l.decide(e, verdict.Verdict{Evaluated: true, Allowed: v.Allowed})
		}
		err = l.carryOut()
	}
	if err != nil || l.unruled > 0 {
		w.aside.add(waited, namespace)
	}
	w.former += l.added
	w.ended = w.ended || l.marked+l.cut > 0
	w.Metrics.count(l.counts)
	w.Metrics.remembered.Add(float64(l.added + l.unpinned))
	w.unreported.add(l.counts)
	if len(w.aside.turns) == 0 {
		w.report(counts{})
	}
	if err != nil {
		return err
	}
	return w.requestRules(&l)
}

// report logs what a look did, and what was done before it and is not reported.
func (w *Worker) report(n counts) {
	n.add(w.unreported)
	w.unreported = counts{}
	if n.cut+n.restored > 0 {
		what := "a change ended connections"
		if w.EndLate != nil {
			what = "connections were ended that began before their pod was known"
		}
		w.Log.Info(what, "ended", n.cut, "restored", n.restored,
			"took", time.Since(w.began).Round(time.Microsecond))
	}
	if full := n.unpinned > 0; full != w.full {
		if w.full = full; full {
			w.Log.Warn("too many ended connections are remembered: more of them "+
				"may be opened again by an end that was idle", "remembered", w.former)
		}
	}
	if is := n.offloaded > 0; is != w.misses && (is || len(w.aside.turns) == 0) {
		if w.misses = is; is {
			w.Log.Warn("connections that were to end are offloaded: their packets may meet no rule",
				"connections", n.offloaded)
		}
	}
}

// counts are what a look found and did: how many connections it ended and allowed again, how many ended ones stay in
// the table, and how many of those that are to end would not, or meet no rule.
type counts struct{ cut, restored, pinned, unpinned, offloaded int }

// add adds what else was done. The connections that were ended before are those of the last look.
func (n *counts) add(m counts) {
	n.cut += m.cut
	n.restored += m.restored
	n.unpinned += m.unpinned
	n.offloaded += m.offloaded
}

// pass is one look at the connections.
type pass struct {
	*Worker
	counts
	// added is how many more ended connections the table has now than at the last look.
	added int
	// arrived are the addresses whose connections end even if others are kept. unruled counts the connections that are
	// to end when there are rules for it.
	arrived map[netip.Addr]int
	unruled int
	// marked counts the connections that had ended before.
	marked int
	// related connections wait for the connection that they are related to, whose verdict they share.
	related []conntrack.Entry
	// pin and mark are to end, and restore to go on.
	pin, mark, restore []conntrack.Entry
	// ended are the names of connections that are denied, as long as others may follow them.
	ended map[string]struct{}
	err   error
}

// isDHCP reports whether a connection is one of DHCP, which passes whatever policies say.
func isDHCP(e conntrack.Entry) bool {
	low, high := min(e.Port, e.SourcePort), max(e.Port, e.SourcePort)
	return e.Protocol == unix.IPPROTO_UDP && (low == 67 && high == 68 || low == 546 && high == 547)
}

// take evaluates a connection, or has it wait for its turn.
func (l *pass) take(e conntrack.Entry) {
	switch {
	case isDHCP(e):
	case e.Master != "":
		l.related = append(l.related, e)
	case l.keeps(e) && !l.marks(e):
		l.aside.stay(e.Name)
	default:
		if v, costly := l.evaluate(e, evaluatedAtOnce); costly == "" {
			l.decide(e, v)
		} else {
			l.aside.add(e, costly)
			l.count(e)
		}
	}
}

// evaluate returns the verdict on a connection, or the namespace whose rules take more than most comparisons.
func (w *Worker) evaluate(e conntrack.Entry, most int) (v verdict.Verdict, costly string) {
	v, costly = w.Evaluator.EvaluateWithin(most, verdict.Flow{From: e.Source, To: e.Destination,
		Service: flow.Service{Protocol: e.Protocol, Port: e.Port}})
	if !e.Liberal || v.Allowed || costly != "" {
		return v, costly
	}
	// It was taken up in mid-stream: who opened it is not known.
	reverse, costly := w.Evaluator.EvaluateWithin(most, verdict.Flow{From: e.Destination, To: e.Source,
		Service: flow.Service{Protocol: e.Protocol, Port: e.SourcePort}})
	v.Allowed = reverse.Allowed
	return v, costly
}

// end decides about the related connections and carries out the rest.
func (l *pass) end() error {
	for _, e := range l.related {
		if l.aside.has(e.Master) {
			l.aside.related[e.Master] = append(l.aside.related[e.Master], e)
			l.count(e)
			continue
		}
		_, ended := l.ended[e.Master]
		l.decide(e, verdict.Verdict{Evaluated: true, Allowed: !ended})
	}
	err := l.carryOut()
	if err == nil {
		l.aside.end()
	}
	return err
}

// marks reports whether a connection was ended before. Without the rules the mark is another program's.
func (l *pass) marks(e conntrack.Entry) bool { return e.Mark&l.Bit != 0 && l.late.rules == written }

// count counts a connection that was ended before.
func (l *pass) count(e conntrack.Entry) {
	if !l.marks(e) {
		return
	}
	l.marked++
	if e.Pinned() {
		l.pinned++
	}
}

// decide has a connection end that is denied, or restored that was ended and is allowed. Several are sent at once.
func (l *pass) decide(e conntrack.Entry, v verdict.Verdict) {
	l.count(e)
	marked, denied := l.marks(e), v.Evaluated && !v.Allowed
	if denied && (marked || !l.keeps(e)) {
		l.remember(e.Name)
	}
	switch {
	case !v.Evaluated, v.Allowed && !marked:
	case v.Allowed:
		l.restore = append(l.restore, e)
	case marked, l.keeps(e):
	case l.late.rules != written:
		l.unruled++
	case l.former+l.added >= l.MaxPinned:
		l.mark = append(l.mark, e)
		l.unpinned++
	default:
		l.pin = append(l.pin, e)
		l.added++
	}
	if denied && !l.keeps(e) && e.Offloaded() {
		l.offloaded++
	}
	if len(l.pin)+len(l.mark)+len(l.restore) >= sentAtOnce {
		l.note(l.carryOut())
	}
}

// carryOut ends and restores connections as decided. It returns the first error of the pass.
func (l *pass) carryOut() error {
	for _, c := range []struct {
		entries []conntrack.Entry
		pin     bool
	}{{l.pin, true}, {l.mark, false}} {
		gone, err := l.Table.Terminate(c.entries, l.Bit, c.pin)
		l.note(err)
		l.cut += len(c.entries) - gone
	}
	l.note(l.Table.Restore(l.restore, l.Bit))
	l.restored += len(l.restore)
	l.pin, l.mark, l.restore = l.pin[:0], l.mark[:0], l.restore[:0]
	return l.err
}

func (l *pass) remember(name string) {
	if l.ended == nil {
		l.ended = map[string]struct{}{}
	}
	l.ended[name] = struct{}{}
}

func (l *pass) note(err error) {
	if l.err == nil {
		l.err = errors.Wrap(err, "ending connections")
	}
}
