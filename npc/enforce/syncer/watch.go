package syncer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/failclosed"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

const (
	// watchEvery is how often weave-npc asks the kernel whether another process changed something.
	watchEvery = 500 * time.Millisecond
	// readEvery is how often everything is read, for what neither counts nor generations show.
	readEvery = 25 * time.Second
	// watchShare is the part of the time that watching may take: one in so many.
	watchShare = 200
	// longestShare is how long a look may be put off that way.
	longestShare = time.Second
	// maxOvertaken is how many reads of chains in a row may be overtaken by a sync before the next sync waits for one.
	maxOvertaken = 4
)

// watcher looks for drift: changes of weave-npc's sets and chains by other processes. It also reports what the
// fail-closed filter drops, and conflicts about addresses, because both change with time alone.
type watcher struct {
	planner    controller.Planner
	lookup     controller.Lookup
	kernels    []*kernel
	metrics    *Metrics
	log        *slog.Logger
	failClosed failclosed.Reporter
	conflicts  ipowner.Watcher

	// lastRead is when all chains were last read. Members are read a few sets at a time.
	lastRead time.Time
	members  turns
	// setsAt and chainsAt are when sets and chains may be looked at again, by what the last look cost.
	setsAt, chainsAt time.Time
	// unsyncedAt is when chains that were written may be read again.
	unsyncedAt time.Time
	reading    reading
	contention contention
	// blind is why the kernel cannot be looked at, and retry when to look again.
	blind string
	retry backoff
	// found is the drift that the look under way found, and err why it could not see everything.
	found []string
	err   error
}

func newWatcher(c *controller.Controller, kernels []*kernel, x *Metrics, log *slog.Logger) watcher {
	return watcher{planner: c.Planner(), lookup: c.Lookup(), kernels: kernels, metrics: x, log: log,
		failClosed: failclosed.Reporter{Log: log},
		conflicts:  ipowner.Watcher{Log: log}, retry: backoff{first: retryFirst, last: retryLast},
		members: turns{at: time.Now()}, reading: reading{done: make(chan struct{}, 1)}}
}

// problems describes what keeps drift from being found or repaired.
func (w *watcher) problems() []string {
	var texts []string
	if w.contention.drift != "" {
		texts = append(texts, "another process undoes every repair, drift is repaired every "+repairPause.String()+
			" (does another weave-npc run on this node?): "+w.contention.drift)
	}
	if w.blind != "" {
		texts = append(texts, "it is not known whether there is drift: "+w.blind)
	}
	return texts
}

// look looks for drift, and reports whether there is something to repair. Chains are read concurrently with the syncs:
// the look then ends with conclude.
func (w *watcher) look(ctx context.Context, now time.Time) bool {
	if w.contention.over(now) {
		w.log.Info("drift is no longer found again and again")
	}
	if w.contention.pauses(now) || !w.retry.due(now) || w.reading.running() {
		return false
	}
	all := now.Sub(w.lastRead) >= readEvery
	if all {
		w.lastRead = now
	}
	w.found = nil
	w.err = w.lookAtSets()
	due, err := w.chainsDue(all)
	if w.err == nil {
		w.err = err
	}
	if len(due) > 0 {
		w.reading.begin(ctx, now, due)
		return false
	}
	return w.finish(ctx, now)
}

// conclude ends the current look if its chains have been read; it waits up to timeout for them. It reports whether
// there is something to repair.
func (w *watcher) conclude(ctx context.Context, timeout time.Duration) bool {
	if ended, _ := w.reading.wait(timeout); !ended {
		return false
	}
	overtaken := w.compareChains()
	if len(overtaken) > 0 && ctx.Err() == nil {
		// Right after a sync it is the least likely that the next one comes before the chains are read.
		w.reading.again(ctx, overtaken)
		if w.reading.overtaken < maxOvertaken {
			return false
		}
		return w.conclude(ctx, w.reading.limit)
	}
	began, took := w.reading.began, time.Since(w.reading.began)
	w.chainsAt = began.Add(min(took*watchShare/8, longestShare))
	if !began.Before(w.unsyncedAt) {
		w.unsyncedAt = began.Add(took * watchShare / 2)
	}
	return w.finish(ctx, time.Now())
}

// finish ends a look, and reports whether there is something to repair.
func (w *watcher) finish(ctx context.Context, now time.Time) bool {
	if ctx.Err() != nil {
		return false
	}
	w.setBlind(w.err, now)
	if len(w.found) == 0 {
		if w.err == nil && !slices.ContainsFunc(w.kernels, func(k *kernel) bool { return !k.steady() }) {
			w.metrics.lastSync.SetToCurrentTime()
		}
		return false
	}
	drift := strings.Join(w.found, "; ")
	if w.contention.repaired(drift, now) {
		w.log.Warn("drift is found again and again: it is repaired less often; "+
			"does another weave-npc run on this node?",
			"every", repairPause, "found", drift)
	}
	return true
}

// lookAtSets compares the sets with what the controller knows: the number of their members, and the members of those
// whose turn it is.
func (w *watcher) lookAtSets() error {
	start := time.Now()
	known := slices.ContainsFunc(w.kernels, func(k *kernel) bool { return k.setsKnown })
	if start.Before(w.setsAt) || !known {
		return nil
	}
	// Sets are not divided by family: one listing serves both.
	conn := w.kernels[0].sets
	headers, err := conn.Headers(naming.SetPrefix)
	if err != nil {
		return errors.Wrap(err, "listing the sets")
	}
	listings, err := conn.ListNamed(w.members.due(headers, start))
	if err != nil {
		return errors.Wrap(err, "reading the members of sets")
	}
	for _, k := range w.kernels {
		if k.setsKnown {
			drift := append(w.planner.SetDrift(k.family, headers), w.planner.MemberDrift(k.family, listings)...)
			k.setsKnown = !w.drifted(k, "set", drift)
		}
	}
	// A promise of two seconds is kept with any number of sets.
	w.setsAt = start.Add(min(time.Since(start)*watchShare, longestShare))
	return nil
}

// turns divides the reading of members among looks: nothing waits until the members of all sets are read.
type turns struct {
	last string    // the name of the set that was read last
	at   time.Time // when it was
}

// due returns the sets whose members are to be read, so that all are read every readEvery. It takes at least one.
func (t *turns) due(headers []ipset.Header, now time.Time) (names []string) {
	sizes, all := map[string]int{}, 0
	for _, h := range headers {
		sizes[h.Name] = 1 + int(h.Elements)
		all += sizes[h.Name]
	}
	sorted := slices.Sorted(maps.Keys(sizes))
	from, found := slices.BinarySearch(sorted, t.last)
	if found {
		from++
	}
	part := min(1, float64(now.Sub(t.at))/float64(readEvery))
	t.at = now
	for left := part * float64(all); left > 0 && len(names) < len(sorted); {
		t.last = sorted[(from+len(names))%len(sorted)]
		left -= float64(sizes[t.last])
		names = append(names, t.last)
	}
	return names
}

// chainsDue returns the chains that may have changed; those of every family if all is set.
func (w *watcher) chainsDue(all bool) ([]readChains, error) {
	start := time.Now()
	if !all && start.Before(w.chainsAt) {
		return nil, nil
	}
	readNew := all || !start.Before(w.unsyncedAt)
	var due []readChains
	for _, k := range w.kernels {
		if k.failing != "" || !k.chainsKnown {
			continue
		}
		print, err := k.filter.Fingerprint()
		if err != nil {
			return nil, errors.Wrap(err, k.family.String())
		}
		if all || k.unsynced && readNew || print != k.print || print == (iptables.Fingerprint{}) {
			due = append(due, readChains{kernel: k, print: print, written: k.written, timeout: k.timeout()})
		}
	}
	w.chainsAt = start.Add(min(time.Since(start)*watchShare/8, longestShare))
	return due, nil
}

// compareChains compares the chains that were read with what the controller knows, and returns those that a sync has
// written meanwhile, or whose sets it has deleted.
func (w *watcher) compareChains() (overtaken []readChains) {
	for _, c := range w.reading.chains {
		k := c.kernel
		switch {
		case k.failing != "" || !k.chainsKnown:
		case c.written != k.written:
			c.written = k.written
			overtaken = append(overtaken, c)
		case c.err != nil:
			if w.err == nil {
				w.err = errors.Wrap(c.err, k.family.String())
			}
		default:
			k.noteNFTOnly(c.seen.Native, w.log)
			k.chainsKnown = !w.drifted(k, "chain", w.planner.ChainDrift(k.family, c.seen))
			k.print, k.unsynced = c.print, false
		}
	}
	return overtaken
}

// drifted reports drift of one kind, and whether there is any.
func (w *watcher) drifted(k *kernel, kind string, drift []string) bool {
	if len(drift) == 0 {
		return false
	}
	w.found = append(w.found, k.family.String()+": "+summary(drift))
	w.metrics.drift.WithLabelValues(k.family.String(), kind).Inc()
	w.log.Warn("drift found, repairing it", "family", k.family, "found", summary(drift))
	return true
}

// setBlind records whether the kernel could be looked at.
func (w *watcher) setBlind(err error, now time.Time) {
	switch {
	case err == nil && w.blind != "":
		w.log.Info("can look for drift again")
		w.blind = ""
		w.retry.reset()
	case err != nil:
		if w.blind == "" {
			w.log.Warn("cannot look for drift, trying again", "err", err)
		}
		w.blind = err.Error()
		w.retry.failed(now)
		w.lastRead = time.Time{} // what was missed is made up for
	}
}

// watchFailClosed reports what the fail-closed filter drops, and what it cannot protect.
func (w *watcher) watchFailClosed(now time.Time) {
	w.failClosed.Open(w.lookup.OutOfRangePods(), w.lookup.NoPodRange(), now)
	w.failClosed.Unlisted(w.lookup.Unlisted())
	if w.lookup.FailClosedMode() != enforce.FailClosedAuto {
		return
	}
	for _, d := range npc.Directions {
		what, why := w.lookup.Closed(d)
		w.failClosed.Closed(d.String(), what, why, now)
	}
}

// watchConflicts counts the conflicts about addresses of local pods, and reports those that last.
func (w *watcher) watchConflicts(now time.Time) {
	conflicts := w.lookup.Conflicts()
	for _, kind := range ipowner.Kinds() {
		n := 0
		for _, c := range conflicts {
			if c.Kind == kind {
				n++
			}
		}
		w.metrics.conflicts.WithLabelValues(string(kind)).Set(float64(n))
	}
	w.conflicts.Look(now, conflicts)
}
