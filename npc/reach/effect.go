package reach

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Effect is what a change opens and closes, besides what it is meant to open.
type Effect struct {
	// Opens and Closes count the pairs of pods, source and destination, that something passes between, on any port, that did not before, or the other way.
	Opens  int `json:"opens"`
	Closes int `json:"closes"`
	// OpensOutside and ClosesOutside say whether the same is true of a pod and an address that is no pod's.
	OpensOutside  bool `json:"opens_outside"`
	ClosesOutside bool `json:"closes_outside"`
	// AtLeast is set if the policies name too many ports to ask about all of them.
	AtLeast bool `json:"at_least,omitempty"`
}

// String returns the effect in words.
func (e Effect) String() string {
	least := ""
	if e.AtLeast {
		least = "at least "
	}
	text := fmt.Sprintf("also opens %s%d, closes %s%d pairs of pods", least, e.Opens, least, e.Closes)
	if e.OpensOutside {
		text += "; opens pods to or from addresses outside"
	}
	if e.ClosesOutside {
		text += "; closes pods to or from addresses outside"
	}
	return text
}

// maxServices is how many ports are asked about at most.
const maxServices = 256

// Effects compares two worlds of the same pods at the same addresses, which differ in labels or policies. Meant is what the change is for: its flows
// are not counted for its service.
func Effects(before, after *explain.World, meant explain.Flow) Effect {
	outside := append(newWorld(before, nil).outside(), newWorld(after, nil).outside()...)
	slices.SortFunc(outside, netip.Addr.Compare)
	p := newPartition(before.Pods(""), slices.Compact(outside), before, after)
	c := &comparison{partition: p, before: p.judge(p.worlds[0]), after: p.judge(p.worlds[1]), found: map[[2]int]change{},
		meant: [2]int{p.classOf(meant.From), p.classOf(meant.To)}}
	services := p.services()
	atLeast := len(services) > maxServices
	services = append(services[:min(len(services), maxServices)], meant.Service)
	for i, s := range services {
		if i+1 < len(services) && s == meant.Service {
			continue
		}
		c.compare(s, s == meant.Service)
	}
	e := c.sum()
	e.AtLeast = atLeast
	return e
}

// classOf returns the class that has an end, -1 if there is none.
func (p *partition) classOf(e explain.End) int {
	return slices.IndexFunc(p.Classes, func(c podClass) bool {
		return e.Pod != "" && slices.Contains(c.Pods, e.Pod) || e.Pod == "" && c.Addr == e.Addr
	})
}

// outside returns an address of each class of those that are no pod's and no node's.
func (w *world) outside() []netip.Addr {
	claimed := map[netip.Addr]bool{}
	for _, p := range w.objects.Pods {
		for _, a := range p.Claims() {
			claimed[a] = true
		}
	}
	return w.blocks.examples(func(a netip.Addr) bool { return !claimed[a] && !w.hosts[a] && !a.IsMulticast() })
}

// services returns one of each protocol and range of ports that all policies treat alike.
func (p *partition) services() []explain.Service {
	found := map[explain.Service]bool{{Protocol: unix.IPPROTO_ICMP}: true}
	edge := func(protocol uint8, first, last uint16) {
		found[explain.Service{Protocol: protocol, Port: first}] = true
		if last < 65535 {
			found[explain.Service{Protocol: protocol, Port: last + 1}] = true
		}
	}
	for _, protocol := range traffic.PortProtocols {
		found[explain.Service{Protocol: protocol, Port: 1}] = true
	}
	for _, w := range p.worlds {
		for _, policy := range w.objects.Policies {
			for _, r := range slices.Concat(policy.Rules[npc.Ingress], policy.Rules[npc.Egress]) {
				for _, port := range r.Ports {
					if port.First != 0 {
						edge(port.Protocol, port.First, port.Last)
					}
				}
			}
		}
		for _, pod := range w.objects.Pods {
			for _, port := range pod.Ports {
				if w.ports[port.Name] {
					edge(port.Protocol, port.Port, port.Port)
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b explain.Service) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
}

// comparison collects how two worlds differ.
type comparison struct {
	*partition
	before, after *judge
	found         map[[2]int]change // classes of source and destination -> what changes between them
	meant         [2]int
}

// change is what of two classes changes.
type change struct {
	opens, closes bool
	// aside is set if a service opens or closes that the change is not meant for.
	aside bool
}

// compare adds what changes for a service.
func (c *comparison) compare(s explain.Service, meant bool) {
	before, after := c.before.relation(s), c.after.relation(s)
	class := make([]int, len(c.ends))
	for i, k := range c.Classes {
		for _, e := range k.ends {
			class[e] = i
		}
	}
	seen := map[[2]int]bool{}
	add := func(from, to int) {
		a, b := c.ends[from].Addr, c.ends[to].Addr
		pair := [2]int{from, to}
		if seen[pair] || a.IsValid() && b.IsValid() && a.Is4() != b.Is4() {
			return
		}
		seen[pair] = true
		was, is := before.allowed(from, to), after.allowed(from, to)
		if was == is {
			return
		}
		key := [2]int{class[from], class[to]}
		found := c.found[key]
		found.opens, found.closes, found.aside = found.opens || is, found.closes || was, found.aside || !meant
		c.found[key] = found
	}
	differ(before.egress, after.egress, add)
	differ(before.ingress, after.ingress, func(to, from int) { add(from, to) })
	for i := range c.ends {
		if c.ends[i].alone {
			for j := range c.ends {
				add(i, j)
				add(j, i)
			}
		}
	}
}

// differ calls found for each end and each other end that only one of two relations lets through.
func differ(before, after []endSet, found func(own, peer int)) {
	for i := range before {
		if before[i] == nil && after[i] == nil {
			continue
		}
		for w := range (len(before) + 63) / 64 {
			for word := before[i].word(w) ^ after[i].word(w); word != 0; word &= word - 1 {
				if j := w*64 + bits.TrailingZeros64(word); j < len(before) {
					found(i, j)
				}
			}
		}
	}
}

// sum counts pairs of pods.
func (c *comparison) sum() (e Effect) {
	for key, found := range c.found {
		from, to := c.Classes[key[0]], c.Classes[key[1]]
		if from.Addr.IsValid() || to.Addr.IsValid() {
			if key != c.meant || found.aside {
				e.OpensOutside, e.ClosesOutside = e.OpensOutside || found.opens, e.ClosesOutside || found.closes
			}
			continue
		}
		pairs := len(from.Pods) * len(to.Pods)
		if key[0] == key[1] {
			pairs -= len(from.Pods)
		}
		opened := pairs
		if key == c.meant && !found.aside {
			opened--
		}
		if found.opens {
			e.Opens += opened
		}
		if found.closes {
			e.Closes += pairs
		}
	}
	return e
}
