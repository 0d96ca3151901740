package reachability

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Effect is what a change opens and closes besides the intended flows.
type Effect struct {
	// Opens counts the pairs of pods, source and destination, between which a flow to some port is allowed that was
	// denied before. Closes counts those between which one is denied that was allowed.
	Opens  int `json:"opens"`
	Closes int `json:"closes"`
	// OpensOutside and ClosesOutside report whether the same holds for a pod and an address of no pod.
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

// Effects compares two views of the same pods at the same addresses, which differ in labels or policies. The intended
// flows are what the change is for. They are not counted for its service.
func Effects(before, after *cluster.View, intended flow.Flow) Effect {
	outside := append(newView(before, nil).outside(), newView(after, nil).outside()...)
	slices.SortFunc(outside, netip.Addr.Compare)
	p := NewPartition(before.PodNames(""), slices.Compact(outside), before, after)
	c := &comparison{Partition: p, before: p.evaluate(p.views[0]), after: p.evaluate(p.views[1]),
		found:    map[[2]int]change{},
		intended: [2]int{p.classOf(intended.From), p.classOf(intended.To)}}
	services := p.Services()
	atLeast := len(services) > maxServices
	services = append(services[:min(len(services), maxServices)], intended.Service)
	for i, s := range services {
		if i+1 < len(services) && s == intended.Service {
			continue
		}
		c.compare(s, s == intended.Service)
	}
	e := c.sum()
	e.AtLeast = atLeast
	return e
}

// classOf returns the class of an end, or -1.
func (p *Partition) classOf(e flow.End) int {
	return slices.IndexFunc(p.classes, func(c Class) bool {
		return e.Pod != "" && slices.Contains(c.Pods, e.Pod) || e.Pod == "" && c.Addr == e.Addr
	})
}

// outside returns an address of each class that has one of no pod and no node.
func (v *view) outside() (out []netip.Addr) {
	claimed := map[netip.Addr]bool{}
	for _, p := range v.Pods {
		for _, a := range p.Claims() {
			claimed[a] = true
		}
	}
	seen := map[int]bool{}
	for _, r := range v.addresses.Ranges() {
		a, ok := r.Unicast(func(a netip.Addr) bool { return !claimed[a] && !v.IsNodes(a) && len(v.NodesAt(a)) == 0 })
		if class := v.addresses.Of(a); ok && !seen[class] {
			seen[class] = true
			out = append(out, a)
		}
	}
	return out
}

// Services returns one service of each protocol and range of ports that all policies treat alike.
func (p *Partition) Services() []flow.Service {
	split := flow.NewSplit()
	split[flow.Service{Protocol: npc.ICMP}] = true
	for _, v := range p.views {
		for r := range cluster.Rules(v.View) {
			for _, port := range r.Ports {
				split.Add(port.Protocol, port.First, port.Last)
			}
		}
		for _, pod := range v.Pods {
			for _, port := range pod.Ports {
				if v.ports[port.Name] {
					split.Add(port.Protocol, port.Port, port.Port)
				}
			}
		}
	}
	return split.Services()
}

// comparison collects how two views differ.
type comparison struct {
	*Partition
	before, after *evaluation
	found         map[[2]int]change // classes of source and destination -> what changes between them
	intended      [2]int
}

// change is what changes between two classes.
type change struct {
	opens, closes bool
	// aside is set if a service changes other than the intended one.
	aside bool
}

// compare adds what changes for a service. Intended is set if it is the service that the change is for.
func (c *comparison) compare(s flow.Service, intended bool) {
	before, after := c.before.relation(s), c.after.relation(s)
	class := make([]int, len(c.ends))
	for i, k := range c.classes {
		for e := range k.Ends {
			class[k.first+e] = i
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
		was, _ := before.reaches(from, to)
		is, _ := after.reaches(from, to)
		if was == is {
			return
		}
		key := [2]int{class[from], class[to]}
		found := c.found[key]
		found.opens, found.closes, found.aside = found.opens || is, found.closes || was, found.aside || !intended
		c.found[key] = found
	}
	differ(before.egress, after.egress, add)
	differ(before.ingress, after.ingress, func(to, from int) { add(from, to) })
	for i := range c.ends {
		if c.ends[i].Alone {
			for j := range c.ends {
				add(i, j)
				add(j, i)
			}
		}
	}
}

// differ calls found for each end and each other end that only one of two relations allows.
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

// sum counts the pairs of pods that changed.
func (c *comparison) sum() (e Effect) {
	for key, found := range c.found {
		from, to := c.classes[key[0]], c.classes[key[1]]
		if from.Addr.IsValid() || to.Addr.IsValid() {
			if key != c.intended || found.aside {
				e.OpensOutside, e.ClosesOutside = e.OpensOutside || found.opens, e.ClosesOutside || found.closes
			}
			continue
		}
		pairs := len(from.Pods) * len(to.Pods)
		if key[0] == key[1] {
			pairs -= len(from.Pods)
		}
		opened := pairs
		if key == c.intended && !found.aside {
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
