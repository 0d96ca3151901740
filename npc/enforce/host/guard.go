package host

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// guardEvery is the period of checks without reported changes.
	guardEvery = time.Second
	// portsEvery is the period of listing the ports without reported changes: its cost grows with the number of pods.
	portsEvery = 10 * time.Second
	// retryLast is the longest pause between two failing tries.
	retryLast = 30 * time.Second
)

// bridgeTable is the part of ports.Table that the guard uses.
type bridgeTable interface {
	Ports() (ports []int, whole bool, err error)
	Guard(ports []int) error
}

// Guard keeps the ports of pods guarded: frames with which a pod bypasses iptables, or acts as a router, are dropped
// where they arrive.
type Guard struct {
	attachment Attachment
	log        *slog.Logger
	table      bridgeTable

	ports   []int     // to guard
	bridged bool      // whether there is a bridge of pods
	listed  time.Time // when the ports were listed; zero if they have to be listed again

	wrote   bool // whether the table was written since the start
	failing string
	retry   wait.Backoff
	retryAt time.Time
}

// NewGuard returns the guard for the network namespace of the process.
func NewGuard(a Attachment, table bridgeTable, log *slog.Logger) *Guard {
	return &Guard{attachment: a, log: log, table: table, retry: retryBackoff()}
}

// retryBackoff returns the pauses between failing tries.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: guardEvery, Factor: 2, Jitter: 0.5, Steps: 6, Cap: retryLast}
}

// Run keeps the ports of pods guarded until the context ends. They stay guarded afterwards.
func (g *Guard) Run(ctx context.Context) error {
	changes := make(chan netlink.LinkUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	// Without notifications the guard only reacts later.
	if err := netlink.LinkSubscribeWithOptions(changes, done,
		netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}}); err != nil {
		g.log.Warn("the kernel does not report changes of interfaces, listing them instead",
			"every", guardEvery, "err", err)
		changes = nil
	}
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		if now := time.Now(); !now.Before(g.retryAt) {
			g.note(g.keep(now), now)
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
			drain(changes)
			g.listed = time.Time{}
		case <-tick.C:
			if changes == nil {
				g.listed = time.Time{}
			}
		}
	}
}

// drain discards the pending updates: one listing covers all of them.
func drain(changes <-chan netlink.LinkUpdate) {
	for len(changes) > 0 {
		<-changes
	}
}

// note logs that the ports cannot be guarded, or that they are guarded again.
func (g *Guard) note(err error, now time.Time) {
	switch {
	case err != nil:
		if g.failing == "" {
			g.log.Warn("the ports of pods cannot be guarded, trying again: "+
				"a pod can send frames with a VLAN tag past all policies, "+
				"and ip6tables alone keeps its router advertisements from other pods", "err", err)
		}
		g.failing = err.Error()
		g.retryAt = now.Add(g.retry.Step())
	case g.failing != "":
		g.log.Info("the ports of pods are guarded again")
		g.failing = ""
		g.retry, g.retryAt = retryBackoff(), time.Time{}
	}
}

// keep writes the table if it differs from the required one.
func (g *Guard) keep(now time.Time) error {
	if !g.bridged || now.Sub(g.listed) >= portsEvery {
		var err error
		if g.ports, g.bridged, err = g.attachment.podPorts(); err != nil || !g.bridged {
			return err // an earlier table stays: the bridge may not be known yet
		}
		g.listed = now
	}
	have, whole, err := g.table.Ports()
	if err != nil {
		return err
	}
	if whole && slices.Equal(have, g.ports) {
		return nil
	}
	if g.wrote && !whole {
		g.log.Warn("drift found, repairing it", "found", "table bridge weave-npc of nftables is not as it was written")
	}
	if err := g.table.Guard(g.ports); err != nil {
		return err
	}
	if !g.wrote {
		g.log.Info("the ports of pods are guarded: "+
			"nftables drops what passes no ip(6)tables, and what only routers send",
			"ports", len(g.ports))
	}
	g.wrote = true
	return nil
}
