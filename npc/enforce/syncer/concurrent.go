package syncer

import (
	"context"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
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

// again reads chains that a sync has written while they were read.
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
