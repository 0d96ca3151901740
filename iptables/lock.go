package iptables

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockFile is where the legacy programs take their lock, unless XTABLES_LOCKFILE names another file.
	lockFile = "/run/xtables.lock"
	// lockPoll is the time between two looks at the lock.
	lockPoll = 5 * time.Millisecond
)

// Locked reports whether another process holds the lock that Apply needs. The nft backend has none.
func (t *Table) Locked() bool {
	if t.backend != Legacy {
		return false
	}
	path := os.Getenv("XTABLES_LOCKFILE")
	if path == "" {
		path = lockFile
	}
	f, err := os.Open(path)
	if err != nil {
		return false // there was never a lock, or the program reports why it cannot take it
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// AwaitLock waits until no other process holds the lock. It returns an error if the context ends first.
func (t *Table) AwaitLock(ctx context.Context) error {
	look := time.NewTicker(lockPoll)
	defer look.Stop()
	for t.Locked() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}
