package controller

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	"github.com/weave-npc/weave-npc/npc/queue"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// pod is the state of one pod.
type pod struct {
	npc.Pod // but for its labels
	ns      *namespace
	// labels are the pod's.
	labels labelSet
	// local is set if policies apply to the pod's packets: it is on this node, not on the host
	// network and not finished. It may still be without an address.
	local bool
	// owned are those of its addresses that it alone is taken for.
	owned []netip.Addr
	// isolated is set for each direction in which something isolates the pod.
	isolated [len(traffic.Directions)]bool
	// parts are those of its namespace that have the rules for it; nil if there are none.
	parts [len(traffic.Directions)]*part
	// members is where its addresses are.
	members []membership
}

// membership is an entry that a pod has in a set.
type membership struct {
	set   *dataplane.Set
	entry ipset.Entry
}

// String is the pod as a comment names it.
func (p *pod) String() string { return objectkey.Of(p.Namespace, p.Name) }

// attr is what the pod's entries say for humans.
func (p *pod) attr() ipset.Attr { return ipset.Attr{Comment: comment(p.String())} }

// id tells the pod from those that had its name before.
func (p *pod) id() string { return naming.Hash("pod", string(p.UID))[:10] }

// localComment is the comment of the pod's entries in the set of the local pods, which tells pods of one name apart.
func (p *pod) localComment() string { return comment(p.id() + " " + p.String()) }

// join puts the pod into the sets of a selector that matches it.
func (p *pod) join(s *selector) {
	before := len(p.members)
	p.members = s.entries(p, p.members)
	if len(p.members) == before {
		return
	}
	attr := p.attr()
	for _, m := range p.members[before:] {
		m.set.Add(m.entry, attr)
	}
}

// leave takes the pod out of the sets of a selector.
func (p *pod) leave(s *selector) {
	p.members = slices.DeleteFunc(p.members, func(m membership) bool {
		if m.set != s.sets[m.set.Family()] {
			return false
		}
		m.set.Remove(m.entry)
		return true
	})
}

// SetPod takes a pod as it now is.
func (m *Controller) SetPod(p npc.Pod) {
	m.change(queue.Event{Kind: queue.Pods, Key: "pod/" + objectkey.Of(p.Namespace, p.Name), UID: p.UID, Weight: 1, Apply: func() { m.setPod(p) }})
}

func (m *Controller) setPod(f npc.Pod) {
	f.StaleAddrs = f.StaleAddrs || m.beforeBoot(&f)
	ns := m.namespace(f.Namespace)
	p := ns.pods[f.Name]
	if p != nil && p.UID != f.UID {
		m.deletePod(p)
		ns, p = m.namespace(f.Namespace), nil // the namespace may have gone with it
	}
	if p == nil {
		p = &pod{ns: ns}
		ns.pods[f.Name] = p
	} else if p.same(f) {
		return
	}
	before, relabelled := p.Pod, !p.labels.equal(f.Labels)
	wasLocal := p.local
	if relabelled {
		p.labels = m.texts.labels(f.Labels)
	}
	f.Labels, f.Namespace, f.Node = nil, ns.Name, m.texts.share(f.Node)
	f.HostAddrs, f.Ports = m.texts.shareHosts(f.HostAddrs), m.texts.sharePorts(f.Ports)
	p.Pod = f
	if !slices.Equal(before.HostAddrs, f.HostAddrs) {
		m.countHosts(before.HostAddrs, -1)
		m.countHosts(f.HostAddrs, +1)
	}
	p.local = f.Node == m.NodeName && !f.HostNetwork && !f.Finished
	if p.local {
		ns.local[p] = struct{}{}
	} else {
		delete(ns.local, p)
	}
	if p.local != wasLocal || p.local && relabelled {
		m.selectPod(p)
	}
	m.claim(p, before.Claims(), f.Claims())
	m.place(p)
}

// same reports whether a pod is as its facts say.
func (p *pod) same(f npc.Pod) bool {
	return p.UID == f.UID && p.Node == f.Node && p.HostNetwork == f.HostNetwork && p.Finished == f.Finished && p.Deleting == f.Deleting &&
		p.StaleAddrs == f.StaleAddrs &&
		p.Started.Equal(f.Started) && p.Created.Equal(f.Created) && slices.Equal(p.Addrs, f.Addrs) &&
		slices.Equal(p.HostAddrs, f.HostAddrs) && slices.Equal(p.Ports, f.Ports) && p.labels.equal(f.Labels)
}

// DeletePod removes a pod. One of that name with another UID is another pod; an empty UID
// stands for whichever is there.
func (m *Controller) DeletePod(namespace, name string, uid types.UID) {
	m.change(queue.Event{Kind: queue.Pods, Key: "pod/" + objectkey.Of(namespace, name), UID: uid, Ends: true, Weight: 1, Apply: func() {
		ns := m.namespaces[namespace]
		if ns == nil || ns.pods[name] == nil || uid != "" && ns.pods[name].UID != uid {
			return
		}
		m.deletePod(ns.pods[name])
	}})
}

func (m *Controller) deletePod(p *pod) {
	if p.local {
		m.vanish(p)
	}
	m.countHosts(p.HostAddrs, -1)
	delete(p.ns.pods, p.Name)
	delete(p.ns.local, p)
	p.local = false
	m.selectPod(p)
	m.claim(p, p.Claims(), nil)
	m.place(p)
	m.releaseNamespace(p.Namespace)
}

// waits returns why an address of a local pod is not known, in words that follow the pod's name; empty if all are.
func (m *Controller) waits(p *pod) string {
	switch {
	case len(p.Addrs) == 0:
		return " has no address yet"
	case p.StaleAddrs:
		return " reports an address that it had before it or the node was restarted"
	case slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return m.refused(a, p) }):
		return " claims an address of this node"
	}
	return ""
}

// place brings the sets that the pod's addresses are in up to date. It is to be called whenever
// its labels, addresses, ports, node or isolation have changed, or those of its namespace.
func (m *Controller) place(p *pod) {
	m.placeOne(p)
	if len(p.owned) == len(p.Claims()) || p.Node != m.NodeName {
		return
	}
	for _, a := range p.Claims() {
		if owner := m.claims.Owner(a); owner != nil && owner != p {
			m.placeOne(owner) // what p is isolated in closes the address that it contests
		}
	}
}

// placeOne is place without the owners of addresses that the pod contests.
func (m *Controller) placeOne(p *pod) {
	had := p.members
	p.members = m.memberships(p)
	for _, old := range had {
		if !slices.Contains(p.members, old) {
			old.set.Remove(old.entry)
		}
	}
	attr := p.attr()
	for _, w := range p.members {
		// The gates hold entries that are no pods', and may have taken this for one of them.
		if m.gates.has(w.set) || !slices.Contains(had, w) {
			w.set.Add(w.entry, m.attr(w, p, attr))
		}
	}
	m.countPending(p)
}

// attr is what a pod's entry in a set carries: what all do, but for some sets.
func (m *Controller) attr(w membership, p *pod, a ipset.Attr) ipset.Attr {
	a.NoMatch = m.gates.has(w.set)
	if w.set == m.tables[w.set.Family()].Local {
		// A weave-npc that starts later has to see that an address was another pod's.
		a.Comment = p.localComment()
	}
	return a
}

// memberships are all entries that the pod has to have.
func (m *Controller) memberships(p *pod) []membership {
	if len(p.owned) == 0 {
		return nil
	}
	out := m.members[:0]
	for _, a := range p.owned {
		out = m.ownMemberships(p, a, out)
	}
	join := func(s *selector) { out = s.entries(p, out) }
	p.ns.selectors.each(p, join)
	m.cluster.each(p, join)
	m.members = out
	if slices.Equal(out, p.members) {
		return p.members
	}
	return slices.Clone(out)
}

// ownMemberships adds those that do not come of a selector.
func (m *Controller) ownMemberships(p *pod, a netip.Addr, out []membership) []membership {
	t := m.tables[traffic.FamilyOf(a)]
	e := ipset.Addr(a)
	if !p.local {
		for _, d := range traffic.Directions {
			if m.scope().Excepts(a, d == traffic.Ingress, len(m.uplinks) > 0) {
				out = append(out, membership{m.gates.sets[t.Family][d], e})
			}
		}
		return out
	}
	t.Activate()
	m.localAddrs[a] = struct{}{}
	out = append(out, membership{t.Local, e})
	contested := m.contested(a)
	for _, d := range traffic.Directions {
		if contested[d] {
			continue // a local pod that nothing allows is closed
		}
		if !p.isolated[d] {
			out = append(out, membership{m.defaultAllow[t.Family][d], e})
		} else if pt := p.parts[d]; pt != nil {
			out = append(out, membership{pt.isolated[t.Family], e})
			for _, b := range pt.through {
				out = append(out, membership{b.pods[t.Family], e})
			}
		}
	}
	return out
}
