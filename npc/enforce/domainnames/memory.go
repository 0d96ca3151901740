package domainnames

import (
	"container/heap"
	"container/list"
	"net/netip"
	"slices"
	"time"
)

// Bounds of what is held. The oldest goes first.
const (
	maxAddresses    = 128   // of a name
	maxNames        = 1024  // of a wildcard
	maxAddressesAll = 16384 // of a list, counted once for each name
)

// fact is that a name of a list has an address.
type fact struct {
	list     *followed
	pattern  string // the name of the list that stands for name
	name     string
	addr     netip.Addr
	resolver netip.Addr // not valid if it was read from the kernel
	when     time.Time  // when it was learned last
	until    time.Time  // when its TTL and the grace period have passed
}

// held is a fact in memory.
type held struct {
	fact
	at    int           // in memory's heap
	order *list.Element // in followed.order
}

// byUntil is a heap of what is held: what expires first comes first.
type byUntil []*held

func (h byUntil) Len() int           { return len(h) }
func (h byUntil) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h byUntil) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push appends for package heap.
func (h *byUntil) Push(x any) {
	e := x.(*held)
	e.at = len(*h)
	*h = append(*h, e)
}

// Pop removes the last for package heap.
func (h *byUntil) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return e
}

// element is an address in the set of a list.
type element struct {
	list *followed
	addr netip.Addr
}

// memory is what is held of all lists.
type memory struct {
	expiry  byUntil
	evicted uint64
	// gone are elements that the kernel has to lose, unless they have come again.
	gone []element
}

// hold holds a fact, at least until it was held for before.
func (m *memory) hold(f fact) {
	l := f.list
	n := l.name(f.pattern, f.name)
	n.when = f.when
	if i := slices.IndexFunc(n.held, func(h *held) bool { return h.addr == f.addr }); i >= 0 {
		h := n.held[i]
		f.until = later(h.until, f.until)
		h.fact = f
		heap.Fix(&m.expiry, h.at)
		l.order.MoveToBack(h.order)
		return
	}
	h := &held{fact: f}
	h.order = l.order.PushBack(h)
	n.held = append(n.held, h)
	l.addrs[f.addr] = append(l.addrs[f.addr], h)
	heap.Push(&m.expiry, h)
	m.bound(l, n)
}

// bound evicts what is too much of a name, its wildcard or its list.
func (m *memory) bound(l *followed, n *name) {
	for len(n.held) > maxAddresses {
		m.evict(slices.MinFunc(n.held, func(a, b *held) int { return a.when.Compare(b.when) }))
	}
	if names := l.expand[n.pattern]; len(names) > maxNames {
		oldest := n
		for _, other := range names {
			if other.when.Before(oldest.when) {
				oldest = other
			}
		}
		for _, h := range slices.Clone(oldest.held) {
			m.evict(h)
		}
	}
	for l.order.Len() > maxAddressesAll {
		m.evict(l.order.Front().Value.(*held))
	}
}

func (m *memory) evict(h *held) {
	m.evicted++
	m.remove(h)
}

// remove lets go of a fact, and of its element with the last.
func (m *memory) remove(h *held) {
	l, n := h.list, h.list.names[h.name]
	heap.Remove(&m.expiry, h.at)
	l.order.Remove(h.order)
	is := func(other *held) bool { return other == h }
	if n.held = slices.DeleteFunc(n.held, is); len(n.held) == 0 {
		delete(l.names, h.name)
		delete(l.expand[n.pattern], h.name)
	}
	if l.addrs[h.addr] = slices.DeleteFunc(l.addrs[h.addr], is); len(l.addrs[h.addr]) == 0 {
		delete(l.addrs, h.addr)
		m.gone = append(m.gone, element{l, h.addr})
	}
}

// expire lets go of what has expired.
func (m *memory) expire(now time.Time) {
	for len(m.expiry) > 0 && !m.expiry[0].until.After(now) {
		m.remove(m.expiry[0])
	}
}

// drop lets go of a list. Its sets stay as they are.
func (m *memory) drop(l *followed) {
	for l.order.Len() > 0 {
		m.remove(l.order.Front().Value.(*held))
	}
	m.gone = slices.DeleteFunc(m.gone, func(e element) bool { return e.list == l })
}

// takeGone returns the elements that the kernel has to lose.
func (m *memory) takeGone() (out []element) {
	for _, e := range m.gone {
		if len(e.list.addrs[e.addr]) == 0 {
			out = append(out, e)
		}
	}
	m.gone = nil
	return out
}
