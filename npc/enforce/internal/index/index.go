// Package index keeps the facts about pods, namespaces and Nodes: which pods are local, which pod owns which address,
// and which selectors match which pods and Nodes. It fills the sets of the selectors in use.
//
//	change := x.SetPod(pod)                          // what became of it, as a value
//	rendered := rules.Render(policy, "shop", "shop/web", x.Sets.FitsList)
//	x.Sets.Provision(rendered.Sets, owner)           // now they are there and filled
//	x.Place(p, others)                               // others are the sets that the pod is in besides
//
// It knows nothing about policies, isolation and the fail-closed filter: the caller applies a change to them.
package index

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// Config is what the index depends on besides the objects.
type Config struct {
	// NodeName is the node whose pods are local.
	NodeName string
	// Booted, if not nil, returns when this node was started, by its clock.
	Booted func() time.Time
	// MaxListSize is the most namespaces that a list has.
	MaxListSize int
	// Learned returns what returns the addresses of a family that were learned for a list of domain names, also those
	// that do not count any more if past is set.
	Learned func(names []string, f npc.Family, past bool) func() []ipset.Element
}

// maxListed is how many namespaces a list of their sets may have. A packet that no member holds asks them all, one
// after the other.
const maxListed = 8

// Index knows the pods and the namespaces.
type Index struct {
	Addresses *Addresses
	Sets      *Sets

	config     Config
	tables     [len(npc.Families)]*dataplane.Table
	interner   interner
	namespaces map[string]*namespace
	change     Change
	localPods  int
}

// New returns an index without objects, whose sets are in the given tables.
func New(c Config, tables [len(npc.Families)]*dataplane.Table) *Index {
	c.MaxListSize = min(maxListed, c.MaxListSize)
	x := &Index{config: c, tables: tables, namespaces: map[string]*namespace{}, Addresses: newAddresses(c.NodeName)}
	x.Sets = newSets(c, tables, x.namespaces, x.Addresses)
	return x
}

// begin returns an empty change of a pod.
func (x *Index) begin(p *Pod) *Change {
	x.Sets.purge()
	forget(x.Sets)
	x.change = Change{Pod: p, Transfers: x.change.Transfers[:0], Others: x.change.Others[:0]}
	return &x.change
}

// Pod returns the pod of a name; nil if there is none.
func (x *Index) Pod(namespace, name string) *Pod {
	if ns := x.namespaces[namespace]; ns != nil {
		return ns.pods[name]
	}
	return nil
}

// Pods yields all pods.
func (x *Index) Pods() func(func(*Pod) bool) {
	return func(yield func(*Pod) bool) {
		for _, ns := range x.namespaces {
			for _, p := range ns.pods {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// PodsOf yields the pods of a namespace.
func (x *Index) PodsOf(name string) func(func(*Pod) bool) {
	return func(yield func(*Pod) bool) {
		if ns := x.namespaces[name]; ns != nil {
			maps.Values(ns.pods)(yield)
		}
	}
}

// LocalPods yields all local pods.
func (x *Index) LocalPods() func(func(*Pod) bool) {
	return func(yield func(*Pod) bool) {
		for _, ns := range x.namespaces {
			for p := range ns.local {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// CountLocal returns the number of local pods.
func (x *Index) CountLocal() int { return x.localPods }

// SetPod takes a pod as it now is. A pod of its name with another UID has to be deleted before.
func (x *Index) SetPod(f npc.Pod) Change {
	f.StaleAddrs = f.StaleAddrs || x.beforeBoot(&f)
	ns := x.namespace(f.Namespace)
	p, known := ns.pods[f.Name]
	if !known {
		p = &Pod{ns: ns}
		ns.pods[f.Name] = p
		x.Sets.pods++
	} else if p.same(f) {
		return *x.begin(nil)
	}
	before, relabelled := p.Pod, !p.LabelledAs(&f)
	c := x.begin(p)
	c.WasLocal = p.local
	if relabelled {
		p.labels = x.interner.Of(f.Labels)
	}
	f.Labels, f.Namespace, f.Node = nil, ns.Name, x.interner.Share(f.Node)
	f.HostAddrs, f.Ports, f.Workload = x.interner.shareHosts(f.HostAddrs), x.interner.sharePorts(f.Ports),
		x.interner.shareWorkload(f.Workload)
	p.Pod = f
	x.setLocal(p, f.Node == x.config.NodeName && !f.HostNetwork && !f.Finished)
	c.Reselected = p.local != c.WasLocal || p.local && relabelled
	c.Edited = known && (relabelled || !slices.Equal(before.Ports, f.Ports))
	if !slices.Equal(before.HostAddrs, f.HostAddrs) {
		x.Addresses.countHosts(c, before.HostAddrs, -1)
		x.Addresses.countHosts(c, f.HostAddrs, +1)
	}
	if !before.ClaimsAlike(&f) {
		x.Addresses.claim(c, p, before.Claims(), f.Claims())
	}
	return *c
}

// DeletePod removes a pod.
func (x *Index) DeletePod(p *Pod) Change {
	c := x.begin(p)
	c.WasLocal, c.Reselected = p.local, p.local
	x.Addresses.countHosts(c, p.HostAddrs, -1)
	delete(p.ns.pods, p.Name)
	x.Sets.pods--
	x.setLocal(p, false)
	x.Addresses.claim(c, p, p.Claims(), nil)
	x.releaseNamespace(p.ns)
	return *c
}

func (x *Index) setLocal(p *Pod, local bool) {
	switch {
	case local && !p.local:
		p.ns.local[p] = struct{}{}
		x.localPods++
	case p.local && !local:
		delete(p.ns.local, p)
		x.localPods--
	}
	p.local = local
}

// beforeBoot reports whether the status of a pod of this node was reported before the node was started.
func (x *Index) beforeBoot(p *npc.Pod) bool {
	return p.Node == x.config.NodeName && x.config.Booted != nil && p.ReportedBefore(x.config.Booted())
}

// namespace returns the state of a namespace, making it if need be.
func (x *Index) namespace(name string) *namespace {
	ns := x.namespaces[name]
	if ns == nil {
		ns = &namespace{Namespace: npc.Namespace{Name: name}, pods: map[string]*Pod{}, local: map[*Pod]struct{}{}}
		x.namespaces[name] = ns
	}
	return ns
}

// releaseNamespace forgets an empty namespace.
func (x *Index) releaseNamespace(ns *namespace) {
	if !ns.known && len(ns.pods) == 0 {
		delete(x.namespaces, ns.Name)
	}
}

// NamespaceChange is what became of a namespace.
type NamespaceChange struct {
	// DefaultDeny is set if the namespace asks for isolation as Kubernetes 1.6 did, and did not before, or the reverse.
	DefaultDeny bool
	// Refit are the policies that name a selector whose namespaces fit into a list only now, or no longer.
	Refit map[*dataplane.Owner]struct{}
}

// SetNamespace takes a namespace as it now is.
func (x *Index) SetNamespace(n npc.Namespace) (c NamespaceChange) {
	ns := x.namespace(n.Name)
	relabelled := !ns.known || !labels.Equals(ns.Labels, n.Labels)
	c.DefaultDeny = ns.DefaultDeny != n.DefaultDeny
	ns.Namespace, ns.known = n, true
	if relabelled {
		c.Refit = x.Sets.relabel(ns)
	}
	return c
}

// DeleteNamespace removes a namespace, if it is there and has the UID; an empty UID stands for any. Its pods are
// removed by themselves.
func (x *Index) DeleteNamespace(name string, uid types.UID) (c NamespaceChange) {
	ns := x.namespaces[name]
	if ns == nil || !ns.known || uid != "" && ns.UID != uid {
		return c
	}
	c.DefaultDeny = ns.DefaultDeny
	ns.Namespace, ns.known = npc.Namespace{Name: name}, false
	c.Refit = x.Sets.relabel(ns)
	x.releaseNamespace(ns)
	return c
}

// SetNodeAddrs replaces the addresses that this node has itself, which no pod can own.
func (x *Index) SetNodeAddrs(addrs []netip.Addr) Change {
	c := x.begin(nil)
	x.Addresses.setOfNode(c, addrs)
	return *c
}

// Place makes memberships the pod's, and no others: the given ones, those of the selectors that match it, and that of a
// local pod. It returns all of them. The caller may use the slice again.
func (x *Index) Place(p *Pod, members []Membership) []Membership {
	x.Sets.purge()
	if p.local {
		for _, a := range p.owned {
			t := x.tables[npc.FamilyOf(a)]
			t.Activate()
			x.Addresses.local[a] = struct{}{}
			members = append(members, Membership{t.Local, ipset.Addr(a)})
		}
	}
	members = x.Sets.memberships(p, members)
	had := p.members
	attr, local := p.attrs()
	was := containing(had)
	if !slices.Equal(had, members) {
		p.members = slices.Clone(members)
		is := containing(members)
		for _, old := range had {
			if !is(old) {
				old.Set.Remove(old.Entry)
			}
		}
	}
	for _, m := range p.members {
		switch {
		case isException(m.Set):
			// Such a set holds entries that are no pods', and may have taken this for one of them.
			m.Set.Add(m.Entry, ipset.Attr{Comment: attr.Comment, NoMatch: true})
		case was(m):
		case m.Set == x.tables[m.Set.Family()].Local:
			// A weave-npc that starts later has to see that an address was another pod's.
			m.Set.Add(m.Entry, local)
		default:
			m.Set.Add(m.Entry, attr)
		}
	}
	return members
}

// Conflicts returns the claims of local pods to addresses that something contradicts, in order.
func (x *Index) Conflicts() []ipowner.Conflict {
	var out []ipowner.Conflict
	for p := range x.LocalPods() {
		for _, a := range p.Claims() {
			out = x.Addresses.conflicts(p, a, x.hostedAt, out)
		}
	}
	sortConflicts(out)
	return out
}

// hostedAt returns the first pod, by name, that names an address as its node's.
func (x *Index) hostedAt(a netip.Addr) (first *Pod) {
	for p := range x.Pods() {
		if slices.Contains(p.HostAddrs, a) && (first == nil || p.String() < first.String()) {
			first = p
		}
	}
	return first
}

// NameOf returns the pod that owns an address, as namespace/name; "node" for an address of a node; empty for any other.
func (x *Index) NameOf(a netip.Addr) string {
	if p := x.Addresses.Owner(a); p != nil {
		return p.String()
	}
	if x.Addresses.isNode(a) {
		return "node"
	}
	return ""
}
