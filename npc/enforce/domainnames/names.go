package domainnames

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Names are what policies ask for, which the controller sets, and what became of it. They are there before a Learner.
type Names struct {
	inputs *inputs
	asked  chan struct{}
	// learner learns them; nil before there was one.
	learner atomic.Pointer[Learner]

	mu        sync.Mutex // guards the fields below; never held during a system call
	following bool
	failure   error
	// pods are the addresses of pods, with the keys of their lists.
	pods map[netip.Addr][]string
	// remembered is what was learned for a list, by its key.
	remembered map[string]*remembered
	lookups    lookups
}

// NewNames returns Names without lists.
func NewNames() *Names {
	return &Names{inputs: newInputs(), asked: make(chan struct{}), remembered: map[string]*remembered{},
		lookups: lookups{pods: map[netip.Addr][]lookup{}}}
}

// Follow replaces the lists, and the addresses of the pods of this node with the keys of those that they are subjects
// of. A new list takes over what was learned for lists whose subjects are all its own. A list that goes is forgotten,
// and its sets are left alone. Neither must be changed afterwards.
func (n *Names) Follow(lists []List, pods map[netip.Addr][]string) {
	n.mu.Lock()
	for a := range n.pods {
		if len(pods[a]) == 0 {
			n.lookups.forget(a)
		}
	}
	n.remembered, n.pods = n.takeOver(lists, pods), pods
	n.inputs.follow(lists, pods) // before a Learner reads the queue
	if len(lists) > 0 && !n.following {
		n.following = true
		close(n.asked)
	}
	n.mu.Unlock()
	if l := n.learner.Load(); l != nil && n.inputs.pending() {
		l.wake()
	}
}

// Asked returns a channel that is closed once there has been a list.
func (n *Names) Asked() <-chan struct{} { return n.asked }

// takeOver returns what is remembered for lists. n.mu is held.
func (n *Names) takeOver(lists []List, pods map[netip.Addr][]string) map[string]*remembered {
	next := make(map[string]*remembered, len(lists))
	var added []List
	for _, l := range lists {
		if next[l.Key] = n.remembered[l.Key]; next[l.Key] == nil {
			next[l.Key] = &remembered{until: map[netip.Addr]map[string]time.Time{}}
			added = append(added, l)
		}
	}
	for _, l := range added {
		x := newIndex(map[string]*followed{l.Key: newFollowed(l)})
		for key, former := range n.remembered {
			if n.isAmong(key, l.Key, pods) {
				next[l.Key].take(former, func(name string) bool { return len(x.match(name)) > 0 })
			}
		}
	}
	return next
}

// isAmong reports whether the subjects of a former list are subjects of another one now, those at least that are still
// there. n.mu is held.
func (n *Names) isAmong(former, list string, pods map[netip.Addr][]string) bool {
	any := false
	for a, keys := range n.pods {
		if !slices.Contains(keys, former) {
			continue
		}
		now, exists := pods[a]
		if exists && !slices.Contains(now, list) {
			return false
		}
		any = any || exists
	}
	return any
}

// Elements returns a function that returns what the set of a list of names begins with: the addresses of a family that
// were learned for it and count still, or all of them for the set of the past.
func (n *Names) Elements(names []string, f npc.Family, past bool) func() []ipset.Element {
	return func() []ipset.Element {
		n.mu.Lock()
		defer n.mu.Unlock()
		if r := n.remembered[policy.NamesKey(names)]; r != nil {
			return r.elements(f, past, time.Now())
		}
		return nil
	}
}

// IsNamed reports whether an address was learned for a list of names, also if it does not count any more. For a list of a
// staged policy alone, what other lists have counts.
func (n *Names) IsNamed(a netip.Addr, names []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.remembered[policy.NamesKey(names)]; r != nil {
		return len(r.until[a]) > 0
	}
	for _, r := range n.remembered {
		for name := range r.until[a] {
			if slices.ContainsFunc(names, func(of string) bool { return policy.Peer{Name: of}.HasName(name) }) {
				return true
			}
		}
	}
	return false
}

// Fail records why there is no Learner.
func (n *Names) Fail(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure = why
}

// Err returns why answers are not learned although policies ask for names; nil if they are.
func (n *Names) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.following {
		return nil
	}
	if l := n.learner.Load(); l != nil {
		return l.why()
	}
	return n.failure
}

// Counts returns the numbers of the Learner; zero if there is none.
func (n *Names) Counts() Counts {
	if l := n.learner.Load(); l != nil {
		return l.snapshot()
	}
	return Counts{}
}

// Remember records that a name that a list has is at an address, if the list is followed.
func (n *Names) Remember(list, name string, a netip.Addr, until time.Time) {
	n.remember([]fact{{list: &followed{List: List{Key: list}}, name: name, addr: a, until: until}}, anyGeneration)
}

// anyGeneration stands for the lists of now.
const anyGeneration = 0

// remember records facts of lists that are followed, if the lists are those of a generation. It returns what is forgotten
// for that, and whether they are.
func (n *Names) remember(facts []fact, generation uint64) (forgotten []element, current bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if generation != anyGeneration && generation != n.inputs.current() {
		return nil, false
	}
	for _, f := range facts {
		if r := n.remembered[f.list.Key]; r != nil {
			for _, a := range r.add(f.addr, f.name, f.until) {
				forgotten = append(forgotten, element{f.list, a})
			}
		}
	}
	return forgotten, true
}

// read records that the sets of lists were read, or that there are none.
func (n *Names) read(lists map[string]*followed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range lists {
		if r := n.remembered[key]; r != nil {
			r.read = true
		}
	}
}

// AreKnown reports whether it is known what earlier processes learned for the lists. If nothing can be learned it is.
func (n *Names) AreKnown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.remembered {
		if !r.read && n.failure == nil {
			return false
		}
	}
	return true
}

// NamesAt returns the domain names that an address is known to a pod of this node by, at most three, the latest first:
// those that were learned for the pod's lists, also if they do not count any more, and others that it looked up in the
// last hour. They are such as a host has, and what pods may look up is up to them.
func (n *Names) NamesAt(pod, a netip.Addr) []string {
	if !n.hasLists(pod) {
		return nil
	}
	if l := n.learner.Load(); l != nil {
		_ = l.overhear(time.Now()) // it is reported from time to time
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var learned, others latest
	for _, key := range n.pods[pod] {
		if r := n.remembered[key]; r != nil {
			for name, until := range r.until[a] {
				learned.add(lookup{name: name, when: until})
			}
		}
	}
	for _, l := range n.lookups.pods[pod] {
		if l.addr == a && time.Since(l.when) < keepLookup {
			others.add(l)
		}
	}
	var out []string
	for _, l := range slices.Concat(learned, others) {
		if len(out) < maxNamesOf && !slices.Contains(out, l.name) {
			out = append(out, l.name)
		}
	}
	return out
}

// hasLists reports whether a pod has lists. Nothing is recorded of others.
func (n *Names) hasLists(pod netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pods[pod]) > 0
}

// lookedUp records what a pod with lists looked up.
func (n *Names) lookedUp(pod netip.Addr, r reply, domain string, now time.Time) {
	name := r.names(domain)
	if len(name) > 1 { // the name in a search domain is an alias of the one that counts
		name = name[1:]
	}
	if len(name) == 0 || !plain(name[0]) || isBelow(name[0], domain) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pods[pod]) == 0 {
		return
	}
	for _, f := range r.found {
		n.lookups.add(pod, lookup{f.addr, name[0], now})
	}
}
