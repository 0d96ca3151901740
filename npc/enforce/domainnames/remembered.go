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
	read  bool                                // what the kernel had is among it
}

// add records that a name has an address, at least until what is known already. It returns addresses that are forgotten
// for that.
func (r *remembered) add(a netip.Addr, name string, until time.Time) (forgotten []netip.Addr) {
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
		return r.forget()
	}
	return nil
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

// forget forgets the half that counted least long, and returns the addresses that have no name left.
func (r *remembered) forget() (out []netip.Addr) {
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
			out = append(out, n.addr)
		}
		r.count--
	}
	return out
}

// elements returns the elements of a set with the addresses of a family that count, or of the set of the past with all.
func (r *remembered) elements(f npc.Family, old bool, now time.Time) (out []ipset.Element) {
	for a, names := range r.until {
		var latest time.Time
		comment := ""
		for name, until := range names {
			if until.After(latest) || until.Equal(latest) && name < comment {
				latest, comment = until, name
			}
		}
		attr := ipset.Attr{Comment: comment, Timeout: seconds(latest.Sub(now) + outage)}
		if old {
			attr.Timeout = seconds(past)
		}
		if npc.FamilyOf(a) == f && (old || latest.After(now)) {
			out = append(out, ipset.Element{Entry: ipset.Addr(a), Attr: attr})
		}
	}
	return out
}
