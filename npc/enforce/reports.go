package enforce

import (
	"maps"
	"slices"
)

// InvalidPolicies records the policies of a kind that are not enforced as specified.
type InvalidPolicies struct {
	all map[string]InvalidPolicy // by the names of the policies, with their namespaces
	// unreported are those that have not been taken yet.
	unreported map[string]InvalidPolicy
}

// NewInvalidPolicies returns InvalidPolicies without a policy.
func NewInvalidPolicies() InvalidPolicies {
	return InvalidPolicies{map[string]InvalidPolicy{}, map[string]InvalidPolicy{}}
}

// Put records a policy, to be reported unless it was for the same reason.
func (r *InvalidPolicies) Put(key string, p InvalidPolicy) {
	if r.all[key] != p {
		r.all[key], r.unreported[key] = p, p
	}
}

// Clear forgets a policy that is enforced as specified now.
func (r *InvalidPolicies) Clear(key string) {
	delete(r.all, key)
	delete(r.unreported, key)
}

// Remove forgets a policy that is gone. It is reported all the same, if it was not before.
func (r *InvalidPolicies) Remove(key string) { delete(r.all, key) }

// Take returns the policies that were not returned before.
func (r *InvalidPolicies) Take() []InvalidPolicy {
	out := slices.Collect(maps.Values(r.unreported))
	clear(r.unreported)
	return out
}

// Len returns how many policies are recorded.
func (r *InvalidPolicies) Len() int { return len(r.all) }
