package syncer

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

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

// await begins to wait for the lock if a kernel needs it for a transaction and another process holds it. It reports
// whether one does. The function ended is called when none does any more.
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
