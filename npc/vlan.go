package npc

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/iptables"
)

const (
	// guardEvery is how often the guard of VLAN tags is looked at when no interface changes.
	guardEvery = time.Second
	// portsEvery is how often the ports are listed when none is said to change: that costs with every pod.
	portsEvery = 10 * time.Second
	// portsTries is how often interfaces are listed that change while they are.
	portsTries = 11
)

// vlanKeeper is what we need of iptables.VLANGuard.
type vlanKeeper interface {
	Ports() (ports []int, whole bool, err error)
	Guard(ports []int) error
	Remove() (bool, error)
}

// VLANGuard drops the frames with a VLAN tag that pods send on a bridge: whatever is in them would pass no chain of ours, and a tag
// of number 0 changes nothing for who receives it.
type VLANGuard struct {
	model *Model
	log   *slog.Logger
	allow bool
	table vlanKeeper

	// ports are those to guard, if the bridge is known, as listed last; that was at listed, zero when they are to be listed anew.
	ports   []int
	bridged bool
	listed  time.Time

	wrote   bool // since we started
	failing string
	retry   backoff
}

// NewVLANGuard makes the guard of the network namespace that we run in. With allow it takes the rules of an earlier run away.
func NewVLANGuard(m *Model, allow bool, log *slog.Logger) *VLANGuard {
	return &VLANGuard{model: m, log: log, allow: allow, table: iptables.VLANGuard{}, retry: backoff{first: guardEvery, last: retryLast}}
}

// Run keeps the ports of pods guarded until the context ends, and leaves them guarded then.
func (g *VLANGuard) Run(ctx context.Context) error {
	changes := make(chan netlink.LinkUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	// Without these we are only later.
	if err := netlink.LinkSubscribeWithOptions(changes, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}}); err != nil {
		g.log.Warn("changes of interfaces are not told, looking for them instead", "every", guardEvery, "error", err)
		changes = nil
	}
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		if now := time.Now(); g.retry.due(now) {
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

// drain takes what has come already: one look serves all.
func drain(changes <-chan netlink.LinkUpdate) {
	for len(changes) > 0 {
		<-changes
	}
}

// note logs that the ports cannot be guarded, or can again.
func (g *VLANGuard) note(err error, now time.Time) {
	switch {
	case err != nil:
		if g.failing == "" {
			g.log.Warn("frames with a VLAN tag cannot be kept from passing between pods, trying again (--allow-vlan lets them be)", "error", err)
		}
		g.failing = err.Error()
		g.retry.failed(now)
	case g.failing != "":
		g.log.Info("frames with a VLAN tag are kept from passing between pods again")
		g.failing = ""
		g.retry.reset()
	}
}

// keep makes the table what it has to be.
func (g *VLANGuard) keep(now time.Time) error {
	if g.allow {
		_, err := g.table.Remove()
		return err
	}
	if !g.bridged || now.Sub(g.listed) >= portsEvery {
		var err error
		if g.ports, g.bridged, err = g.model.podPorts(); err != nil || !g.bridged {
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
		g.log.Warn("somebody changed what is ours: repairing it", "found", "table bridge weave-npc of nftables is not as it was written")
	}
	if err := g.table.Guard(g.ports); err != nil {
		return err
	}
	if !g.wrote {
		g.log.Info("frames with a VLAN tag are dropped where pods send them on a bridge", "ports", len(g.ports))
	}
	g.wrote = true
	return nil
}

// podPorts are the ports of the pods' bridges, by index and sorted, that lead into another network namespace; bridged says whether there
// is such a bridge at all.
func (m *Model) podPorts() (ports []int, bridged bool, err error) {
	bridges := m.PodBridges()
	if len(bridges) == 0 {
		return nil, false, nil
	}
	var links []netlink.Link
	err = untilWhole(portsTries, func() (err error) {
		links, err = netlink.LinkList()
		return err
	})
	if err != nil {
		return nil, true, errors.Wrap(err, "listing the interfaces of this node")
	}
	isPodBridge := map[int]bool{}
	for _, l := range links {
		if l.Type() == "bridge" && slices.Contains(bridges, l.Attrs().Name) {
			isPodBridge[l.Attrs().Index] = true
		}
	}
	for _, l := range links {
		a := l.Attrs()
		// The other end of a pod's veth is not here; that of one that joins two bridges is.
		if isPodBridge[a.MasterIndex] && l.Type() == "veth" && a.NetNsID >= 0 && a.Name != m.BridgePort {
			ports = append(ports, a.Index)
		}
	}
	slices.Sort(ports)
	return ports, true, nil
}
