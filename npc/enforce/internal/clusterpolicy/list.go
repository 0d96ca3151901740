package clusterpolicy

import (
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// sharedID is the id of the list that several combinations share.
const sharedID = "shared"

// list is a chain with the rules of policies in order, and the local pods that are led there. It is there for one
// combination of policies, or shared by several: then each rule also matches the subject of its policy.
type list struct {
	*lists
	id, about string
	policies  []*enforced
	chains    [len(npc.Families)]*dataplane.Chain
	pods      [len(npc.Families)]*dataplane.Set
	// subjects are the local pods that a policy of a shared list selects: policy -> sets.
	subjects map[string]*[len(npc.Families)]*dataplane.Set
	// peers are the lists of the peers of rules that are one in the kernel, and user stands for this list in them.
	peers index.Provisioned
	user  *dataplane.Owner
}

func (ls *lists) newList(id string, base *rules.Base) *list {
	l := &list{lists: ls, id: id, about: "local pods with the same " + ls.tier.String() + " policies",
		subjects: map[string]*[len(npc.Families)]*dataplane.Set{}}
	if id == sharedID {
		l.about = "local pods with other " + ls.tier.String() + " policies than the other lists have"
	}
	about := l.about + ", " + ls.direction.String()
	for f, t := range ls.tables {
		l.chains[f] = t.Chains.AddList(naming.ListChain(ls.tier.String(), ls.direction, id),
			about, ls.tier, base, ls.direction)
		l.pods[f] = t.Sets.Add(naming.ListSet(t.Family, ls.tier.String(), ls.direction, id), ipset.HashIP, about)
		l.pods[f].DispatchToTier(ls.tier, l.chains[f], ls.direction, listHeight)
	}
	return l
}

// The heights of sets above the rules that they dispatch to.
const (
	subjectHeight = iota
	listHeight
	rootHeight
)

// set gives the list the policies that it is to have, in order.
func (l *list) set(policies []*enforced, base *rules.Base) {
	if slices.Equal(l.policies, policies) {
		return
	}
	l.policies = slices.Clone(policies)
	if l.id == sharedID {
		for _, p := range policies {
			l.addSubject(p)
		}
	}
	entries, unions := entriesOf(policies, l.tier, l.direction, l.id == sharedID)
	user := &dataplane.Owner{Name: l.about}
	peers := l.sets.Provision(unions, user)
	l.sets.Deprovision(l.peers, l.user)
	l.peers, l.user = peers, user
	for _, f := range npc.Families {
		l.chains[f].SetRules(l.rules(f, entries[f], base))
	}
}

func (l *list) addSubject(p *enforced) {
	if l.subjects[p.id] != nil {
		return
	}
	var sets [len(npc.Families)]*dataplane.Set
	for f, t := range l.tables {
		sets[f] = t.Sets.Add(naming.SubjectSet(t.Family, l.direction, p.id), ipset.HashIP,
			"local pods that "+p.Tier.String()+" policy "+p.Name+" selects, "+l.direction.String())
		sets[f].DispatchToTier(l.tier, l.chains[f], l.direction, subjectHeight)
	}
	l.subjects[p.id] = &sets
}

// rules returns the rules of a family. Of rules with equal matches the first decides.
func (l *list) rules(f npc.Family, entries []entry, base *rules.Base) map[string]dataplane.ChainRule {
	all := map[string]dataplane.ChainRule{}
	for _, e := range entries {
		subject := ""
		if sets := l.subjects[e.subject]; sets != nil {
			subject = naming.Match(sets[f].Key(), l.direction.Own())
		}
		match := naming.Join(e.match, subject)
		if _, decided := all[match]; !decided {
			all[match] = l.rule(e, len(all), subject, base)
		}
	}
	return all
}

// rule returns the rule of an entry. What may deny, or end the tier, denies everything if the kernel rejects it.
func (l *list) rule(e entry, order int, subject string, base *rules.Base) dataplane.ChainRule {
	r := dataplane.ChainRule{Target: base.ActionTarget(e.action, l.tier, l.direction), About: e.about(l.direction),
		Order: order, Owners: e.owners()}
	if e.action != policy.Accept {
		r.Closed, r.ClosedMatch = base.ActionTarget(policy.Deny, l.tier, l.direction), subject
	}
	return r
}

// prune drops the subjects of policies that a shared list does not have any more.
func (l *list) prune() {
	for id, sets := range l.subjects {
		if slices.ContainsFunc(l.policies, func(p *enforced) bool { return p.id == id }) {
			continue
		}
		for _, s := range sets {
			s.Drop()
		}
		delete(l.subjects, id)
	}
}

// drop drops everything of a list that no pod is in any more.
func (l *list) drop() {
	l.policies = nil
	l.prune()
	for f := range npc.Families {
		l.chains[f].Drop()
		l.pods[f].Drop()
	}
	l.sets.Deprovision(l.peers, l.user)
	l.peers = index.Provisioned{}
}
