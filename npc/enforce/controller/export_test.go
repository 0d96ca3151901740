package controller

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
)

// carryOut plans, and takes everything for carried out.
func (c *Controller) carryOut(collectGarbage bool) [2]dataplane.Transaction {
	txs := c.Planner().Plan(collectGarbage, [2]dataplane.Known{})
	for _, tx := range txs {
		c.Planner().Commit(tx, tx.Taken())
	}
	return txs
}

// Leftovers returns the sets of policies that no policy uses.
func (c *Controller) Leftovers() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, use := range c.state.index.Sets.Uses() {
		if len(use.Users) == 0 {
			out = append(out, "set "+use.Set.About())
		}
	}
	return out
}

// Edit has chains of rules in order edited in place however few rules they have and however many of them change.
func (c *Controller) Edit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.editing.Above, c.state.editing.Share = 0, 1
}

// Shard divides the rules of isolated pods in another way. It is to be called before any object is set.
func (c *Controller) Shard(s networkpolicy.Sharding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.isolation = c.state.newIsolation(s)
	c.state.policies.isolation = c.state.isolation
}

// WronglyFresh reports whether the fail-closed filter says that it is not stale, and changes its sets all the same.
func (c *Controller) WronglyFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.failClosed.Stale(c.state.facts()) {
		return false
	}
	before := c.state.closedEntries()
	c.state.failClosed.Update(c.state.facts())
	return !slices.Equal(before, c.state.closedEntries())
}

// closedEntries returns the entries of the fail-closed filter's sets as text, in order.
func (s *state) closedEntries() (out []string) {
	for _, f := range npc.Families {
		for _, set := range s.failClosed.Sets(f) {
			for e, st := range set.States() {
				if st.Wanted {
					out = append(out, fmt.Sprint(set.Name, e, st.Want))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
