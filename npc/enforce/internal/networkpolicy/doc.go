// Package networkpolicy knows the policies, which local pods they isolate, and where the rules for these pods are. It
// keeps the chains with the rules of policies, and the tree that dispatches packets to them.
//
//	s.SetPolicy(policy)        // or s.Reselect(pod)
//	for _, p := range s.Assign() {
//		x.Place(p, s.Memberships(p, ...)) // pods that belong to other sets now
//	}
//	s.Prune()                  // what no pod is in any more
//	s.Write()                  // the rules that changed, for a plan
//
// It knows nothing about the fail-closed filter, and does not place pods: the caller adds their other
// memberships.
package networkpolicy
