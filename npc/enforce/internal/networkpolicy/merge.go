package networkpolicy

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// entry is a rule of a shard in the kernel: one of a policy, or of several that ask for the same. Where many differ in
// their peers alone, they are one rule that asks for all of these, because a packet is matched with one rule after the
// other.
type entry struct {
	// peers is the set of pods that the rule asks for; nil if it asks for sets of its policies alone. united is set if
	// these are the peers of several rules.
	peers  *rules.Set
	united bool
	// owners are the policies -> the number of the rule in the policy, and sets what was provisioned for each.
	owners map[*dataplane.Owner]int
	sets   index.Provisioned
}

// entries are the rules of a family, by their matches.
type entries map[string]*entry

// entry returns the rule of a match, making it if need be.
func (es entries) entry(match string, peers *rules.Set, united bool) *entry {
	e := es[match]
	if e == nil {
		e = &entry{peers: peers, united: united, owners: map[*dataplane.Owner]int{}}
		es[match] = e
	}
	return e
}

// add makes a rule of a policy one of those that the entry is for.
func (e *entry) add(r policyRule) {
	if !e.has(r.owner) {
		e.owners[r.owner] = r.Number
	}
}

// has reports whether a policy has a rule that the entry is for.
func (e *entry) has(o *dataplane.Owner) bool {
	if e == nil {
		return false
	}
	_, ok := e.owners[o]
	return ok
}

// policyRule is a rule of a policy as it is rendered.
type policyRule struct {
	*enforced
	rules.RenderedRule
}

// entriesOf returns the rules of policies for each family. More than maxRules that differ in their peers alone become
// one.
func entriesOf(policies map[*enforced]struct{}, d npc.Direction, maxRules int) (out [len(npc.Families)]entries) {
	var groups [len(npc.Families)]map[string][]policyRule
	for f := range npc.Families {
		out[f], groups[f] = entries{}, map[string][]policyRule{}
	}
	for p := range policies {
		for _, r := range p.rules[d] {
			if r.Peer == nil {
				out[r.Family].entry(r.Match, nil, false).add(policyRule{p, r})
				continue
			}
			groups[r.Family][r.Rest] = append(groups[r.Family][r.Rest], policyRule{p, r})
		}
	}
	for f, of := range groups {
		for _, group := range of {
			if peers := peersOf(group); len(peers) > maxRules {
				all := rules.NewPeers(peers)
				e := out[f].entry(group[0].With(all, d), &all, true)
				for _, r := range group {
					e.add(r)
				}
				continue
			}
			for _, r := range group {
				out[f].entry(r.Match, r.Peer, false).add(r)
			}
		}
	}
	return out
}

// peersOf returns the sets of peers that rules ask for, each once, in order.
func peersOf(of []policyRule) []rules.Set {
	peers := make([]rules.Set, 0, len(of))
	for _, r := range of {
		peers = append(peers, *r.Peer)
	}
	return rules.Distinct(peers)
}

// write makes the shard's chains have the rules of its policies. It returns what else they have.
func (s *shard) write() (was [len(npc.Families)]entries) {
	s.stale = false
	was, s.entries = s.entries, entriesOf(s.policies, s.direction, s.maxRules)
	for f, of := range s.entries {
		for match, e := range of {
			old := was[f][match]
			if old != nil {
				e.sets = old.sets
			}
			var users []*dataplane.Owner
			for o, number := range e.owners {
				if !old.has(o) {
					users = append(users, o)
					s.chains[f].Own(o, match, number)
				}
			}
			if e.peers != nil && len(users) > 0 {
				e.sets = s.sets.Provision([]rules.Set{*e.peers}, users...)
			}
		}
	}
	return was
}

// retired is a united rule that the kernel may have and that no policy has any more. Its peers are kept up to date until
// the chain is written, because until then it is the only rule for those that its policies still allow.
type retired struct {
	chain *dataplane.Chain
	pods  *dataplane.Set
	sets  index.Provisioned
	users []*dataplane.Owner
}

// asked reports whether the kernel may still match packets with the rule.
func (r retired) asked() bool {
	if r.chain.Reconciled() {
		return false
	}
	for _, st := range r.pods.States() {
		if st.Exists {
			return true
		}
	}
	return false
}

// erase has the shard's chains no longer have rules that its policies do not. It returns the united ones that the kernel
// has.
func (s *shard) erase(was [len(npc.Families)]entries) (out []retired) {
	for f, of := range was {
		for match, e := range of {
			now := s.entries[f][match]
			stays := now == nil && e.united && s.reconciled[f]
			var users []*dataplane.Owner
			for o := range e.owners {
				if !now.has(o) {
					users = append(users, o)
					s.chains[f].Disown(o, match)
				}
			}
			switch {
			case stays:
				out = append(out, retired{s.chains[f], s.isolated[f], e.sets, users})
			case len(users) > 0:
				s.sets.Deprovision(e.sets, users...)
			}
		}
	}
	return out
}
