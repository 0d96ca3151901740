// Package reports remembers which policies are not enforced as they are meant, so that each is reported once for a reason.
package reports

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
)

// Reports records the policies of a kind that are not enforced as they are meant. New returns one.
type Reports struct {
	all map[string]npc.InvalidPolicy // by the names of the policies, with their namespaces
	// unreported are those that have not been taken yet.
	unreported map[string]npc.InvalidPolicy
}

// New returns Reports of no policy.
func New() Reports {
	return Reports{map[string]npc.InvalidPolicy{}, map[string]npc.InvalidPolicy{}}
}

// Put records a policy, to be reported unless it was for the same reason.
func (r *Reports) Put(key string, p npc.InvalidPolicy) {
	if r.all[key] != p {
		r.all[key], r.unreported[key] = p, p
	}
}

// Mend forgets a policy that is enforced as it is meant now.
func (r *Reports) Mend(key string) {
	delete(r.all, key)
	delete(r.unreported, key)
}

// Remove forgets a policy that is gone. It is reported all the same, if it was not before.
func (r *Reports) Remove(key string) { delete(r.all, key) }

// Take returns the policies that were not returned before.
func (r *Reports) Take() []npc.InvalidPolicy {
	out := slices.Collect(maps.Values(r.unreported))
	clear(r.unreported)
	return out
}

// Len returns how many policies are recorded.
func (r *Reports) Len() int { return len(r.all) }
