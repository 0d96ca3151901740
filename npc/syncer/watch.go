package syncer

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/claims"
	"github.com/weave-npc/weave-npc/npc/gate"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

const (
	// watchEvery is how often the kernel is asked whether somebody else changed something.
	watchEvery = 500 * time.Millisecond
	// readEvery is how often everything is read, for what neither counts nor generations show.
	readEvery = 25 * time.Second
	// watchShare is the part of our time that watching may take: one in so many.
	watchShare = 200
	// longestShare is how long a look may be put off that way.
	longestShare = time.Second
	// After repairsAtOnce repairs within repairsWithin, the next one waits for repairPause: somebody is fighting us.
	repairsAtOnce = 5
	repairsWithin = time.Minute
	repairPause   = 10 * time.Second
	// namedDrifts is how many of the things found changed a report names.
	namedDrifts = 5
)

// watcher remembers when the kernel was looked at.
type watcher struct {
	lastRead time.Time
	// setsAt and chainsAt are when they may be looked at again, by what the last look cost.
	setsAt, chainsAt time.Time
	// unreadAt is when chains that we wrote may be read again.
	unreadAt time.Time
	repairs  []time.Time
	// fight is what was last found while somebody changes what is ours again and again; empty if nobody does.
	fight string
	// blind says why it is not known what others changed; retry is when to look again.
	blind string
	retry backoff
	// gate reports what the gate closes.
	gate gate.Reporter
}

// troubles are what stands in the way, in words.
func (w *watcher) troubles() []string {
	var texts []string
	if w.fight != "" {
		texts = append(texts, "somebody changes what is ours again and again, it is repaired every "+repairPause.String()+
			" (does another weave-npc run on this node?): "+w.fight)
	}
	if w.blind != "" {
		texts = append(texts, "it is not known whether somebody changed what is ours: "+w.blind)
	}
	return texts
}

// report takes note of what others changed, in words.
type report func(k *kernel, kind string, drift []string)

// watch looks for what others changed, and says whether there is something to repair.
func (s *Syncer) watch(ctx context.Context) bool {
	now := time.Now()
	s.watchGate(now)
	s.watchConflicts(now)
	w := &s.watcher
	if s.enforced.Err() == nil || s.paused(now) || !w.retry.due(now) {
		return false
	}
	all := now.Sub(w.lastRead) >= readEvery
	if all {
		w.lastRead = now
	}
	var found []string
	note := func(k *kernel, kind string, drift []string) {
		if len(drift) == 0 {
			return
		}
		found = append(found, k.family.String()+": "+summary(drift))
		if kind == "set" {
			k.setsKnown = false
		} else {
			k.chainsKnown = false
		}
		s.metrics.Drift.WithLabelValues(k.family.String(), kind).Inc()
		s.log.Warn("somebody changed what is ours: repairing it", "family", k.family, "found", summary(drift))
	}
	err := s.watchSets(all, note)
	if e := s.watchChains(ctx, all, note); err == nil {
		err = e
	}
	if ctx.Err() != nil {
		return false
	}
	s.noteBlind(err, now)
	if len(found) == 0 {
		if err == nil && !slices.ContainsFunc(s.kernels, func(k *kernel) bool { return !k.steady() }) {
			s.metrics.LastSync.SetToCurrentTime()
		}
		return false
	}
	w.repairs = append(w.repairs, now)
	if len(w.repairs) >= repairsAtOnce {
		if w.fight == "" {
			s.log.Warn("what is ours is changed again and again: it is repaired less often; does another weave-npc run on this node?",
				"every", repairPause, "found", strings.Join(found, "; "))
		}
		w.fight = strings.Join(found, "; ")
	}
	return true
}

// noteBlind takes note of whether the kernel could be looked at.
func (s *Syncer) noteBlind(err error, now time.Time) {
	w := &s.watcher
	switch {
	case err == nil && w.blind != "":
		s.log.Info("what others change is seen again")
		w.blind = ""
		w.retry.reset()
	case err != nil:
		if w.blind == "" {
			s.log.Warn("cannot look for what others change, trying again", "error", err.Error())
		}
		w.blind = err.Error()
		w.retry.first, w.retry.last = retryFirst, retryLast
		w.retry.failed(now)
		w.lastRead = time.Time{} // what was missed is made up for
	default:
		return
	}
	s.setTrouble()
}

// watchGate has the log tell what the gate closes, and what it cannot.
func (s *Syncer) watchGate(now time.Time) {
	s.watcher.gate.Open(s.model.OutOfRangePods(), s.model.NoPodRange(), now)
	if s.model.Gate != npc.GateAuto {
		return
	}
	for _, d := range traffic.Directions {
		what, why := s.model.Closed(d)
		s.watcher.gate.Closed(d.String(), what, why, now)
	}
}

// watchConflicts counts the conflicts about addresses of local pods, and reports those that last.
func (s *Syncer) watchConflicts(now time.Time) {
	conflicts := s.model.Conflicts()
	for _, kind := range claims.Kinds() {
		n := 0
		for _, c := range conflicts {
			if c.Kind == kind {
				n++
			}
		}
		s.metrics.Conflicts.WithLabelValues(string(kind)).Set(float64(n))
	}
	s.conflicts.Look(now, conflicts)
}

// paused says whether we repaired so often that we wait.
func (s *Syncer) paused(now time.Time) bool {
	w := &s.watcher
	for len(w.repairs) > 0 && now.Sub(w.repairs[0]) > repairsWithin {
		w.repairs = w.repairs[1:]
	}
	n := len(w.repairs)
	if w.fight != "" && n < repairsAtOnce { // a repair every repairPause keeps it up
		s.log.Info("what is ours is not changed again and again any more")
		w.fight = ""
		s.setTrouble()
	}
	return n >= repairsAtOnce && now.Sub(w.repairs[n-1]) < repairPause
}

func (s *Syncer) watchSets(all bool, note report) error {
	start := time.Now()
	known := slices.ContainsFunc(s.kernels, func(k *kernel) bool { return k.setsKnown })
	if !all && start.Before(s.watcher.setsAt) || !known {
		return nil
	}
	// Sets are not divided by family: one listing serves both.
	conn := s.kernels[0].sets
	var headers []ipset.Header
	var listings []ipset.Listing
	var err error
	if all {
		listings, err = conn.List(naming.SetPrefix)
	} else {
		headers, err = conn.Headers(naming.SetPrefix)
	}
	if err != nil {
		return errors.Wrap(err, "listing the sets")
	}
	for _, k := range s.kernels {
		switch {
		case !k.setsKnown:
		case all:
			note(k, "set", s.model.MemberDrift(k.family, listings))
		default:
			note(k, "set", s.model.SetDrift(k.family, headers))
		}
	}
	// A promise of two seconds is kept with any number of sets.
	s.watcher.setsAt = start.Add(min(time.Since(start)*watchShare, longestShare))
	return nil
}

func (s *Syncer) watchChains(ctx context.Context, all bool, note report) error {
	start := time.Now()
	if !all && start.Before(s.watcher.chainsAt) {
		return nil
	}
	for _, k := range s.kernels {
		if k.failing != "" || !k.chainsKnown {
			continue
		}
		if err := s.watchChainsOf(ctx, k, all || !start.Before(s.watcher.unreadAt), all, note); err != nil {
			return errors.Wrap(err, k.family.String())
		}
	}
	took := time.Since(start)
	s.watcher.chainsAt = start.Add(min(took*watchShare/8, longestShare))
	if !start.Before(s.watcher.unreadAt) {
		s.watcher.unreadAt = start.Add(took * watchShare / 2)
	}
	return nil
}

func (s *Syncer) watchChainsOf(ctx context.Context, k *kernel, readNew, all bool, note report) error {
	print, err := k.filter.Fingerprint()
	if err != nil {
		return err
	}
	unread := k.unread && readNew
	if !all && !unread && print == k.print && print != (iptables.Fingerprint{}) {
		return nil
	}
	ctx, cancel := k.timeout(ctx)
	defer cancel()
	seen, err := k.filter.Read(ctx, naming.ChainPrefix)
	if err != nil {
		return err
	}
	s.noteNative(k, seen.Native)
	note(k, "chain", s.model.ChainDrift(k.family, seen))
	k.print, k.unread = print, false
	return nil
}

// noteNative takes note of whether the filter table has rules that iptables cannot show.
func (s *Syncer) noteNative(k *kernel, native bool) {
	switch {
	case native && !k.native:
		s.log.Warn("the filter table has rules that iptables cannot show, written with nft: it is read chain by chain", "family", k.family)
	case !native && k.native:
		s.log.Info("the filter table has no rules any more that iptables cannot show", "family", k.family)
	}
	k.native = native
}

// summary names the first few of the things found.
func summary(drift []string) string {
	if more := len(drift) - namedDrifts; more > 0 {
		return strings.Join(drift[:namedDrifts], "; ") + "; and more"
	}
	return strings.Join(drift, "; ")
}
