// Package alive renews the sets that show the kernel that weave-npc runs.
//
//	r, err := alive.Open(alive.Config{Idle: syncer.Idle, Log: log})
//	syncer.Hooks.Steady = r.Keep // from then on, for each family
//	err = r.Run(ctx)
//
// Their elements expire. When weave-npc has ended, or its syncer is stuck, rules close unknown addresses because the
// sets are empty. A goroutine of its own renews them with a socket of its own, so that neither the syncer's work nor
// the controller's lock is in its way. It knows nothing about rules, pods and policies.
package alive

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

const (
	// renewEvery is how often elements are renewed: several times before they expire.
	renewEvery = time.Second
	// stuckAfter is how long the syncer may do nothing, or one thing, before the kernel counts as unattended.
	stuckAfter = time.Minute
)

// Config is what a Renewer is made of.
type Config struct {
	// Idle returns how long ago the syncer began or ended something.
	Idle func() time.Duration
	Log  *slog.Logger
}

// sets is what a Renewer uses of ipset.Conn.
type sets interface {
	Apply([]ipset.Op) error
	Close() error
}

// Renewer renews sets.
type Renewer struct {
	Config
	sets sets
	// begun receives when a family has to be renewed at once.
	begun chan struct{}
	// failing is set while sets cannot be renewed, and stuck while they are not to be.
	failing, stuck bool

	mu       sync.Mutex // guards renewals
	renewals [len(npc.Families)]ipset.Op
}

// Open returns a Renewer of the sets of the current network namespace, which renews none yet.
func Open(c Config) (*Renewer, error) {
	conn, err := ipset.Open()
	if err != nil {
		return nil, errors.Wrap(err, "opening the sets to renew")
	}
	return newRenewer(c, conn), nil
}

func newRenewer(c Config, s sets) *Renewer {
	return &Renewer{Config: c, sets: s, begun: make(chan struct{}, 1)}
}

// Keep has the elements of an operation renewed from now on, in place of those of the family before.
func (r *Renewer) Keep(f npc.Family, renewal ipset.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.renewals[f].Set == renewal.Set
	r.renewals[f] = renewal
	if known {
		return
	}
	select {
	case r.begun <- struct{}{}:
	default:
	}
}

// Run renews until the context ends. It returns no error: it retries what fails.
func (r *Renewer) Run(ctx context.Context) error {
	defer func() { _ = r.sets.Close() }() // what does not close harms nothing
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.begun:
		}
		r.renew()
	}
}

// renew renews once.
func (r *Renewer) renew() {
	idle := r.Idle()
	if stuck := idle >= stuckAfter; stuck != r.stuck {
		r.stuck = stuck
		if stuck {
			r.Log.Error("the syncer is stuck: unknown addresses are closed as if weave-npc did not run", "since", idle)
		} else {
			r.Log.Info("the syncer is not stuck any more")
		}
	}
	ops := r.ops()
	if r.stuck || len(ops) == 0 {
		return
	}
	err := r.sets.Apply(ops)
	if failing := err != nil; failing != r.failing {
		r.failing = failing
		if failing {
			r.Log.Warn("cannot show the kernel that weave-npc runs: unknown addresses are closed soon", "err", err)
		} else {
			r.Log.Info("can show the kernel again that weave-npc runs")
		}
	}
}

// ops returns what there is to renew.
func (r *Renewer) ops() (ops []ipset.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range r.renewals {
		if op.Kind != 0 {
			ops = append(ops, op)
		}
	}
	return ops
}
