package established

import (
	"context"
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
	// evaluatedAtOnce is how many connections are evaluated while changes of the objects wait.
	evaluatedAtOnce = 128
	// A look that fails is repeated after retryFirst, and later after twice the last pause, up to retryLast.
	retryFirst, retryLast = 100 * time.Millisecond, 30 * time.Second
)

// Evaluator evaluates flows of local pods by the policies.
type Evaluator interface {
	// LocalAddrs returns the addresses of the local pods.
	LocalAddrs() map[netip.Addr]struct{}
	// Evaluate appends the verdicts on flows, in their order, to out.
	Evaluate(flows []verdict.Flow, out []verdict.Verdict) []verdict.Verdict
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
	Metrics *Metrics
	Log     *slog.Logger
}

// Worker ends connections. Terminator returns one.
type Worker struct {
	Config
	asked chan struct{}
	late  late
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
	w := &Worker{Config: c, asked: make(chan struct{}, 1)}
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

// Run evaluates connections after each Ask until the context ends. It returns no error: it retries what fails.
func (w *Worker) Run(ctx context.Context) error {
	share := share{at: time.Now()}
	again, batch := time.NewTimer(0), time.NewTimer(0)
	again.Stop()
	batch.Stop()
	defer again.Stop()
	defer batch.Stop()
	retry := time.Duration(0)
	for {
		first := false
		select {
		case <-ctx.Done():
			return nil
		case <-w.late.noted:
			if !w.late.waiting {
				batch.Reset(w.late.pause())
			}
			w.late.waiting = true
			continue
		case <-batch.C:
			w.late.waiting, first = false, true
		case <-w.asked:
			w.late.confirm()
			first = true
		case <-again.C:
		}
		if !w.due() {
			continue
		}
		start := time.Now()
		switch _, err := w.look(); {
		case err != nil:
			if retry == 0 {
				w.Log.Error("cannot end connections that are not allowed any more, trying again", "err", err)
			}
			w.Metrics.failures.Inc()
			retry = min(max(2*retry, retryFirst), retryLast)
			again.Reset(retry)
		case retry > 0:
			w.Log.Info("connections that are not allowed any more can be ended again")
			retry = 0
			again.Reset(lookAgain)
		case first:
			// Long looks are less often in the way of the next change so.
			again.Reset(max(lookAgain, 2*time.Since(start)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(share.after(time.Now(), time.Since(start))):
		}
	}
}

// burst is by how much looks may be ahead of their share without a pause.
const burst = 100 * time.Millisecond

// share has looks take half the time at most, in the long run, so that who edits policies all the time gets half a
// processor.
type share struct {
	ahead time.Duration // by how much they were ahead at a time
	at    time.Time
}

// after returns the pause after a look that took some time.
func (s *share) after(now time.Time, took time.Duration) time.Duration {
	idle := now.Sub(s.at) - took
	s.ahead, s.at = max(0, s.ahead-idle/2)+took/2, now
	return max(0, 2*(s.ahead-burst))
}

// look evaluates all connections once.
func (w *Worker) look() (counts, error) {
	start := time.Now()
	local := w.Evaluator.LocalAddrs()
	l := pass{Worker: w, arrived: w.late.pending()}
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
	w.late.took = time.Since(start)
	w.report(l.counts, w.late.took)
	return l.counts, w.concludeLate(&l)
}

// report logs and counts what a look did.
func (w *Worker) report(n counts, took time.Duration) {
	w.Metrics.observe(n, took)
	if n.cut+n.restored > 0 {
		what := "a change ended connections"
		if w.EndLate != nil {
			what = "connections were ended that began before their pod was known"
		}
		w.Log.Info(what, "ended", n.cut, "restored", n.restored,
			"took", took.Round(time.Microsecond))
	}
	if full := n.unpinned > 0; full != w.full {
		if w.full = full; full {
			w.Log.Warn("too many ended connections are remembered: more of them "+
				"may be opened again by an end that was idle", "remembered", n.pinned)
		}
	}
	if is := n.offloaded > 0; is != w.misses {
		if w.misses = is; is {
			w.Log.Warn("connections that were to end are offloaded: their packets may meet no rule",
				"connections", n.offloaded)
		}
	}
}

// counts are what a look found and did: how many connections it ended and allowed again, how many ended ones stay in
// the table, and how many of those that are to end would not, or meet no rule.
type counts struct{ cut, restored, pinned, unpinned, offloaded int }

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
	// entries wait to be evaluated, and related ones for the connection that they are related to, whose verdict they
	// share.
	entries, related []conntrack.Entry
	flows            []verdict.Flow
	verdicts         []verdict.Verdict
	// ended are the names of connections that are denied, as long as others may follow them.
	ended map[string]struct{}
	err   error
}

// isDHCP reports whether a connection is one of DHCP, which passes whatever policies say.
func isDHCP(e conntrack.Entry) bool {
	low, high := min(e.Port, e.SourcePort), max(e.Port, e.SourcePort)
	return e.Protocol == unix.IPPROTO_UDP && (low == 67 && high == 68 || low == 546 && high == 547)
}

// take evaluates a connection, in a batch with others before and after it.
func (l *pass) take(e conntrack.Entry) {
	if isDHCP(e) {
		return
	}
	if e.Master != "" {
		l.related = append(l.related, e)
		return
	}
	if l.entries = append(l.entries, e); len(l.entries) == evaluatedAtOnce {
		l.evaluate()
	}
}

// evaluate evaluates the connections that wait.
func (l *pass) evaluate() {
	l.flows, l.verdicts = l.flows[:0], l.verdicts[:0]
	for _, e := range l.entries {
		l.flows = append(l.flows, verdict.Flow{From: e.Source, To: e.Destination,
			Service: flow.Service{Protocol: e.Protocol, Port: e.Port}})
	}
	for _, e := range l.entries {
		if e.Liberal { // it was taken up in mid-stream: who opened it is not known
			l.flows = append(l.flows, verdict.Flow{From: e.Destination, To: e.Source,
				Service: flow.Service{Protocol: e.Protocol, Port: e.SourcePort}})
		}
	}
	l.verdicts = l.Evaluator.Evaluate(l.flows, l.verdicts)
	reverse := l.verdicts[len(l.entries):]
	l.carryOut(func(i int) (evaluated, allowed bool) {
		v := l.verdicts[i]
		if l.entries[i].Liberal {
			v.Allowed, reverse = v.Allowed || reverse[0].Allowed, reverse[1:]
		}
		return v.Evaluated, v.Allowed
	})
}

// end evaluates the rest.
func (l *pass) end() error {
	if len(l.entries) > 0 {
		l.evaluate()
	}
	if l.entries = l.related; len(l.entries) > 0 {
		l.carryOut(func(i int) (evaluated, allowed bool) {
			_, ended := l.ended[l.entries[i].Master]
			return true, !ended
		})
	}
	return l.err
}

// carryOut ends the connections that are denied, and restores those that were ended and are allowed.
func (l *pass) carryOut(verdict func(i int) (evaluated, allowed bool)) {
	var pin, mark, restore []conntrack.Entry
	for i, e := range l.entries {
		evaluated, allowed := verdict(i)
		marked := e.Mark&l.Bit != 0 && l.late.rules == written // else the mark is another program's
		if evaluated && !allowed && (marked || !l.keeps(e)) {
			l.remember(e.Name)
		}
		switch {
		case !evaluated, allowed && !marked:
		case allowed:
			restore = append(restore, e)
		case marked, l.keeps(e):
		case l.late.rules != written:
			l.unruled++
		case l.former+l.added >= l.MaxPinned:
			mark = append(mark, e)
			l.unpinned++
		default:
			pin = append(pin, e)
			l.added++
		}
		if marked {
			l.marked++
		}
		if marked && e.Pinned() {
			l.pinned++
		}
		if evaluated && !allowed && !l.keeps(e) && e.Offloaded() {
			l.offloaded++
		}
	}
	l.entries = l.entries[:0]
	for _, c := range []struct {
		entries []conntrack.Entry
		pin     bool
	}{{pin, true}, {mark, false}} {
		gone, err := l.Table.Terminate(c.entries, l.Bit, c.pin)
		l.note(err)
		l.cut += len(c.entries) - gone
	}
	l.note(l.Table.Restore(restore, l.Bit))
	l.restored += len(restore)
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
