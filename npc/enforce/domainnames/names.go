package domainnames

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxRemembered is how many addresses of a list are remembered: those that count, and as many that do no longer.
const maxRemembered = 2 * maxAddressesAll

// Names are what policies ask for, which the controller sets, and what became of it. They are there before a Learner.
type Names struct {
	inputs *inputs
	asked  chan struct{}
	// learner learns them; nil before there was one.
	learner atomic.Pointer[Learner]

	mu        sync.Mutex // guards the fields below; never held during a system call
	following bool
	failure   error
	// remembered are the addresses that a list has or had, by its key -> until when they count.
	remembered map[string]map[netip.Addr]time.Time
}

// NewNames returns Names without lists.
func NewNames() *Names {
	return &Names{inputs: newInputs(), asked: make(chan struct{}), remembered: map[string]map[netip.Addr]time.Time{}}
}

// Key returns what names a list of names.
func Key(names []string) string { return strings.Join(names, " ") }

// Follow replaces the lists, and the addresses of the pods of this node with the keys of those that they are subjects
// of. A list that goes is forgotten, and its sets are left alone. Neither must be changed afterwards.
func (n *Names) Follow(lists []List, pods map[netip.Addr][]string) {
	n.mu.Lock()
	if len(lists) > 0 && !n.following {
		n.following = true
		close(n.asked)
	}
	for key := range n.remembered {
		if !slices.ContainsFunc(lists, func(l List) bool { return l.Key == key }) {
			delete(n.remembered, key)
		}
	}
	n.mu.Unlock()
	n.inputs.follow(lists, pods)
	if l := n.learner.Load(); l != nil && n.inputs.pending() {
		l.wake()
	}
}

// Asked returns a channel that is closed once there has been a list.
func (n *Names) Asked() <-chan struct{} { return n.asked }

// IsNamed reports whether an address was learned for a list of names, also if it does not count any more.
func (n *Names) IsNamed(a netip.Addr, names []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, is := n.remembered[Key(names)][a]
	return is
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

// remember records facts that the sets took.
func (n *Names) remember(facts []fact) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range facts {
		of := n.remembered[f.list.Key]
		if of == nil {
			of = map[netip.Addr]time.Time{}
			n.remembered[f.list.Key] = of
		}
		if of[f.addr] = later(of[f.addr], f.until); len(of) > maxRemembered {
			forget(of)
		}
	}
}

// forget forgets the half of some addresses that counted least long.
func forget(of map[netip.Addr]time.Time) {
	all := make([]netip.Addr, 0, len(of))
	for a := range of {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b netip.Addr) int { return cmp.Or(of[a].Compare(of[b]), a.Compare(b)) })
	for _, a := range all[:len(all)/2] {
		delete(of, a)
	}
}
