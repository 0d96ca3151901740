package clusterpolicy

import (
	"iter"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// entry is a rule of a list in the kernel: a rule of a policy with one peer and some ports, or several that do the same
// with the same ports and with no other action between them. They ask for their peers by one list of sets, which takes
// a packet less time than one rule after the other.
type entry struct {
	// subject is the id of the policy whose subject is asked for; empty where all pods of the list are subjects.
	subject string
	action  policy.Action
	match   string
	of      []policyRule
}

// policyRule is a rule of a policy as it is rendered.
type policyRule struct {
	*enforced
	rules.RenderedRule
}

// entriesOf returns the rules of policies of a tier for each family, in order, and the sets of those that are several
// in one. In a shared list rules of different policies are for different subjects.
func entriesOf(policies []*enforced, t policy.Tier, d npc.Direction,
	shared bool) (out [len(npc.Families)][]entry, unions []rules.Set) {
	for run := range runs(policies, d, shared) {
		subject, action := "", run[0].action(d)
		if shared {
			subject = run[0].id
		}
		put := func(f npc.Family, match string, of []policyRule) {
			out[f] = append(out[f], entry{subject, action, match, of})
		}
		var groups []*group
		for _, r := range run {
			if r.Peer == nil {
				put(r.Family, r.Match, []policyRule{r})
				continue
			}
			i := slices.IndexFunc(groups, func(g *group) bool { return g.rest == r.Rest })
			if i < 0 {
				i, groups = len(groups), append(groups, &group{rest: r.Rest})
			}
			groups[i].rules[r.Family] = append(groups[i].rules[r.Family], r)
		}
		for _, g := range groups {
			var union rules.Set
			if slices.ContainsFunc(g.rules[:], ofSeveral) {
				union = g.union(t)
				unions = append(unions, union)
			}
			for f, of := range g.rules {
				switch {
				case ofSeveral(of):
					put(npc.Family(f), of[0].With(union, d), of)
				case len(of) > 0:
					put(npc.Family(f), of[0].Match, of)
				}
			}
		}
	}
	return out, unions
}

// runs yields the rules of policies in order, as many at a time as do the same for the same subject.
func runs(policies []*enforced, d npc.Direction, shared bool) iter.Seq[[]policyRule] {
	return func(yield func([]policyRule) bool) {
		var run []policyRule
		for _, p := range policies {
			for _, r := range p.rendered.Rules[d] {
				next := policyRule{p, r}
				if len(run) > 0 && (run[0].action(d) != next.action(d) || shared && run[0].enforced != p) {
					if !yield(run) {
						return
					}
					run = nil
				}
				run = append(run, next)
			}
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

func (r policyRule) action(d npc.Direction) policy.Action {
	return r.Policy.Rules[d][r.Number-1].Action
}

// about describes the rules of policies that an entry is for.
func (e entry) about(d npc.Direction) string {
	var texts []string
	for _, r := range e.of {
		if text := r.about(d, r.Number); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return naming.Few(texts)
}

// owners returns the policies of an entry with the number of a rule of each.
func (e entry) owners() map[*dataplane.Owner]int {
	out := map[*dataplane.Owner]int{}
	for _, r := range e.of {
		if _, known := out[r.owner]; !known {
			out[r.owner] = r.Number
		}
	}
	return out
}

// group is rules of one run that ask for the same protocol and ports, each for a set of peers.
type group struct {
	rest  string
	rules [len(npc.Families)][]policyRule
}

// ofSeveral reports whether rules of a group ask for more than one set of peers.
func ofSeveral(of []policyRule) bool {
	return slices.ContainsFunc(of, func(r policyRule) bool { return r.Peer.ID != of[0].Peer.ID })
}

// union returns the list of the sets of peers of both families.
func (g *group) union(t policy.Tier) rules.Set {
	spec := rules.UnionSpec{Of: t.String() + " policies"}
	for _, r := range slices.Concat(g.rules[:]...) {
		spec.Members = append(spec.Members, *r.Peer)
	}
	spec.Members = rules.Distinct(spec.Members)
	return rules.NewSet(spec)
}
