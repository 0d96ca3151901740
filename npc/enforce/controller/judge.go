package controller

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// evaluator answers what policies say of flows of local pods: those that are enforced, and those of the worlds. It
// remembers what it finds of a pod until something changes.
type evaluator struct {
	*state
	enforced sides
	groups   groups
	changes  uint64 // of what verdicts depend on
}

// sides are what policies say of pods.
type sides map[*index.Pod]*[len(npc.Directions)]verdict.Side

// hearing is a verdict with what was decided on each side.
type hearing struct {
	verdict.Verdict
	decisions [len(npc.Directions)]verdict.Decision
}

func newEvaluator(s *state) evaluator {
	return evaluator{state: s, enforced: sides{}, groups: newGroups()}
}

// forget has everything looked up anew.
func (j *evaluator) forget() {
	clear(j.enforced)
	j.changes++ // groups forget when they are asked: there may be many
}

// Evaluate returns what policies make of flows, in order. It appends to out.
func (l Lookup) Evaluate(flows []verdict.Flow, out []verdict.Verdict) []verdict.Verdict {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, f := range flows {
		out = append(out, l.c.evaluator.hear(f, nil).Verdict)
	}
	return out
}

// LocalAddrs returns the addresses of the local pods.
func (l Lookup) LocalAddrs() map[netip.Addr]struct{} {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.index.Addresses.Local()
}

// hear judges a flow as the chains do with a packet that opens a connection, or would in a world. What has a local
// pod's address that another one claims is judged by nobody here.
func (j *evaluator) hear(f verdict.Flow, w *group) (h hearing) {
	h.Allowed = true
	x := j.index.Addresses
	from, to := x.Owner(f.From), x.Owner(f.To)
	if f.To.IsMulticast() {
		return h
	}
	toItself := f.From == f.To || from != nil && from == to
	evaluate := func(own *index.Pod, a netip.Addr, d npc.Direction, q verdict.Question) {
		if own == nil || !own.Local() || !h.Allowed || j.policies.conflicting(a)[d] {
			return
		}
		h.Evaluated = true
		q.Service, q.Destination, q.Exempt = f.Service, to, q.Exempt || toItself
		decision := j.side(own, d, w).Evaluate(j.index, q)
		h.decisions[d] = decision
		if by := decision.By.Name(); !decision.Allowed || h.By == (verdict.By{}) {
			h.Allowed, h.Direction, h.By = decision.Allowed, d, by
		} else {
			h.Also = by
		}
	}
	evaluate(from, f.From, npc.Egress, verdict.Question{Peer: f.To, PeerPod: to, Exempt: to == nil && x.IsOfNode(f.To)})
	if from != nil || !x.IsOfNode(f.From) { // a node reaches its pods
		evaluate(to, f.To, npc.Ingress, verdict.Question{Peer: f.From, PeerPod: from})
	}
	return h
}

// side returns what policies say of a local pod in a direction, in a world if one is given and it changes that.
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

// find finds what policies say of a local pod in a direction, with the changes of a world if one is given.
func (j *evaluator) find(p *index.Pod, d npc.Direction, w *group) (s verdict.Side) {
	s.Isolated = j.isolation.Of(p)[d]
	if w != nil && !j.config.LegacyNetpol { // where namespaces isolate, not policies
		s.Isolated = false
	}
	for q, room := range j.isolation.Selecting(p) {
		if !q.Isolates[d] || w.taker(named{p.Namespace, q.Key()}) != "" {
			continue
		}
		if s.Isolated = s.Isolated || !j.config.LegacyNetpol; room {
			s.Rules = append(s.Rules, q.Evaluated(d)...)
		}
	}
	for _, q := range w.isolating(p, d) {
		s.Isolated = s.Isolated || !j.config.LegacyNetpol
		s.Rules = append(s.Rules, asStaged(q.Evaluated(d))...)
	}
	for _, tier := range policy.Tiers {
		s.Tiers[tier] = w.rules(j.tiers, p, tier, d)
	}
	return s
}
