package domainnames

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// maxRemembered is how many addresses of names are remembered for a list: those that count, and as many that do no
// longer.
const maxRemembered = 2 * maxAddressesAll

// remembered is what was learned for a list, also what does not count any more.
type remembered struct {
	until map[netip.Addr]map[string]time.Time // address -> name -> until when it counts
	count int                                 // of names of addresses
}

func newRemembered() *remembered { return &remembered{until: map[netip.Addr]map[string]time.Time{}} }

// add records that a name has an address, at least until what is known already.
func (r *remembered) add(a netip.Addr, name string, until time.Time) {
	of := r.until[a]
	if of == nil {
		of = map[string]time.Time{}
		r.until[a] = of
	}
	before, known := of[name]
	of[name] = later(before, until)
	if !known {
		r.count++
	}
	if r.count > maxRemembered {
		r.forget()
	}
}

// take records what another list has of some names.
func (r *remembered) take(other *remembered, has func(name string) bool) {
	for a, names := range other.until {
		for name, until := range names {
			if has(name) {
				r.add(a, name, until)
			}
		}
	}
}

// forget forgets the half that counted least long.
func (r *remembered) forget() {
	type named struct {
		addr  netip.Addr
		name  string
		until time.Time
	}
	all := make([]named, 0, r.count)
	for a, names := range r.until {
		for name, until := range names {
			all = append(all, named{a, name, until})
		}
	}
	slices.SortFunc(all, func(a, b named) int {
		return cmp.Or(a.until.Compare(b.until), a.addr.Compare(b.addr), cmp.Compare(a.name, b.name))
	})
	for _, n := range all[:len(all)/2] {
		if delete(r.until[n.addr], n.name); len(r.until[n.addr]) == 0 {
			delete(r.until, n.addr)
		}
		r.count--
	}
}

// elements returns the elements of a set with the addresses of a family that count.
func (r *remembered) elements(f npc.Family, now time.Time) (out []ipset.Element) {
	for a, names := range r.until {
		var latest time.Time
		comment := ""
		for name, until := range names {
			if until.After(latest) || until.Equal(latest) && name < comment {
				latest, comment = until, name
			}
		}
		if npc.FamilyOf(a) == f && latest.After(now) {
			out = append(out, ipset.Element{Entry: ipset.Addr(a),
				Attr: ipset.Attr{Comment: comment, Timeout: seconds(latest.Sub(now) + outage)}})
		}
	}
	return out
}
