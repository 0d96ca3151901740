package established

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/conntrack"
)

const (
	// Addresses that became known are collected for at least lateAfter before their connections are evaluated, and for
	// so long that looks for them take at most one part in lateShare of the time: most have no connection then.
	lateAfter, lateShare = time.Second, 20
	// lateLooks is how many looks an address takes part in: the second one finds what was being opened at the first.
	lateLooks = 2
)

// rulesState is whether the rules stand by which connections end.
type rulesState uint8

const (
	unwritten rulesState = iota
	requested
	written
)

// late holds the addresses whose pods became known a moment ago. The Worker's goroutine alone uses the fields before mu.
type late struct {
	noted chan struct{}
	rules rulesState
	// waiting is set while addresses are collected, and took is the duration of the last look.
	waiting bool
	took    time.Duration

	mu    sync.Mutex         // guards addrs
	addrs map[netip.Addr]int // address -> how many looks it takes part in
}

// Late requests that the connections of addresses are evaluated that became local pods' a moment ago: policies may deny
// what they began before. It does not wait for that.
func (w *Worker) Late(addrs []netip.Addr) {
	w.late.note(addrs)
	notify(w.late.noted)
}

func (x *late) note(addrs []netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.addrs == nil {
		x.addrs = map[netip.Addr]int{}
	}
	for _, a := range addrs {
		x.addrs[a] = lateLooks
	}
}

// pending returns the addresses that the next look is about.
func (x *late) pending() map[netip.Addr]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.addrs)
}

// pause returns how long addresses are collected.
func (x *late) pause() time.Duration { return max(lateAfter, lateShare*x.took) }

// confirm records that a transaction was carried out, that with the requested rules too.
func (x *late) confirm() {
	if x.rules == requested {
		x.rules = written
	}
}

// looked records that a look was about addresses.
func (x *late) looked(addrs map[netip.Addr]int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for a, n := range addrs {
		switch {
		case x.addrs[a] > n: // noted again since
		case n <= 1:
			delete(x.addrs, a)
		default:
			x.addrs[a] = n - 1
		}
	}
}

// due reports whether a look may find something to do. If connections are kept, that takes an address that became
// known, or an ended connection that may be allowed again.
func (w *Worker) due() bool { return w.EndLate == nil || w.ended || len(w.late.pending()) > 0 }

// keeps reports whether a connection does not end whatever denies it: others are kept than those of addresses that
// became known.
func (l *pass) keeps(e conntrack.Entry) bool {
	return l.EndLate != nil && l.arrived[e.Source]+l.arrived[e.Destination] == 0
}

// concludeLate records that a look was about addresses that became known, or has the rules written that end their
// connections.
func (w *Worker) concludeLate(l *pass) error {
	if l.unruled == 0 {
		w.late.looked(l.arrived)
	}
	return w.requestRules(l)
}

// requestRules has the rules written if connections are to end by them.
func (w *Worker) requestRules(l *pass) error {
	if l.unruled > 0 && w.late.rules == unwritten {
		if err := unused(w.Table, w.Bit); err != nil {
			return errors.Wrap(err, "ending connections that began before their pod was known")
		}
		w.endLate()
	}
	return nil
}

// endLate has the rules written by which connections end. Ask comes after that.
func (w *Worker) endLate() {
	w.late.rules = requested
	w.EndLate()
}
