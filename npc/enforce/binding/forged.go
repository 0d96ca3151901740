package binding

import (
	"os"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/iptables/ports"
)

// report reports the forged sources that were seen at the last pass and are not bound since, and asks for new ones. The
// ports of these are looked at again, at once: a pod may have another hardware address now.
func (g *Guard) report(now time.Time) error {
	for _, f := range g.suspects {
		if !g.have.Binds(f) {
			g.reportForged(f, now)
		}
	}
	g.suspects = nil
	if g.Config.Mode == ports.Off || now.Sub(g.reported) < checkEvery {
		return nil
	}
	g.reported = now
	forged, err := g.Kernel.Forged()
	if err != nil {
		return g.unread(err)
	}
	dropped, err := g.Kernel.Dropped()
	if err != nil {
		return g.unread(err)
	}
	g.Reporter.count(dropped)
	g.suspects = g.Reporter.fresh(forged)
	for _, f := range g.suspects {
		if l, found := g.looks[f.Port]; found {
			g.looks[f.Port] = look{l.first, now}
		}
	}
	g.Reporter.forget(g.looks)
	return nil
}

// reportForged reports a forged source. An audit goes on for as long as before if it may be honest.
func (g *Guard) reportForged(f ports.Forgery, now time.Time) {
	taken, plain := g.holder(f)
	dropped := g.have.Drops(f)
	if !plain && !dropped && !g.audit.IsZero() {
		g.audit = now.Add(g.Config.Audit)
	}
	g.Reporter.forged(forgedSource{f, g.name(f.Port), g.owners[f.Port], taken, g.bindings.has(f), dropped})
}

// unread handles an error about tables that were there a moment ago: if they are gone, that is drift.
func (g *Guard) unread(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		g.read = time.Time{}
		return nil
	}
	return err
}

// holder returns whose address a forged source is, and whether it is plainly forged: another pod's or the node's.
func (g *Guard) holder(f ports.Forgery) (whose string, plain bool) {
	if o, found := g.API.Owner(f.Addr); found && f.Addr.IsValid() && o != g.owners[f.Port] {
		return o.String(), true
	}
	for s, pod := range g.have.Sources {
		if s.Port != f.Port && (s.Addr == f.Addr || !f.Addr.IsValid() && s.MAC == f.MAC) {
			return pod, true
		}
	}
	return "", false
}

// name returns the name of a port.
func (g *Guard) name(index int) string {
	for _, p := range g.found.Pods {
		if p.Index == index {
			return p.Name
		}
	}
	return ""
}
