package networkpolicy

import (
	"math"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// Config is what isolation depends on besides the objects.
type Config struct {
	// LegacyNetpol gives policies the meaning that they had in Kubernetes 1.6.
	LegacyNetpol bool
	Budget       quota.Limits
	Sharding     Sharding
}

// Isolation keeps the policies and the isolation of local pods.
type Isolation struct {
	legacy     bool
	index      *index.Index
	namespaces map[string]*namespace
	activation activation
	sharding   sharding
	// policies counts the policies in the cluster, and isolated the local pods that are isolated.
	policies int
	isolated [len(npc.Directions)]int
	allowed  [len(npc.Families)][len(npc.Directions)]*dataplane.Set
}

// New returns an Isolation without policies. roots are the chains, by direction and family, where the dispatch to the
// rules of isolated pods begins.
func New(c Config, x *index.Index, tables [len(npc.Families)]*dataplane.Table, base *rules.Base,
	roots [len(npc.Directions)][len(npc.Families)]*dataplane.Chain) *Isolation {
	s := &Isolation{legacy: c.LegacyNetpol, index: x, namespaces: map[string]*namespace{},
		activation: newActivation(x.Sets, c.Budget, c.Sharding.MaxRules),
		sharding:   newSharding(c.Sharding, tables, x.Sets, base, roots)}
	for _, d := range npc.Directions {
		for f, t := range tables {
			s.allowed[f][d] = t.Sets.AddFixed(naming.DefaultAllow(d), ipset.HashIP,
				"local pods that no policy isolates, "+d.String())
			s.allowed[f][d].Allow(d)
		}
	}
	return s
}

// SetBase replaces the rules that chains end with from now on.
func (s *Isolation) SetBase(b *rules.Base) { s.sharding.base = b }

// SetSynced records that all objects are known that there were at the start: it is known who is the oldest.
func (s *Isolation) SetSynced() {
	s.activation.synced = true
	s.activation.count.bound = math.MaxInt // pods may have come after the policies that select them
	s.ReconcileBudget()
}

// Counts are numbers for metrics, and for the fail-closed filter.
type Counts struct {
	// Policies is the number of policies in the cluster.
	Policies int
	// Isolated is the number of local pods that are isolated.
	Isolated [len(npc.Directions)]int
	// Invalid is the number of policies that are not enforced as specified, and Denied that of the policies among them
	// that exceed the limits.
	Invalid, Denied int
}

// Counts returns them.
func (s *Isolation) Counts() Counts {
	return Counts{Policies: s.policies, Isolated: s.isolated, Invalid: s.activation.reports.Len(),
		Denied: s.activation.budget.Denied()}
}

// Unreported returns the policies that are not enforced as specified and that were not returned before.
func (s *Isolation) Unreported() []enforce.InvalidPolicy { return s.activation.reports.Take() }

// Allowed returns the sets of a family of the local pods that nothing isolates, by direction.
func (s *Isolation) Allowed(f npc.Family) []*dataplane.Set { return s.allowed[f][:] }

// Of returns the directions that a pod is isolated in.
func (s *Isolation) Of(p *index.Pod) (is [len(npc.Directions)]bool) {
	if st := s.state(p); st != nil {
		is = st.isolated
	}
	return is
}

// state returns the isolation of a pod; nil if it is not a local one.
func (s *Isolation) state(p *index.Pod) *podState {
	if ns := s.namespaces[p.Namespace]; ns != nil {
		return ns.pods[p]
	}
	return nil
}

// namespace returns the state of a namespace, making it if need be.
func (s *Isolation) namespace(name string) *namespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{name: name, policies: map[string]*enforced{}, pods: map[*index.Pod]*podState{}}
		s.namespaces[name] = ns
	}
	return ns
}

// SetPolicy takes a policy as it now is.
func (s *Isolation) SetPolicy(p *Policy) {
	ns := s.namespace(p.Namespace)
	old := ns.policies[p.Name]
	if old != nil && old.same(p) {
		return
	}
	next := newEnforced(p, map[*index.Pod]struct{}{})
	if ns.policies[p.Name] = next; old == nil {
		s.policies++
	}
	s.replace(ns, old, next)
	if next.denied == nil { // else ReconcileBudget reports it
		s.activation.report(next)
	}
}

// DeletePolicy removes the policy of a name, if it is there and has the UID; an empty UID stands for any.
func (s *Isolation) DeletePolicy(namespace, name string, uid types.UID) {
	ns := s.namespaces[namespace]
	if ns == nil || ns.policies[name] == nil || uid != "" && ns.policies[name].UID != uid {
		return
	}
	old := ns.policies[name]
	delete(ns.policies, name)
	s.policies--
	s.replace(ns, old, nil)
	s.activation.reports.Remove(old.Key())
}

// replace puts a policy in the place of another; either may be nil. What both use stays.
func (s *Isolation) replace(ns *namespace, old, next *enforced) {
	if old != nil {
		s.activation.budget.Close(ns.name, old.Name)
	}
	if next != nil {
		for q := range ns.pods {
			if q.SelectedBy(next.Target) {
				next.selected[q] = struct{}{}
			}
		}
		ns.count(next, 1)
		s.activation.admit(ns, next)
	}
	if old != nil {
		ns.count(old, -1)
		s.activation.deactivate(ns, old)
	}
	s.Reisolate(ns.name)
}

// Reselect finds out which policies select a pod that became local or is local no more, or has other labels.
func (s *Isolation) Reselect(q *index.Pod) {
	ns := s.namespace(q.Namespace)
	st := ns.pods[q]
	if st == nil {
		st = &podState{Pod: q}
		ns.pods[q] = st
	}
	for _, p := range ns.policies {
		s.activation.reselect(ns, p, q)
	}
	s.activation.changed[ns] = struct{}{}
	s.isolate(ns, st)
	if !q.Local() {
		delete(ns.pods, q)
	}
}

// Reisolate finds out again which local pods of a namespace are isolated.
func (s *Isolation) Reisolate(namespace string) {
	ns := s.namespaces[namespace]
	if ns == nil {
		return
	}
	for _, st := range ns.pods {
		s.isolate(ns, st)
	}
}

// isolate finds the directions that a pod is isolated in.
func (s *Isolation) isolate(ns *namespace, st *podState) {
	var is [len(npc.Directions)]bool
	switch {
	case !st.Local():
	case s.legacy:
		is[npc.Ingress] = st.DefaultDeny()
	default:
		is = ns.isolated(st)
	}
	if is == st.isolated {
		return
	}
	for d := range npc.Directions {
		switch {
		case is[d] && !st.isolated[d]:
			s.isolated[d]++
		case st.isolated[d] && !is[d]:
			s.isolated[d]--
		}
	}
	st.isolated = is
	s.sharding.move(st)
}

// Refit has the rules of policies written again that name sets of another kind now: a list of namespaces where a flat
// set was, or the reverse.
func (s *Isolation) Refit(policies map[*dataplane.Owner]struct{}) {
	for o := range policies {
		ns := s.namespaces[o.Namespace]
		if ns == nil {
			continue
		}
		if p := ns.policies[o.Name]; p != nil && p.owner == o && p.active && s.activation.misfits(p) {
			s.activation.renew(ns, p, p.denied)
		}
	}
}

// ReconcileBudget enforces the policies that fit into the limits, the oldest first. It is to be called after changes of
// policies, before what they need is carried out: a change of pods must not change the rules of other policies. It
// reports whether it may have changed something.
func (s *Isolation) ReconcileBudget() bool {
	if !s.activation.synced {
		return false // who is the oldest is not known
	}
	s.activation.recount(s.namespaces)
	grants := s.activation.budget.Reconcile()
	for _, v := range grants {
		ns := s.namespaces[v.Namespace]
		p := ns.policies[v.Name]
		if v.Changed {
			p = s.activation.renew(ns, p, v.Denied)
		}
		p.denied = v.Denied
		s.activation.report(p)
	}
	return len(grants) > 0
}

// BudgetStale reports whether ReconcileBudget may change which policies are enforced.
func (s *Isolation) BudgetStale() bool { return s.activation.synced && s.activation.budget.Stale() }
