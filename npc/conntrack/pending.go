package conntrack

import (
	"net/netip"
	"slices"
)

// Pending lists the addresses that changed hands and whose connections of the former owner are not deleted yet. Its
// zero value is empty.
type Pending struct {
	open map[netip.Addr]entry
}

type entry struct {
	Request
	asked bool // the request is being carried out
}

// Enter adds a request. What the address was entered for before is to be done again.
func (l *Pending) Enter(r Request) {
	if was, ok := l.open[r.Addr]; ok {
		r.Scope, r.Later = max(r.Scope, was.Scope), r.Later && was.Later
	}
	if l.open == nil {
		l.open = map[netip.Addr]entry{}
	}
	l.open[r.Addr] = entry{Request: r}
}

// Has reports whether an address is listed.
func (l *Pending) Has(a netip.Addr) bool {
	_, ok := l.open[a]
	return ok
}

// Hurry makes an address urgent, if it is listed.
func (l *Pending) Hurry(a netip.Addr) {
	if e, ok := l.open[a]; ok && e.Later {
		e.Later, e.asked = false, false
		l.open[a] = e
	}
}

// Due returns the requests that Asked was not called with, sorted by address; those of urgent addresses are marked as
// urgent.
func (l *Pending) Due(urgent map[netip.Addr]struct{}) []Request {
	var out []Request
	for a, e := range l.open {
		_, needed := urgent[a]
		urgent := e.Later && needed
		if e.asked && !urgent {
			continue
		}
		r := e.Request
		r.Later = r.Later && !urgent
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Request) int { return a.Addr.Compare(b.Addr) })
	return out
}

// Asked records requests of Due that are being carried out.
func (l *Pending) Asked(requests []Request) {
	for _, r := range requests {
		if e, ok := l.open[r.Addr]; ok && e.Scope <= r.Scope {
			e.Later, e.asked = e.Later && r.Later, true
			l.open[r.Addr] = e
		}
	}
}

// Untaken reports whether Due would return something without urgent addresses.
func (l *Pending) Untaken() bool {
	for _, e := range l.open {
		if !e.asked {
			return true
		}
	}
	return false
}

// Remove removes addresses whose requests were carried out.
func (l *Pending) Remove(addrs []netip.Addr) {
	for _, a := range addrs {
		if l.open[a].asked {
			delete(l.open, a)
		}
	}
}

// Clear removes all addresses.
func (l *Pending) Clear() { clear(l.open) }

// Urgent counts the addresses that a pod waits for.
func (l *Pending) Urgent() (n int) {
	for _, e := range l.open {
		if !e.Later {
			n++
		}
	}
	return n
}
