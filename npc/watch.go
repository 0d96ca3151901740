package npc

import (
	"context"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

const (
	// watchEvery is how often the kernel is asked whether somebody else changed something.
	watchEvery = 500 * time.Millisecond
	// readEvery is how often everything is read, for what neither counts nor generations show.
	readEvery = 25 * time.Second
	// watchShare is the part of our time that watching may take: one in so many.
	watchShare = 100
	// After repairsAtOnce repairs within repairsWithin, the next one waits for repairPause: somebody is fighting us.
	repairsAtOnce = 5
	repairsWithin = time.Minute
	repairPause   = 10 * time.Second
	// namedDrifts is how many of the things found changed a report names.
	namedDrifts = 5
	// closedFor is how long the gate may be closed for one reason before there is a warning.
	closedFor = 15 * time.Second
)

// watcher remembers when the kernel was looked at.
type watcher struct {
	lastRead time.Time
	// setsAt and chainsAt are when they may be looked at again, by what the last look cost.
	setsAt, chainsAt time.Time
	// unreadAt is when chains that we wrote may be read again.
	unreadAt time.Time
	repairs  []time.Time
	// closed says for each direction what the log knows of the gate.
	closed [len(directions)]closed
	// strays are the local pods outside the node's range that were last logged.
	strays string
}

// closed is why the gate is closed, since when, and whether there was a warning.
type closed struct {
	why    string
	since  time.Time
	warned bool
}

// watch looks for what others changed, and says whether there is something to repair.
func (s *Syncer) watch(ctx context.Context) bool {
	now := time.Now()
	s.watchGate(now)
	s.watchStrays()
	if !s.quietEnough() || s.paused(now) {
		return false
	}
	all := now.Sub(s.watcher.lastRead) >= readEvery
	if all {
		s.watcher.lastRead = now
	}
	found := false
	report := func(k *kernel, kind string, drift []string) {
		if len(drift) == 0 {
			return
		}
		found = true
		k.known = false
		s.metrics.Drift.WithLabelValues(k.family.String(), kind).Inc()
		s.log.Warn("somebody changed what is ours: repairing it", "family", k.family, "found", summary(drift))
	}
	if err := s.watchSets(all, report); err != nil {
		s.log.Warn("cannot look for changed sets", "error", err)
	}
	if err := s.watchChains(ctx, all, report); err != nil {
		s.log.Warn("cannot look for changed chains", "error", err)
	}
	if found {
		s.watcher.repairs = append(s.watcher.repairs, now)
	}
	return found
}

// watchGate logs what keeps the gate closed, with a warning if it does so for long, and when that has passed.
func (s *Syncer) watchGate(now time.Time) {
	if s.model.Gate != GateAuto {
		return
	}
	for _, d := range directions {
		c := &s.watcher.closed[d]
		why := s.model.ClosedBy(d)
		switch {
		case why == "" && c.why != "":
			s.log.Info("gate open", "direction", d)
		case why != c.why:
			s.log.Info("gate closed: unknown addresses of this node are dropped", "direction", d, "reason", why)
		case why != "" && !c.warned && now.Sub(c.since) >= closedFor:
			c.warned = true
			s.log.Warn("gate closed for long: unknown addresses of this node are dropped", "direction", d, "reason", why)
			continue
		default:
			continue
		}
		*c = closed{why: why, since: now}
	}
}

// watchStrays logs local pods outside the node's range when they are others than before.
func (s *Syncer) watchStrays() {
	strays := strings.Join(s.model.Strays(), ", ")
	if strays != "" && strays != s.watcher.strays {
		s.log.Warn("pods of this node are outside its range: give --pod-interface or --pod-cidr, or a new pod may be reached "+
			"before its address is known", "pods", strays)
	}
	s.watcher.strays = strays
}

// quietEnough says whether the kernel is expected to hold what our transactions left.
func (s *Syncer) quietEnough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enforced.Err() != nil && s.failing == ""
}

// paused says whether we repaired so often that we wait.
func (s *Syncer) paused(now time.Time) bool {
	w := &s.watcher
	for len(w.repairs) > 0 && now.Sub(w.repairs[0]) > repairsWithin {
		w.repairs = w.repairs[1:]
	}
	n := len(w.repairs)
	return n >= repairsAtOnce && now.Sub(w.repairs[n-1]) < repairPause
}

func (s *Syncer) watchSets(all bool, report func(*kernel, string, []string)) error {
	start := time.Now()
	if !all && start.Before(s.watcher.setsAt) || len(s.kernels) == 0 {
		return nil
	}
	// Sets are not divided by family: one listing serves both.
	conn := s.kernels[0].sets
	var headers []ipset.Header
	var listings []ipset.Listing
	var err error
	if all {
		listings, err = conn.List(setPrefix)
	} else {
		headers, err = conn.Headers(setPrefix)
	}
	if err != nil {
		return errors.Wrap(err, "listing the sets")
	}
	for _, k := range s.kernels {
		if all {
			report(k, "set", s.model.memberDrift(k.family, listings))
		} else {
			report(k, "set", s.model.setDrift(k.family, headers))
		}
	}
	// A promise of two seconds is kept with any number of sets.
	s.watcher.setsAt = start.Add(min(time.Since(start)*watchShare, 1500*time.Millisecond))
	return nil
}

func (s *Syncer) watchChains(ctx context.Context, all bool, report func(*kernel, string, []string)) error {
	start := time.Now()
	if !all && start.Before(s.watcher.chainsAt) {
		return nil
	}
	for _, k := range s.kernels {
		print, err := k.filter.Fingerprint()
		if err != nil {
			return err
		}
		unread := k.unread && !start.Before(s.watcher.unreadAt)
		if !all && !unread && print == k.print && print != (iptables.Fingerprint{}) {
			continue
		}
		seen, err := k.filter.Read(ctx, chainPrefix)
		if err != nil {
			return err
		}
		report(k, "chain", s.model.chainDrift(k.family, seen))
		k.print, k.unread = print, false
	}
	took := time.Since(start)
	s.watcher.chainsAt = start.Add(min(took*watchShare/4, 1500*time.Millisecond))
	if !start.Before(s.watcher.unreadAt) {
		s.watcher.unreadAt = start.Add(took * watchShare)
	}
	return nil
}

// summary names the first few of the things found.
func summary(drift []string) string {
	if more := len(drift) - namedDrifts; more > 0 {
		return strings.Join(drift[:namedDrifts], "; ") + "; and more"
	}
	return strings.Join(drift, "; ")
}
