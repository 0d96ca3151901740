package controller

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// evaluator evaluates flows of local pods by the enforced policies and by the groups of staged policies. It caches what
// it finds of a pod until something changes.
type evaluator struct {
	*state
	enforced sides
	groups   groups
	changes  uint64 // of what verdicts depend on
	known    addresses
}

// addresses identifies those of Nodes and of domain names.
type addresses struct {
	index *index.Index
	names *domainnames.Names
}

// IsNode implements verdict.Addresses.
func (x *addresses) IsNode(a netip.Addr, s policy.Selector) bool { return x.index.IsNode(a, s) }

// IsNamed implements verdict.Addresses.
func (x *addresses) IsNamed(a netip.Addr, names []string) bool { return x.names.IsNamed(a, names) }

// sides are what policies say of pods.
type sides map[*index.Pod]*[len(npc.Directions)]verdict.Side

// hearing is a verdict, at first without the names of rules, with what was decided on each side.
type hearing struct {
	verdict.Verdict
	decisions [len(npc.Directions)]verdict.Decision
	by, also  *verdict.NamedRule
	// costly is the namespace of the pod whose rules took more comparisons than were left. The verdict is not known then.
	costly string
}

func newEvaluator(s *state) evaluator {
	return evaluator{state: s, enforced: sides{}, groups: newGroups(), known: addresses{s.index, s.names}}
}

// forget drops the cache.
func (j *evaluator) forget() {
	clear(j.enforced)
	j.changes++ // groups forget when they are asked: there may be many
}

// Evaluate returns what policies make of a flow. If that takes more than most comparisons, the verdict is not known,
// and costly is the namespace whose rules take them.
func (l Lookup) Evaluate(most int, f verdict.Flow) (v verdict.Verdict, costly string) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	h := l.c.evaluator.hear(f, nil, most)
	return h.named(), h.costly
}

// EvaluateWithin is like Evaluate, but returns no names of rules: finding one can take long once after each change.
func (l Lookup) EvaluateWithin(most int, f verdict.Flow) (v verdict.Verdict, costly string) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	h := l.c.evaluator.hear(f, nil, most)
	return h.Verdict, h.costly
}

// DeniedBy returns the rule of a cluster network policy that denies a flow in a direction, as sentences name it. It is
// empty if none does.
func (l Lookup) DeniedBy(f verdict.Flow, d npc.Direction) string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	j, x := &l.c.evaluator, l.c.state.index.Addresses
	own, q := j.question(f, x.Owner(f.From), x.Owner(f.To), d)
	if own == nil {
		return ""
	}
	decision, _ := q.Evaluate(&j.known, j.side(own, d, nil), verdict.NoBound)
	if by := decision.By; !decision.Allowed && by != nil {
		return policy.DescribeRule(by.Tier, by.Policy, by.Number, j.tiers.RuleName(by.Policy, d, by.Number))
	}
	return ""
}

// LocalAddrs returns the addresses of the local pods.
func (l Lookup) LocalAddrs() map[netip.Addr]struct{} {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.index.Addresses.Local()
}

// hear evaluates a flow as the chains evaluate a packet that opens a connection, or as they would with a group of
// staged policies, with most comparisons. It does not evaluate an address of a local pod that another pod claims.
func (j *evaluator) hear(f verdict.Flow, w *group, most int) (h hearing) {
	h.Allowed = true
	from, to := j.index.Addresses.Owner(f.From), j.index.Addresses.Owner(f.To)
	evaluate := func(a netip.Addr, d npc.Direction) {
		own, q := j.question(f, from, to, d)
		if own == nil || !h.Allowed || h.costly != "" || j.policies.contest(a).Denied[d] {
			return
		}
		h.Evaluated = true
		var decision verdict.Decision
		if decision, most = q.Evaluate(&j.known, j.side(own, d, w), most); most < 0 {
			h.costly = own.Namespace
			return
		}
		h.decisions[d] = decision
		if by := decision.By; !decision.Allowed || h.by == nil {
			h.Allowed, h.Direction, h.by = decision.Allowed, d, by
		} else {
			h.also = by
		}
	}
	evaluate(f.From, npc.Egress)
	evaluate(f.To, npc.Ingress)
	return h
}

// named returns the verdict with the names of the rules that decide.
func (h hearing) named() verdict.Verdict {
	h.By, h.Also = h.by.Name(), h.also.Name()
	return h.Verdict
}

// question returns the local pod whose policies decide about a flow in a direction, nil if none do, and the question to
// them. The pods from and to are those of the flow's ends.
func (j *evaluator) question(
	f verdict.Flow, from, to *index.Pod, d npc.Direction,
) (own *index.Pod, q verdict.Question) {
	q = verdict.Question{Destination: to, Service: f.Service, Exempt: f.From == f.To || from != nil && from == to}
	switch {
	case f.To.IsMulticast():
		return nil, q
	case d == npc.Egress:
		own, q.Peer, q.PeerPod = from, f.To, to
		q.Exempt = q.Exempt || to == nil && j.index.Addresses.IsOfNode(f.To)
	case from == nil && j.index.Addresses.IsOfNode(f.From): // a node reaches its pods
		return nil, q
	default:
		own, q.Peer, q.PeerPod = to, f.From, from
	}
	if own == nil || !own.Local() {
		return nil, q
	}
	return own, q
}

// side returns what policies decide for a local pod in a direction, with the group's changes if a group is given and
// changes that.
func (j *evaluator) side(p *index.Pod, d npc.Direction, w *group) *verdict.Side {
	known := j.enforced
	if w != nil && w.concerns(p) {
		known = w.sidesAt(j.changes)
	} else {
		w = nil
	}
	of := known[p]
	if of == nil {
		of = &[len(npc.Directions)]verdict.Side{}
		for i := range of {
			of[i] = j.find(p, npc.Direction(i), w)
		}
		known[p] = of
	}
	return &of[d]
}

// find computes what policies decide for a local pod in a direction, with the changes of a group if one is given.
func (j *evaluator) find(p *index.Pod, d npc.Direction, w *group) (s verdict.Side) {
	isolated := j.isolation.Of(p)[d]
	if p.Unlabelled && j.tiers.Of(p).Denied[d] {
		return verdict.Side{Isolated: policy.Always}
	}
	if w != nil && !j.config.LegacyNetpol { // where namespaces isolate, not policies
		isolated = false
	}
	for q, room := range j.isolation.Selecting(p) {
		if !q.Isolates[d] || w.taker(named{p.Namespace, q.Key()}) != "" {
			continue
		}
		if isolated = isolated || !j.config.LegacyNetpol; room {
			s.Allowing = append(s.Allowing, q.Evaluated(d)...)
		}
	}
	for _, q := range w.isolating(p, d) {
		isolated = isolated || !j.config.LegacyNetpol
		s.Allowing = append(s.Allowing, asStaged(q.Evaluated(d))...)
	}
	for _, tier := range policy.Tiers {
		s.Tiers[tier] = w.rules(j.tiers, p, tier, d)
	}
	s.Isolated = policy.FitOf(isolated)
	return s
}
