package networkpolicy

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
)

// Assign divides the pods and rules of the namespaces that changed among shards, and has the dispatch trees jump there.
// It returns the pods that belong to other sets now. Prune must be called once they have been placed. It does nothing
// until all objects are known that there were at the start: each of them would have much divided again.
func (s *Isolation) Assign() []*index.Pod {
	if !s.activation.synced {
		return nil
	}
	for ns := range s.activation.changed {
		for _, d := range npc.Directions {
			if rs := ns.rules[d]; rs != nil {
				s.sharding.assign(ns, d, rs)
			}
		}
		if len(ns.policies)+len(ns.pods) == 0 {
			delete(s.namespaces, ns.name)
		}
	}
	clear(s.activation.changed)
	s.sharding.rebuild()
	return s.sharding.take()
}

// Write has the rules written that changed. It is for the next plan: many changes at once are written once.
func (s *Isolation) Write() { s.sharding.write() }

// Prune drops the chains and sets that no pod is led to any more, and the sets of rules that the kernel no longer has. It
// reports whether there were such rules.
func (s *Isolation) Prune() bool {
	s.sharding.prune()
	return s.sharding.release()
}

// Memberships adds the memberships that isolation gives a local pod to out, except in directions that a contest of an
// address closes. baseline are the directions that Baseline policies evaluate for the pod unless NetworkPolicies do.
func (s *Isolation) Memberships(p *index.Pod, baseline [len(npc.Directions)]bool,
	contested map[netip.Addr]index.Contest, out []index.Membership) []index.Membership {
	st := s.state(p)
	if st == nil {
		return out
	}
	for _, a := range p.Owned() {
		f, e := npc.FamilyOf(a), ipset.Addr(a)
		for _, d := range npc.Directions {
			switch sh := st.shards[d]; {
			case contested[a].Denied[d]: // a local pod that nothing allows is closed
			case baseline[d] && (!st.isolated[d] || p.Unlabelled): // lists evaluate it, or nothing allows it
			case !st.isolated[d]:
				out = append(out, index.Membership{Set: s.allowed[f][d], Entry: e})
			case sh != nil:
				out = append(out, index.Membership{Set: sh.isolated[f], Entry: e})
				for _, n := range sh.path {
					out = append(out, index.Membership{Set: n.pods[f], Entry: e})
				}
			}
		}
	}
	return out
}
