package index

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/labelset"
)

// Pod is the state of one pod.
type Pod struct {
	npc.Pod // without its labels
	ns      *namespace
	labels  labelset.Set
	local   bool
	owned   []netip.Addr
	// members are the entries that the pod has in sets.
	members []Membership
}

// Membership is an entry that a pod has in a set.
type Membership struct {
	Set   *dataplane.Set
	Entry ipset.Entry
}

// Contest is what policies may do to other local pods that claim an address. Its owner is ambiguous then.
type Contest struct {
	// Denied reports for each direction whether a policy may deny one of them something: nothing is allowed.
	Denied [len(npc.Directions)]bool
	// Node reports whether policies may deny one of them their node.
	Node bool
}

// namespace is the state of one namespace.
type namespace struct {
	npc.Namespace
	// known is set once the namespace's own object has arrived; its pods may arrive before.
	known bool
	pods  map[string]*Pod // name -> pod
	// local holds the pods of this node, also those without an address.
	local map[*Pod]struct{}
}

// matches reports whether a selector selects the namespace. It never selects one whose object has not arrived.
func (ns *namespace) matches(s labels.Selector) bool {
	return ns.known && s.Matches(labels.Set(ns.Labels))
}

// String returns the pod as comments name it, namespace/name.
func (p *Pod) String() string { return npc.ObjectKey(p.Namespace, p.Name) }

// Comment returns the comment of the pod's entries.
func (p *Pod) Comment() string { return iptables.Comment(p.String()) }

// ID distinguishes the pod from others that had its name before.
func (p *Pod) ID() string { return naming.Hash("pod", string(p.UID))[:10] }

// LocalComment returns the comment of the pod's entries in the set of the local pods. It distinguishes pods of one
// name.
func (p *Pod) LocalComment() string { return iptables.Comment(p.ID() + " " + p.String()) }

// attrs returns the attributes of the pod's entries, and those of its entries in the set of the local pods if it is
// one.
func (p *Pod) attrs() (attr, local ipset.Attr) {
	if p.local {
		local.Comment = p.LocalComment()
	}
	attr.Comment = p.Comment()
	return attr, local
}

// Local reports whether policies apply to the pod's packets: it is on this node, not on the host network and not
// finished. It may still be without an address.
func (p *Pod) Local() bool { return p.local }

// Owned returns the addresses that the pod alone is taken for. The caller must not change the slice.
func (p *Pod) Owned() []netip.Addr { return p.owned }

// Facts returns the pod with its labels, which take memory of their own.
func (p *Pod) Facts() npc.Pod {
	f := p.Pod
	f.Labels = p.labels.All()
	return f
}

// SelectedBy reports whether a selector matches the pod's labels, as far as they are known.
func (p *Pod) SelectedBy(s policy.Selector) bool {
	return s.SelectsAll() || !p.Unlabelled && s.Selects(&p.labels)
}

// CostOf returns about how many comparisons of 10 ns SelectedBy takes.
func (p *Pod) CostOf(s policy.Selector) int { return s.Cost() * (1 + len(p.labels)/16) }

// LabelledAs reports whether the pod has the labels of its facts.
func (p *Pod) LabelledAs(f *npc.Pod) bool {
	return p.Unlabelled == f.Unlabelled && p.labels.Equal(f.Labels)
}

// InNamespaces reports whether a selector matches the labels of the pod's namespace, whose object has arrived.
func (p *Pod) InNamespaces(s policy.Selector) bool { return p.ns.known && s.Matches(p.ns.Labels) }

// DefaultDeny reports whether the pod's namespace asks for isolation as Kubernetes 1.6 did.
func (p *Pod) DefaultDeny() bool { return p.ns.DefaultDeny }

// ref returns what identifies the pod in reports.
func (p *Pod) ref() ipowner.Ref { return ipowner.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID} }

// same reports whether a pod equals its facts.
func (p *Pod) same(f npc.Pod) bool {
	return p.UID == f.UID && p.Node == f.Node && p.HostNetwork == f.HostNetwork && p.Finished == f.Finished &&
		p.Deleting == f.Deleting &&
		p.StaleAddrs == f.StaleAddrs && sameWorkload(p.Workload, f.Workload) &&
		p.Started.Equal(f.Started) && p.Created.Equal(f.Created) && slices.Equal(p.Addrs, f.Addrs) &&
		slices.Equal(p.HostAddrs, f.HostAddrs) && slices.Equal(p.Ports, f.Ports) && p.LabelledAs(&f)
}

func sameWorkload(a, b *npc.Workload) bool { return a == b || a != nil && b != nil && *a == *b }

// isException reports whether pods are in a set as exceptions: it is a set of networks.
func isException(s *dataplane.Set) bool { return s.Type == ipset.HashNet }

// containing returns what reports whether a membership is among some. There may be thousands.
func containing(all []Membership) func(Membership) bool {
	if len(all) <= 32 {
		return func(m Membership) bool { return slices.Contains(all, m) }
	}
	set := make(map[Membership]struct{}, len(all))
	for _, m := range all {
		set[m] = struct{}{}
	}
	return func(m Membership) bool {
		_, ok := set[m]
		return ok
	}
}

// leave takes the pod out of sets. Those that were dropped have no entries any more.
func (p *Pod) leave(sets map[*dataplane.Set]struct{}, dropped bool) {
	p.members = slices.DeleteFunc(p.members, func(m Membership) bool {
		_, leaves := sets[m.Set]
		if leaves && !dropped {
			m.Set.Remove(m.Entry)
		}
		return leaves
	})
}

// withdraw takes an address that the pod does not own any more out of all sets. It reports whether one of them is asked
// who a peer is.
func (p *Pod) withdraw(a netip.Addr) (asked bool) {
	p.members = slices.DeleteFunc(p.members, func(m Membership) bool {
		if m.Entry.Prefix.Addr() != a {
			return false
		}
		asked = asked || !isException(m.Set)
		m.Set.Remove(m.Entry)
		return true
	})
	return asked
}
