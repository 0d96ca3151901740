package cluster

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// named is a name that a list of domain names has, and one of its addresses.
type named struct {
	list, name string
	addr       netip.Addr
}

// Zone is what resolvers say: name -> addresses.
type Zone map[string][]netip.Addr

// Names returns the names of each address.
func (z Zone) Names() map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for name, addrs := range z {
		for _, a := range addrs {
			out[a] = append(out[a], name)
		}
	}
	return out
}

// Learn has the lists that can be made of some domain names know the addresses of a zone, as if pods had asked for all
// of them as soon as there is a set. The names are in order.
func (w *Cluster) Learn(names []string, zone Zone) {
	w.learned = nil
	elements := map[string][]ipset.Element{}
	for which := 1; which < 1<<len(names); which++ {
		var list []string
		for i, n := range names {
			if which&(1<<i) != 0 {
				list = append(list, n)
			}
		}
		set, past := rules.NewSet(rules.NamesSpec{Names: list}), rules.NewSet(rules.PastNamesSpec{Names: list})
		for name, addrs := range zone {
			for _, a := range addrs {
				if slices.ContainsFunc(list, func(of string) bool { return policy.Peer{Name: of}.HasName(name) }) {
					e := ipset.Element{Entry: ipset.Addr(a), Attr: ipset.Attr{Comment: name}}
					for _, s := range []rules.Set{set, past} {
						at := s.Name(npc.FamilyOf(a))
						elements[at] = append(elements[at], e)
					}
					w.learned = append(w.learned, named{policy.NamesKey(list), name, a})
				}
			}
		}
	}
	for _, k := range w.Kernels {
		k.Learned = func(set string) []ipset.Element { return elements[set] }
	}
	w.Model.objects.SetLearned(zone.Names())
}

// Remember has the controller know what was learned.
func (w *Cluster) Remember() {
	for _, n := range w.learned {
		controller.NamesOf(w.Model.Controller).Remember(n.list, n.name, n.addr, time.Now().Add(time.Hour))
	}
}
