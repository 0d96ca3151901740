// Package failclosed closes the addresses that may belong to pods that are not known yet.
//
// It does so exactly as long as that has to be: it fills, for each direction, a set of the unknown addresses whose
// packets are dropped. It logs when they are.
//
//	g.Follow(pod, isolated)           // after each change of a local pod: does it wait for its address?
//	g.Transfer(transfer)              // after each address that changed hands
//	if g.Stale(facts) { ... }         // a plan may find something to do
//	g.Update(facts)                   // before each plan
//	what, why := g.Closed(npc.Ingress, facts)
//	next := g.NextDeadline()          // when time alone changes that
//
// It knows nothing about policies: the caller reports who is isolated.
package failclosed
