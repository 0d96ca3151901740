package syncer

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// probeTimeout is how long a sync waits for a probe before it goes on without: most failures come at once.
const probeTimeout = 300 * time.Millisecond

// probe tests whether the programs of iptables work, concurrently with the syncs. The zero probe is not running.
type probe struct{ result chan error }

// running reports whether the probe was started and its end not been seen.
func (p *probe) running() bool { return p.result != nil }

// start runs try for at most limit in a goroutine, which calls ended at its end.
func (p *probe) start(ctx context.Context, limit time.Duration, try func(context.Context) error, ended func()) {
	result := make(chan error, 1)
	p.result = result
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		result <- try(ctx)
		ended()
	}()
}

// wait waits for the end of the probe and returns its result. It reports whether the probe has ended.
func (p *probe) wait(timeout time.Duration) (ended bool, err error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err = <-p.result: // even if the timeout has expired
	default:
		select {
		case err = <-p.result:
		case <-timer.C:
			return false, nil
		}
	}
	p.result = nil
	return true, err
}

const (
	// lockReported is how long another process may hold the lock of iptables before that is an error.
	lockReported = 5 * time.Second
	// lockLimit is how long the lock is waited for before it is looked at again.
	lockLimit = time.Hour
)

// lock is the lock of iptables-legacy while another process holds it. It is waited for concurrently with the syncs, so
// that sets are kept up to date all the same. The zero lock is free.
type lock struct {
	probe
	since time.Time
}

// held reports whether another process is known to hold the lock.
func (l *lock) held() bool {
	if !l.running() {
		return false
	}
	ended, _ := l.wait(0) // whoever waits longer begins anew
	return !ended
}

// plan returns the transactions of what is known, without rules while another process holds the lock that these need.
// The function ended is called when none does any more.
func (l *lock) plan(ctx context.Context, ks kernels, ended func(), of func(knowledge) transactions) transactions {
	txs := of(ks.known())
	for _, k := range ks {
		if l.await(ctx, k, txs[k.family], ended) {
			return of(ks.known())
		}
	}
	return txs
}

// await begins to wait for the lock if a kernel needs it for a transaction and another process holds it. It reports
// whether one does.
func (l *lock) await(ctx context.Context, k *kernel, tx dataplane.Transaction, ended func()) bool {
	if tx.Rules.Empty() || !k.filter.Locked() {
		return false
	}
	l.since = time.Now()
	l.start(ctx, lockLimit, func(ctx context.Context) error {
		defer k.doing.Begin(k.family.String()+" rules", "waiting for the xtables lock")()
		return k.filter.AwaitLock(ctx)
	}, ended)
	return true
}

// err returns an error if another process has held the lock for long.
func (l *lock) err(now time.Time) error {
	if !l.held() || now.Sub(l.since) < lockReported {
		return nil
	}
	return errors.New("another process holds the xtables lock; fuser -v /run/xtables.lock names it")
}

// reportAt returns when err is to be asked next; zero if the time has passed, or no other process holds the lock.
func (l *lock) reportAt(now time.Time) time.Time {
	if at := l.since.Add(lockReported); l.held() && now.Before(at) {
		return at
	}
	return time.Time{}
}

// reading is a read of chains, concurrent with the syncs. The zero reading is not running.
type reading struct {
	probe
	// done receives when a read ends.
	done   chan struct{}
	chains []readChains
	// limit bounds the read, which began for the first time when began, and was overtaken by syncs since.
	limit     time.Duration
	began     time.Time
	overtaken int
}

// readChains are the chains of a family, as they are read.
type readChains struct {
	kernel *kernel
	// print is the table's fingerprint, and written the kernel's count, from before the read.
	print   iptables.Fingerprint
	written int
	timeout time.Duration
	seen    iptables.Seen
	err     error
}

// begin reads chains, one family after the other.
func (r *reading) begin(ctx context.Context, now time.Time, chains []readChains) {
	r.began, r.overtaken = now, 0
	r.read(ctx, chains)
}

// again reads chains that a sync has written while they were read, or whose sets it has deleted.
func (r *reading) again(ctx context.Context, chains []readChains) {
	r.overtaken++
	r.read(ctx, chains)
}

func (r *reading) read(ctx context.Context, chains []readChains) {
	r.chains, r.limit = chains, 0
	for _, c := range chains {
		r.limit += c.timeout
	}
	r.start(ctx, r.limit, func(ctx context.Context) error {
		for i := range chains {
			chains[i].read(ctx)
		}
		return nil
	}, func() { wake(r.done) })
}

func (c *readChains) read(ctx context.Context) {
	defer c.kernel.doing.Begin(c.kernel.family.String()+" concurrently", "reading the chains")()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.seen, c.err = c.kernel.filter.Read(ctx, naming.ChainPrefix)
}

// wake makes a channel of size one ready, unless it is.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
