package node

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weave-npc/weave-npc/iptables"
)

const (
	// guardEvery is how often the guard is checked when no interface changes.
	guardEvery = time.Second
	// portsEvery is how often the ports are listed when no interface is reported to change: its cost grows with the number of pods.
	portsEvery = 10 * time.Second
	// retryLast is the longest pause between two tries that fail.
	retryLast = 30 * time.Second
)

// bridgeTable is what the guard needs of iptables.BridgeGuard.
type bridgeTable interface {
	Ports() (ports []int, whole bool, err error)
	Guard(ports []int) error
}

// Guard keeps the ports of pods guarded: what pods send on a bridge past iptables, or in a router's place, is dropped where it comes in.
type Guard struct {
	attachment Attachment
	log        *slog.Logger
	table      bridgeTable

	// ports are those to guard, if there is a bridge of pods; they were listed at listed, which is zero when they are to be listed again.
	ports   []int
	bridged bool
	listed  time.Time

	wrote   bool // since the start
	failing string
	retry   wait.Backoff
	retryAt time.Time
}

// NewGuard returns the guard of the network namespace of the process.
func NewGuard(a Attachment, table iptables.BridgeGuard, log *slog.Logger) *Guard {
	return newGuard(a, table, log)
}

func newGuard(a Attachment, table bridgeTable, log *slog.Logger) *Guard {
	return &Guard{attachment: a, log: log, table: table, retry: retryBackoff()}
}

// retryBackoff spaces out tries that fail.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: guardEvery, Factor: 2, Jitter: 0.5, Steps: 6, Cap: retryLast}
}

// Run keeps the ports of pods guarded until the context ends, and leaves them guarded then.
func (g *Guard) Run(ctx context.Context) error {
	changes := make(chan netlink.LinkUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	// Without notifications the guard only follows later.
	if err := netlink.LinkSubscribeWithOptions(changes, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}}); err != nil {
		g.log.Warn("the kernel does not report changes of interfaces, listing them instead", "every", guardEvery, "err", err)
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

// drain takes the updates that have arrived: listing the interfaces once serves all of them.
func drain(changes <-chan netlink.LinkUpdate) {
	for len(changes) > 0 {
		<-changes
	}
}

// note logs that the ports cannot be guarded, or can be again.
func (g *Guard) note(err error, now time.Time) {
	switch {
	case err != nil:
		if g.failing == "" {
			g.log.Warn("the ports of pods cannot be guarded, trying again: a pod can send frames with a VLAN tag past all policies, "+
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

// keep makes the table what it has to be.
func (g *Guard) keep(now time.Time) error {
	if !g.bridged || now.Sub(g.listed) >= portsEvery {
		var err error
		if g.ports, g.bridged, err = g.attachment.podPorts(); err != nil || !g.bridged {
			return err // what an earlier run wrote stays: the bridge may not be known yet
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
		g.log.Info("the ports of pods are guarded: nftables drops what passes no ip(6)tables, and what only routers send", "ports", len(g.ports))
	}
	g.wrote = true
	return nil
}
