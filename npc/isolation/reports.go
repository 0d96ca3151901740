package isolation

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
)

// reports records the policies that are not enforced as they are meant.
type reports struct {
	all map[string]npc.InvalidPolicy // namespace/name -> policy
	// unreported are those that have not been taken yet.
	unreported map[string]npc.InvalidPolicy
}

func newReports() reports {
	return reports{map[string]npc.InvalidPolicy{}, map[string]npc.InvalidPolicy{}}
}

// put records a policy, to be reported unless it was for the same reason.
func (r *reports) put(key string, p npc.InvalidPolicy) {
	if r.all[key] != p {
		r.all[key], r.unreported[key] = p, p
	}
}

// mend forgets a policy that is enforced as it is meant now.
func (r *reports) mend(key string) {
	delete(r.all, key)
	delete(r.unreported, key)
}

// remove forgets a policy that is gone. It is reported all the same, if it was not before.
func (r *reports) remove(key string) { delete(r.all, key) }

// take returns the policies that were not returned before.
func (r *reports) take() []npc.InvalidPolicy {
	out := slices.Collect(maps.Values(r.unreported))
	clear(r.unreported)
	return out
}
