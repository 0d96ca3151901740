package syncer

import (
	"time"
)

const (
	// Retries of the rules of a namespace that could not be written wait between these, doubling.
	postponedFirst = 5 * time.Second
	postponedLast  = 5 * time.Minute
)

// postponement is why the rules of a namespace could not be written, and when they are tried again.
type postponement struct {
	why   string
	since time.Time
	retry backoff
	// trying reports that the next transaction has the namespace's rules again.
	trying bool
}

// postponements are the namespaces of one family whose rules are left as they are: name -> why.
type postponements map[string]*postponement

// add postpones a namespace whose rules could not be written, or not again. It reports whether the namespace was not
// postponed before.
func (p postponements) add(ns string, why error, now time.Time) (isNew bool) {
	h := p[ns]
	if h == nil {
		isNew = true
		h = &postponement{since: now, retry: backoff{first: postponedFirst, last: postponedLast}}
		p[ns] = h
	}
	h.why, h.trying = why.Error(), false
	h.retry.failed(now)
	return isNew
}

// waits reports whether a namespace is postponed and not being tried again.
func (p postponements) waits(ns string) bool { return p[ns] != nil && !p[ns].trying }

// due returns the namespaces whose rules are to be tried again, and marks them as being tried.
func (p postponements) due(now time.Time) (names []string) {
	for ns, h := range p {
		if !h.trying && h.retry.due(now) {
			h.trying = true
			names = append(names, ns)
		}
	}
	return names
}

// written removes the namespaces that were being tried, since all rules were written, and returns since when each was
// postponed.
func (p postponements) written() map[string]time.Time {
	since := map[string]time.Time{}
	for ns, h := range p {
		if h.trying {
			since[ns] = h.since
			delete(p, ns)
		}
	}
	return since
}

// deadlines calls a function with the times of the next tries.
func (p postponements) deadlines(each func(time.Time)) {
	for _, h := range p {
		if !h.trying {
			each(h.retry.at)
		}
	}
}
