package dataplane

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/jump"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/written"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Chain is a desired iptables chain, together with what is known of the kernel's.
type Chain struct {
	name   string
	chains *Chains
	// fixed is set if every node has the chain.
	fixed bool
	// namespace is the one whose rules the chain has; empty if it leads to those of several.
	namespace string
	// about describes for humans what the chain is for.
	about string
	// wanted is set while the chain is desired. kernel is what the kernel has of it.
	wanted bool
	kernel written.Chain
	// rules have no order among them, unless the chain is ordered: match -> rule.
	rules map[string]*rule
	// target is what a packet gets that one of the rules matches; a rule may have its own.
	target string
	// tail follows the rules, in order.
	tail []iptables.Rule
	// found are the texts of the rules that were found at the start, until they have been looked at.
	found []string
	// held are those of them that stay because input is missing; stays is set if the chain itself stays while it is not
	// wanted.
	held  []iptables.Rule
	stays bool
	// ledTo is set if a rule that stays leads to the chain.
	ledTo bool
	// met is how many packets the rule had matched that matched most, when everything was read last; from 0 again when
	// the chain is rewritten. Every packet that comes to a chain that reports meets its first rule; hashlimit drops
	// some before the last.
	met uint64
	// ordered is set if what the chain does depends on the order of its rules.
	ordered bool
	// lazy is set if a surplus rule does no harm, so that its removal can wait.
	lazy bool
}

// Name returns the chain's name.
func (c *Chain) Name() string { return c.name }

// Reconciled reports whether the kernel has the chain as it is desired, and no other rules.
func (c *Chain) Reconciled() bool { return c.kernel.Exists && c.chains.marked[c] == 0 }

// Drop makes the chain no longer desired.
func (c *Chain) Drop() {
	c.wanted = false
	if !c.kernel.Exists {
		c.chains.remove(c)
		return
	}
	c.Touch()
}

// SetRules replaces the chain's rules by those of the given matches.
func (c *Chain) SetRules(rules map[string]ChainRule) {
	if maps.EqualFunc(c.rules, rules, (*rule).same) {
		return
	}
	c.rules = make(map[string]*rule, len(rules))
	for match, r := range rules {
		c.rules[match] = &rule{match: match, ChainRule: r}
	}
	c.Touch()
}

// Own makes a policy an owner of a rule; number is that of the rule in the policy, from 1.
func (c *Chain) Own(o *Owner, match string, number int) {
	r := c.rules[match]
	if r == nil {
		r = &rule{match: match, ChainRule: ChainRule{Owners: map[*Owner]int{}}}
		c.rules[match] = r
	}
	if _, ok := r.Owners[o]; !ok {
		r.Owners[o] = number
	}
	c.accountFor(r)
	c.Touch()
}

// Disown ends a policy's ownership of a rule, and the rule with its last owner.
func (c *Chain) Disown(o *Owner, match string) {
	r := c.rules[match]
	if r == nil {
		return // the policy has the rule twice
	}
	if delete(r.Owners, o); len(r.Owners) == 0 {
		delete(c.rules, match)
	}
	c.Touch()
}

// Touch marks the chain for the next plan.
func (c *Chain) Touch() {
	if f := c.chains.family; f.active || c.fixed || !c.wanted {
		c.chains.marked[c] = f.change()
	}
}

// desired returns the chain as it is to be in the kernel.
func (c *Chain) desired() iptables.Chain {
	w := iptables.Chain{Name: c.name, Tail: c.chains.family.aliases.Rules(c.tail),
		Rules: make([]iptables.Rule, 0, len(c.rules))}
	for _, r := range c.rules {
		if !c.chains.family.active && !r.reports {
			continue // what the rule leads to is not there
		}
		if rendered, ok := c.accepted(r); ok {
			w.Rules = append(w.Rules, rendered)
		}
	}
	w.Rules = append(w.Rules, c.stillHeld(w)...)
	return w
}

// render returns a rule as iptables takes it.
func (c *Chain) render(r *rule) iptables.Rule {
	target := r.Target
	if target == "" {
		target = c.target
	}
	out := iptables.Rule{Match: c.chains.family.aliases.Match(r.match), Target: target, Comment: r.comment(), Order: r.Order}
	if r.Closed != "" {
		closed := iptables.Rule{Target: r.Closed, Comment: out.Comment + ": refused by the kernel", Order: r.Order}
		all := closed
		closed.Match, closed.Instead = c.chains.family.aliases.Match(r.ClosedMatch), &all
		out.Instead = &closed
	}
	return out
}

// accepted returns what the chain has for a rule: the rule, or what takes its place if it was rejected. ok is false if
// that is nothing.
func (c *Chain) accepted(r *rule) (rendered iptables.Rule, ok bool) {
	f := c.chains.family
	rendered = c.render(r)
	switch {
	case f.rejection(r) == "":
		return rendered, true
	case r.Closed == "":
		return iptables.Rule{}, false
	case f.rejected.By(r.ClosedMatch) == "":
		return *rendered.Instead, true
	}
	return *rendered.Instead.Instead, true
}

// stillHeld returns the rules that stay in addition to the desired ones.
func (c *Chain) stillHeld(w iptables.Chain) []iptables.Rule {
	if len(c.held) == 0 {
		return nil
	}
	wanted := w.IDs()
	return slices.DeleteFunc(slices.Clone(c.held),
		func(r iptables.Rule) bool { return slices.Contains(wanted, r.ID()) })
}

// accountFor ends keeping a rule that was found: a policy that was read asks for it. Rules of the dispatch are kept,
// because others may need them.
func (c *Chain) accountFor(r *rule) {
	if len(c.held) > 0 && c.namespace != "" {
		id := c.render(r).ID()
		c.held = slices.DeleteFunc(c.held, func(h iptables.Rule) bool { return h.ID() == id })
	}
}

// keeps reports whether the chain stays although it is not wanted.
func (c *Chain) keeps() bool { return c.stays || c.ledTo || len(c.held) > 0 }

// unready reports whether members must not come to the kernel's chain before the next plan has changed it: it lacks
// rules, or has rules that are not desired and will be gone.
func (c *Chain) unready() bool {
	if _, dirty := c.chains.marked[c]; !dirty || !c.kernel.Exists {
		return false
	}
	ch := c.kernel.Change(c.desired(), c.ordered, iptables.Editing{})
	return ch.Lacking() || ch.Surplus && !c.lazy
}

// lacksRules reports whether the kernel's chain is not there, or is unready.
func (c *Chain) lacksRules() bool { return !c.kernel.Exists || c.unready() }

// Chains are one family's chains by their names, those that only the kernel still has among them.
type Chains struct {
	family *family
	byName map[string]*Chain
	// marked are the chains that the next plan looks at -> the count of changes when they were marked last.
	marked map[*Chain]uint64
	// jumps jump to the chains; there are none if the CNI plugin has them.
	jumps []*jump.Jump
	// foundLayout is the layout of what was last loaded; empty if there was nothing.
	foundLayout string
	names       *Owner // the domain names of all policies
	// read is set once the kernel's chains have been read, and foundLists if there were lists of tiers among them then.
	read, foundLists bool
	// textless is set once the texts of rules that are found are of no use.
	textless bool
}

func newChains(f *family) *Chains {
	return &Chains{family: f, byName: map[string]*Chain{}, marked: map[*Chain]uint64{}, names: &Owner{Name: "domain names"}}
}

// enter returns a new chain by a name, neither desired nor in the kernel yet.
func (cs *Chains) enter(name string) *Chain {
	c := &Chain{name: name, chains: cs, rules: map[string]*rule{}}
	cs.byName[name] = c
	return c
}

// want makes a chain desired and returns it.
func (cs *Chains) want(name string) *Chain {
	c := cs.byName[name]
	if c == nil {
		c = cs.enter(name)
	}
	c.wanted, c.stays = true, false
	c.Touch()
	return c
}

// remove forgets a chain that is neither wanted nor in the kernel.
func (cs *Chains) remove(c *Chain) {
	delete(cs.byName, c.name)
	delete(cs.marked, c)
}

// touchAll marks the chains for the next plan.
func (cs *Chains) touchAll() {
	for _, c := range cs.byName {
		c.Touch()
	}
}

// toPlan returns the chains that were marked, by name.
func (cs *Chains) toPlan() []*Chain {
	out := slices.AppendSeq(make([]*Chain, 0, len(cs.marked)), maps.Keys(cs.marked))
	slices.SortFunc(out, func(a, b *Chain) int { return strings.Compare(a.name, b.name) })
	return out
}

// rules yields every rule with its chain.
func (cs *Chains) rules() iter.Seq2[*Chain, *rule] {
	return func(yield func(*Chain, *rule) bool) {
		for _, c := range cs.byName {
			for _, r := range c.rules {
				if !yield(c, r) {
					return
				}
			}
		}
	}
}

// About returns what a chain is for, for humans; empty if it is not desired.
func (cs *Chains) About(name string) string {
	if c := cs.byName[name]; c != nil && c.wanted {
		return c.about
	}
	return ""
}

// Dropped returns how many packets the chain that drops them in a direction had met when it was read last.
func (cs *Chains) Dropped(d npc.Direction) uint64 { return cs.byName[naming.DropChain(d)].met }

// TooManyUnused reports whether so many chains have no use any more that writing others takes notably longer.
func (cs *Chains) TooManyUnused() bool {
	unused := 0
	for c := range cs.marked {
		if c.kernel.Exists && !c.wanted && !c.keeps() {
			unused++
		}
	}
	if unused < 16 {
		return false
	}
	chains, _ := cs.size()
	return unused >= chains/4
}

// size counts what the kernel has.
func (cs *Chains) size() (chains, rules int) {
	for _, c := range cs.byName {
		if c.kernel.Exists {
			chains++
			rules += c.kernel.Count()
		}
	}
	return chains, rules
}
