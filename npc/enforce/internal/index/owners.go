package index

import "github.com/weave-npc/weave-npc/npc/enforce/dataplane"

// owners are the policies that use a set, and how often.
type owners map[*dataplane.Owner]int

// add counts one use more of each.
func (o owners) add(users []*dataplane.Owner) {
	for _, user := range users {
		o[user]++
	}
}

// remove counts one use less of each.
func (o owners) remove(users []*dataplane.Owner) {
	for _, user := range users {
		if o[user]--; o[user] == 0 {
			delete(o, user)
		}
	}
}

// Use is a set of policies with those that use it.
type Use struct {
	Set   *dataplane.Set
	Users map[*dataplane.Owner]int
}
