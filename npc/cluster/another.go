package cluster

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// SamePod reports whether two texts name the same pod, or the first one of the same workload.
func SamePod(v *View, a, b string) bool {
	return podOf(v, atAddress(v, a)) == podOf(v, atAddress(v, b))
}

// atAddress returns the pod that stands for a workload if a text is its address, which is made up, or else the text.
func atAddress(v *View, text string) string {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	if p := v.Owner(a.Unmap(), ""); p != nil && p.StandsForWorkload() {
		return p.Key()
	}
	return text
}

// Another returns the second pod of a workload that a text names, as namespace/kind/name or by the pod that stands for
// it or the address of that. If there is only one, it adds another with the next free addresses, which is made then. Of
// anything else it returns the text.
func (c *Cluster) Another(text string) (pod string, made bool) {
	v := c.View()
	named := atAddress(v, text)
	pods := podsOf(v, named)
	if p := v.Pods[podOf(v, named)]; len(pods) == 0 && p != nil && p.StandsForWorkload() {
		pods = []string{podOf(v, named)}
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

// Imagine adds a pod that a text describes by its namespace and its labels, as shop/[app=web,tier=front]. It has free
// addresses after those of a pod with these labels, with the ports of that, or else of any. Of anything else it returns
// the text.
func (c *Cluster) Imagine(text string) (pod string, made bool, err error) {
	namespace, list, is := strings.Cut(text, "/[")
	if !is {
		return text, false, nil
	}
	list, closed := strings.CutSuffix(list, "]")
	set, err := labels.ConvertSelectorToLabelsMap(list)
	if err != nil || !closed || namespace == "" {
		return "", false, errors.Errorf("%q describes no pod by its labels: give NAMESPACE/[KEY=VALUE,...]", text)
	}
	v := c.View()
	if err := v.CheckNamespace(namespace); err != nil {
		return "", false, err
	}
	p := npc.Pod{Namespace: namespace, Name: "new-pod", Labels: set}
	for v.Pods[p.Key()] != nil {
		p.Name += ".2"
	}
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{10, 254, 0, 0})}
	if like, rank := likest(v, &p); like != nil {
		addrs = like.Addrs
		if rank == sameLabels {
			p.Ports = like.Ports
		}
	}
	free := newOthers(v)
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, free.next(a))
	}
	c.SetPod(p)
	return p.Key(), true, nil
}

// How much a pod is like another one.
const (
	noAddress = iota
	anyPod
	sameNamespace
	sameLabels
)

// likest returns the pod with an address that is most like one, the first by name, and how much it is; nil for none.
func likest(v *View, p *npc.Pod) (like *npc.Pod, rank int) {
	matches := labels.SelectorFromSet(p.Labels).Matches
	for _, name := range v.PodNames("") {
		of, is := v.Pods[name], anyPod
		switch {
		case len(of.Addrs) == 0:
			is = noAddress
		case of.Namespace != p.Namespace:
		case len(p.Labels) > 0 && matches(labels.Set(of.Labels)):
			is = sameLabels
		default:
			is = sameNamespace
		}
		if is > rank {
			like, rank = of, is
		}
	}
	return like, rank
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
