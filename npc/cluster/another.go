package cluster

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// SamePod reports whether two texts name the same pod, or the first one of the same workload.
func SamePod(v *View, a, b string) bool { return podOf(v, a) == podOf(v, b) }

// Another returns the second pod of a workload that a text names, as namespace/kind/name or by the pod that stands for
// it. If there is only one, it adds another with the next free addresses, which is made then. Of anything else it
// returns the text.
func (c *Cluster) Another(text string) (pod string, made bool) {
	v := c.View()
	pods := podsOf(v, text)
	if p := v.Pods[podOf(v, text)]; len(pods) == 0 && p != nil && p.StandsForWorkload() {
		pods = []string{podOf(v, text)}
	}
	switch {
	case len(pods) > 1:
		return pods[1], false
	case len(pods) == 0 || v.Pods[pods[0]].HostNetwork:
		return text, false
	}
	p := newOthers(v).of(v.Pods[pods[0]])
	c.SetPod(*p)
	return p.Key(), true
}

// WithOther returns the same view with another pod like one, and its ends for ends of that one.
func WithOther(v *View, pod string, of []flow.End) (*View, []flow.End) {
	p := v.Pods[pod]
	other := newOthers(v).of(p)
	var ends []flow.End
	for _, e := range of {
		end := flow.End{Pod: other.Key()}
		if i := slices.Index(p.Addrs, e.Addr); i >= 0 {
			end.Addr = other.Addrs[i]
		}
		ends = append(ends, end)
	}
	return withPods(v, other), ends
}

// WithOthers returns the same view with another pod for each that stands for a workload and can be an end of a flow, and
// the names of the other pods by those of the former, as namespace/name.
func WithOthers(v *View) (*View, map[string]string) {
	made, names := newOthers(v), map[string]string{}
	var pods []*npc.Pod
	for _, name := range v.PodNames("") {
		if p := v.Pods[name]; p.StandsForWorkload() {
			other := made.of(p)
			pods, names[name] = append(pods, other), other.Key()
		}
	}
	if len(pods) == 0 {
		return v, names
	}
	return withPods(v, pods...), names
}

// withPods returns the same view with some more pods.
func withPods(v *View, more ...*npc.Pod) *View {
	w := v.Assume(nil, slices.AppendSeq(more, maps.Values(v.Pods)))
	w.Unreadable, w.declared = v.Unreadable, v.declared
	return w
}

// others makes up pods that no policy distinguishes from existing ones.
type others struct {
	*View
	classes *ipblock.Classes
	last    map[addrClass]netip.Addr // the last address that was given
	given   addrSet
}

// addrClass is the addresses of a family that no rule distinguishes.
type addrClass struct {
	is4    bool
	number int
}

func newOthers(v *View) *others {
	return &others{View: v, classes: ipblock.NewClasses(policy.Blocks(Rules(v))), last: map[addrClass]netip.Addr{},
		given: addrSet{}}
}

// of returns another pod like one, with addresses of its own.
func (o *others) of(p *npc.Pod) *npc.Pod {
	other := *p
	for other.Name += ".2"; o.Pods[other.Key()] != nil; {
		other.Name += ".2"
	}
	other.Addrs = nil
	for _, a := range p.Addrs {
		other.Addrs = append(other.Addrs, o.next(a))
	}
	return &other
}

// maxSkipped limits the addresses that are tried for one that rules do not distinguish.
const maxSkipped = 1 << 16

// next returns the next free address that rules do not distinguish, or else the next free one.
func (o *others) next(of netip.Addr) netip.Addr {
	class := addrClass{of.Is4(), o.classes.Of(of)}
	last := o.last[class]
	if !of.Less(last) {
		last = of
	}
	next := o.free(last)
	for a, n := next, 0; n < maxSkipped && a.IsValid(); a, n = o.free(a), n+1 {
		if o.classes.Of(a) == class.number {
			next = a
			break
		}
	}
	o.last[class], o.given[next] = next, struct{}{}
	return next
}

// free returns the next address that no pod and no node has.
func (o *others) free(after netip.Addr) netip.Addr {
	a := after.Next()
	for len(o.claims[a])+len(o.stale[a])+len(o.nodesAt[a]) > 0 || o.IsNodes(a) || o.given.has(a) {
		a = a.Next()
	}
	return a
}
