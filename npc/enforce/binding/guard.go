package binding

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
)

const (
	// checkEvery is the period of checks without reported changes.
	checkEvery = time.Second
	// listEvery is the period of listing the interfaces, and of asking what is behind each, without reported changes.
	listEvery = 10 * time.Second
	// readEvery is the period of reading the tables without a change in nftables.
	readEvery = time.Minute
	// soonest is the pause between two looks at a port whose pod is not known, at first; it grows with the age of the
	// port up to checkEvery.
	soonest = 20 * time.Millisecond
	// young is the age up to which a port is looked at more often.
	young = time.Minute
	// lookWait bounds the time that Look takes.
	lookWait = 2 * time.Second
	// retryLast is the longest pause between failing tries.
	retryLast = 30 * time.Second
)

// Kernel has the tables.
type Kernel interface {
	Read() (have ports.State, whole bool, err error)
	Write(have, want ports.State, whole bool) error
	Forged() ([]ports.Forgery, error)
	Dropped() (map[ports.Reason]uint64, error)
}

// Options are what a guard works with.
type Options struct {
	Attachment host.Attachment
	Config     Config
	API        API
	// Isolating reports whether a local pod is isolated.
	Isolating func() bool
	// Synced reports whether all objects are known that there were at the start.
	Synced func() bool
	// Unlisted receives the addresses that the kernel has behind the ports of pods and that the API gives to nobody,
	// whenever they change.
	Unlisted func(map[netip.Addr]types.UID)
	Kernel   Kernel
	// Generation returns a number that changes when something in nftables does.
	Generation func() (uint32, error)
	Reporter   *Reporter
	Log        *slog.Logger
}

// Guard keeps the ports of pods guarded: frames with a source that is not the pod's, frames with which a pod bypasses
// iptables, and those with which it acts as a router are dropped where they arrive.
type Guard struct {
	Options
	// asked receives what to close after a look at all ports.
	asked chan chan<- struct{}

	bindings *bindings // nil until the tables were read
	found    host.Ports
	listed   time.Time     // when the interfaces were listed; zero if they have to be listed again
	looks    map[int]look  // port -> when to look behind it
	owners   map[int]Owner // port -> its pod
	unlisted map[netip.Addr]types.UID
	audit    time.Time // when the audit of a node that had pods ends; zero if there is none

	have  ports.State
	whole bool
	// read is when the tables were read, zero if they have to be read again, and generation is that before it.
	read       time.Time
	generation uint32
	wrote      bool // whether the tables were written since the start
	failing    string
	retry      wait.Backoff
	retryAt    time.Time
	reported   time.Time       // when forged sources were asked for
	suspects   []ports.Forgery // seen then and not reported yet
}

// look is when a port is looked at.
type look struct{ first, next time.Time }

// NewGuard returns a guard for the network namespace of the process.
func NewGuard(o Options) *Guard {
	return &Guard{Options: o, asked: make(chan chan<- struct{}), retry: retryBackoff()}
}

// Look looks at all ports at once, while Run runs. It waits for that, but not for long.
func (g *Guard) Look() {
	done, late := make(chan struct{}), time.After(lookWait)
	select {
	case g.asked <- done:
	case <-late:
		return
	}
	select {
	case <-done:
	case <-late:
	}
}

// retryBackoff returns the pauses between failing tries.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: checkEvery, Factor: 2, Jitter: 0.5, Steps: 6, Cap: retryLast}
}

// Run keeps the ports of pods guarded until the context ends. They stay guarded afterwards.
func (g *Guard) Run(ctx context.Context) error {
	changes := make(chan netlink.LinkUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	// Without notifications the guard only reacts later.
	if err := netlink.LinkSubscribeWithOptions(changes, done,
		netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}}); err != nil {
		g.Log.Warn("the kernel does not report changes of interfaces, listing them instead",
			"every", checkEvery, "err", err)
		changes = nil
	}
	reader, err := host.NewReader()
	if err != nil {
		g.Log.Warn("the kernel does not say what is behind ports: sources of packets are not bound", "err", err)
	} else {
		defer reader.Close()
	}
	for {
		now := time.Now()
		if !now.Before(g.retryAt) {
			g.note(g.keep(reader, now), now)
		}
		pause := time.NewTimer(g.pause(time.Now()))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
			time.Sleep(soonest) // one listing covers the changes of a new interface
			drain(changes)
			g.listed = time.Time{}
		case done := <-g.asked:
			g.lookAtAll(reader)
			close(done)
		case <-pause.C:
			if changes == nil {
				g.listed = time.Time{}
			}
		}
		pause.Stop()
	}
}

// lookAtAll looks at all ports, whether they are due or not.
func (g *Guard) lookAtAll(reader *host.Reader) {
	now := time.Now()
	g.listed = time.Time{}
	for index, l := range g.looks {
		g.looks[index] = look{l.first, now}
	}
	g.note(g.keep(reader, now), now)
}

// drain discards the pending updates.
func drain(changes <-chan netlink.LinkUpdate) {
	for len(changes) > 0 {
		<-changes
	}
}

// pause returns the time until there is something to do.
func (g *Guard) pause(now time.Time) time.Duration {
	next := now.Add(checkEvery)
	for _, l := range g.looks {
		if l.next.Before(next) {
			next = l.next
		}
	}
	return max(next.Sub(now), soonest)
}

// note logs that the ports cannot be guarded, or that they are guarded again.
func (g *Guard) note(err error, now time.Time) {
	switch {
	case err != nil:
		if g.failing == "" {
			g.Log.Warn("the ports of pods cannot be guarded, trying again: "+
				"a pod can send with any address, and frames with a VLAN tag past all policies, "+
				"and ip6tables alone keeps its router advertisements from other pods", "err", err)
		}
		g.failing = err.Error()
		g.read = time.Time{}
		g.retryAt = now.Add(g.retry.Step())
	case g.failing != "":
		g.Log.Info("the ports of pods are guarded again")
		g.failing = ""
		g.retry, g.retryAt = retryBackoff(), time.Time{}
	}
}

// keep brings the tables up to date.
func (g *Guard) keep(reader *host.Reader, now time.Time) error {
	if err := g.list(now); err != nil {
		return err
	}
	if err := g.readTables(now); err != nil {
		return err
	}
	// The bridge may not be known yet: what is in the tables stays.
	if !g.found.Bridged && (len(g.found.Pods) == 0 || len(g.have.Bridged) > 0) {
		return nil
	}
	if g.bindings == nil {
		g.begin(now)
	}
	g.lookBehind(reader, now)
	found := g.bindings.decide(g.macs())
	g.owners = g.bindings.owners()
	if err := g.write(g.want(found, now)); err != nil {
		return err
	}
	if !maps.Equal(found.Unlisted, g.unlisted) {
		g.unlisted = found.Unlisted
		g.Unlisted(maps.Clone(found.Unlisted))
	}
	g.Reporter.ports(len(found.Bound), found.Unbound)
	return g.report(now)
}

// readTables reads the tables if something in nftables changed since, or if that is due. The cost grows with the number
// of ports.
func (g *Guard) readTables(now time.Time) error {
	if now.Sub(g.read) < checkEvery {
		return nil
	}
	generation, err := g.Generation()
	if err != nil {
		return err
	}
	if generation == g.generation && now.Sub(g.read) < readEvery {
		return nil
	}
	have, whole, err := g.Kernel.Read()
	if errors.Is(err, os.ErrNotExist) { // deleted meanwhile
		have, whole, err = g.Kernel.Read()
	}
	if err != nil {
		return err
	}
	g.have, g.whole, g.read, g.generation = have, whole, now, generation
	return nil
}

// begin takes over what the tables have. A node that has pods whose sources were not bound is audited first.
func (g *Guard) begin(now time.Time) {
	g.bindings, g.looks = newBindings(g.API, g.Config, g.have.Sources), map[int]look{}
	if g.Config.Mode == ports.On && g.have.Mode != ports.On && len(g.found.Pods) > 0 && !g.Config.Booting &&
		g.Config.Audit > 0 {
		g.audit = now.Add(g.Config.Audit)
		g.Log.Warn("the node had pods before their sources were bound to their ports: forged sources are reported, "+
			"and pass until there was none in doubt for a while", "while", g.Config.Audit)
	}
}

// list lists the interfaces if that is due. Which bridge is the pods' may be known only later, without a change of an
// interface.
func (g *Guard) list(now time.Time) error {
	period := listEvery
	if !g.found.Bridged {
		period = checkEvery
	}
	if now.Sub(g.listed) < period {
		return nil
	}
	found, err := g.Attachment.Ports()
	if err != nil {
		return err
	}
	g.found, g.listed = found, now
	return nil
}

// lookBehind asks the kernel what is behind the ports that are due.
func (g *Guard) lookBehind(reader *host.Reader, now time.Time) {
	g.bindings.setPorts(g.found.Pods)
	looks := make(map[int]look, len(g.found.Pods))
	for _, p := range g.found.Pods {
		l, seen := g.looks[p.Index]
		if !seen {
			l = look{first: now, next: now}
		}
		if !now.Before(l.next) && reader != nil && g.Config.Mode != ports.Off {
			if behind, err := reader.Behind(p); err != nil { // its network namespace may be gone
				g.Log.Debug("cannot see what is behind a port", "err", err)
			} else {
				g.bindings.setBehind(p.Index, behind)
			}
			l.next = now.Add(g.nextLook(p.Index, now.Sub(l.first)))
		}
		looks[p.Index] = l
	}
	g.looks = looks
}

// nextLook returns how long a port of an age need not be looked at.
func (g *Guard) nextLook(index int, age time.Duration) time.Duration {
	if _, known := g.owners[index]; known || age > young {
		return listEvery
	}
	return min(max(age/2, soonest), checkEvery)
}

// macs returns the hardware addresses that no pod may have.
func (g *Guard) macs() []ports.MAC {
	var out []ports.MAC
	for _, m := range g.found.MACs {
		if len(m) == len(ports.MAC{}) {
			out = append(out, ports.MAC(m))
		}
	}
	return out
}

// want returns what the tables should hold.
func (g *Guard) want(r result, now time.Time) ports.State {
	s := ports.State{Mode: g.mode(now), AllowVLAN: g.Config.AllowVLAN,
		OnlyTypes: g.Isolating() || g.have.OnlyTypes && !g.Synced(), Types: g.Config.Types,
		Bound: r.Bound, Exempt: append(r.Routing, g.found.Others...), Sources: r.Sources, Reserved: g.bindings.reserved(r)}
	if !g.Synced() {
		s.Reserved = append(s.Reserved, g.have.Reserved...)
	}
	for _, p := range g.found.Pods {
		if p.Bridge {
			s.Bridged = append(s.Bridged, p.Index)
		} else {
			s.Routed = append(s.Routed, p.Index)
		}
	}
	return s
}

// mode returns what happens to forged sources now.
func (g *Guard) mode(now time.Time) ports.Mode {
	if g.audit.IsZero() {
		g.Reporter.setAudit(time.Time{})
		return g.Config.Mode
	}
	if now.Before(g.audit) {
		g.Reporter.setAudit(g.audit)
		return ports.Audit
	}
	g.audit = time.Time{}
	g.Log.Info("the audit ended: forged sources are dropped from now on")
	return g.mode(now)
}

// write writes the tables if they differ from the required ones.
func (g *Guard) write(want ports.State) error {
	if g.whole && g.have.Equal(want) {
		return nil
	}
	if g.wrote && !g.whole {
		g.Log.Warn("drift found, repairing it", "found", "tables weave-npc of nftables are not as they were written")
	}
	if err := g.Kernel.Write(g.have, want, g.whole); err != nil {
		return err
	}
	if !g.wrote {
		g.Log.Info("the ports of pods are guarded: "+
			"nftables drops what passes no ip(6)tables, and what only routers send",
			"ports", len(g.found.Pods), "bound", len(want.Bound))
	}
	g.have, g.whole, g.wrote = want, true, true
	return nil
}
