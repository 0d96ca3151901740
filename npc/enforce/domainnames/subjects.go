package domainnames

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// waitFor is how long an answer to an address that no pod is known to have waits for its pod.
	waitFor = time.Minute
	// Bounds of the facts that wait: of an address, and in all.
	maxWaiting    = 256
	maxWaitingAll = 16384
)

// inputs are what the controller sets. It holds a lock of its own meanwhile, so that nothing here takes long.
type inputs struct {
	mu      sync.Mutex // guards the fields below
	lists   []List
	formers []former // of the lists
	changed bool     // lists or formers, since they were taken
	// generation grows with each change of lists.
	generation uint64
	subjects   map[netip.Addr][]string // address of a pod -> keys of its lists
	awaited    map[netip.Addr]struct{} // addresses without a pod that answers were sent to
	arrived    map[netip.Addr]struct{} // those of them that have a pod now
}

func newInputs() *inputs {
	return &inputs{subjects: map[netip.Addr][]string{}, awaited: map[netip.Addr]struct{}{},
		arrived: map[netip.Addr]struct{}{}}
}

// follow sets the lists, and the pods.
func (in *inputs) follow(lists []List, pods map[netip.Addr][]string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !slices.EqualFunc(in.lists, lists, List.equal) {
		in.keepFormers(lists)
		in.changed = true
		in.generation++
	}
	in.lists, in.subjects = lists, pods
	for a := range in.awaited {
		if _, known := pods[a]; known {
			delete(in.awaited, a)
			in.arrived[a] = struct{}{}
		}
	}
}

// keepFormers keeps those of the lists that are followed no longer. in.mu is held.
func (in *inputs) keepFormers(next []List) {
	for _, l := range in.lists {
		if slices.ContainsFunc(next, l.equal) {
			continue
		}
		f := former{l, map[netip.Addr]bool{}, time.Now()}
		for a, keys := range in.subjects {
			if slices.Contains(keys, l.Key) {
				f.subjects[a] = true
			}
		}
		in.formers = append(in.formers, f)
	}
	in.formers = slices.DeleteFunc(in.formers, func(f former) bool {
		return slices.ContainsFunc(next, func(l List) bool { return l.Key == f.Key })
	})
	in.formers = in.formers[max(0, len(in.formers)-maxFormers):]
}

// forgetFormers forgets former lists.
func (in *inputs) forgetFormers(keys []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.formers = slices.DeleteFunc(in.formers, func(f former) bool { return slices.Contains(keys, f.Key) })
	in.changed = true
}

// lookup returns the keys of the lists of a pod's address, and whether a pod is known to have it.
func (in *inputs) lookup(a netip.Addr) (keys []string, known bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	keys, known = in.subjects[a]
	return keys, known
}

// await does the same. If no pod is known to have the address, it comes with take when one has.
func (in *inputs) await(a netip.Addr) (keys []string, known bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	keys, known = in.subjects[a]
	if !known {
		in.awaited[a] = struct{}{}
	}
	return keys, known
}

// giveUp ends the wait for addresses.
func (in *inputs) giveUp(addrs ...netip.Addr) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range addrs {
		delete(in.awaited, a)
	}
}

// taken is what the controller has set.
type taken struct {
	lists      []List
	formers    []former
	changed    bool // lists or formers, since the last call
	arrived    []netip.Addr
	generation uint64
}

// take returns what is set, and the addresses that have a pod since the last call.
func (in *inputs) take() taken {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := taken{in.lists, slices.Clone(in.formers), in.changed, slices.Collect(maps.Keys(in.arrived)), in.generation}
	in.changed = false
	clear(in.arrived)
	return out
}

// current returns the generation of the lists.
func (in *inputs) current() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.generation
}

// pending reports whether take has something to return.
func (in *inputs) pending() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.changed || len(in.arrived) > 0
}

// waiting are the facts of answers to addresses that no pod is known to have yet. Which list has the name is looked up
// again when there is a pod.
type waiting struct {
	byAddr map[netip.Addr][]fact
	count  int
}

// add adds facts, at least one, that were learned for an address. It returns the addresses that nothing waits for any
// more.
func (w *waiting) add(a netip.Addr, facts []fact) (out []netip.Addr) {
	all := slices.Concat(w.byAddr[a], facts)
	if surplus := len(all) - maxWaiting; surplus > 0 {
		all = all[surplus:]
	}
	w.count += len(all) - len(w.byAddr[a])
	w.byAddr[a] = all
	for w.count > maxWaitingAll {
		var oldest netip.Addr
		for other, facts := range w.byAddr {
			if other != a && (!oldest.IsValid() || facts[0].when.Before(w.byAddr[oldest][0].when)) {
				oldest = other
			}
		}
		w.take(oldest)
		out = append(out, oldest)
	}
	return out
}

// take returns the facts of an address, which wait no longer.
func (w *waiting) take(a netip.Addr) []fact {
	facts := w.byAddr[a]
	w.count -= len(facts)
	delete(w.byAddr, a)
	return facts
}

// expire lets go of facts that have waited for long, and returns the addresses that nothing waits for any more.
func (w *waiting) expire(now time.Time) (out []netip.Addr) {
	for a, facts := range w.byAddr {
		keep := slices.DeleteFunc(facts, func(f fact) bool { return now.Sub(f.when) > waitFor })
		w.count -= len(facts) - len(keep)
		if w.byAddr[a] = keep; len(keep) == 0 {
			delete(w.byAddr, a)
			out = append(out, a)
		}
	}
	return out
}
