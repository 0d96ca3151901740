// Package order plans the order of changes to sets that cluster network policies ask for.
//
// Rules of NetworkPolicies only allow, so adding everywhere and then removing everywhere gives each packet the verdict
// of before or of after. With rules that deny it does not.
//
//	p := order.Of(changes, kernel) // p.Close, the rest of the changes, p.Open
//
// For the address of a peer, all tiers are one list of rules where the first match decides, as long as no Pass rule of
// the Admin tier gains or loses the address: it is added from the first rule to the last, and then removed from the
// last to the first. Otherwise the address is first denied what the new rules deny, and no longer accepted for what the
// old rules accept, and then the Pass rules change.
//
// A local pod that gets an Admin list without having one, and another tail, is evaluated by the list before it goes to
// the tail; one that has no Admin list any more goes to its tail first. Whatever the list does not decide is the
// tail's, so that this gives each packet the verdict of before or of after, too. A pod whose Admin list is replaced and
// whose tail changes, or that changes its Admin list and the NetworkPolicies that are for it, belongs to no tail
// meanwhile, and so is dropped. One whose list changes while other peers change belongs to neither.
//
// An address that changes hands and had an Admin list belongs to neither until the connections of its former pod are
// deleted, which may take several plans: only then does the new pod get its own list.
//
// NetworkPolicies let pods pass to their node, so one that is taken from a tail or an Admin list is closed to it first.
package order

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/members"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// SetChange is what is to be done to a set, which T stands for.
type SetChange[T any] struct {
	Of T
	Set
	Add, Remove []ipset.Entry
	// Stale are entries of addresses that changed hands: what they had for their former pods goes, and nothing comes to
	// them yet.
	Stale []ipset.Entry
	// Recommented are entries that are added again with other comments.
	Recommented []ipset.Entry
	// Flushed are entries that go because the set is flushed.
	Flushed []ipset.Entry
}

// Op adds or deletes entries of a set.
type Op[T any] struct {
	Of      T
	Kind    ipset.OpKind
	Entries []ipset.Entry
}

// Plan is what comes before all other changes, after all additions, after all local pods have left sets, and after
// everything.
type Plan[T any] struct{ Close, Enter, Leave, Open []Op[T] }

// Kernel is the rest that the order depends on.
type Kernel[T any] struct {
	// Tails are the tails that the kernel has.
	Tails []HeldSet[T]
	// Closed is the set of the pods whose packets to this node are dropped; nil if there is none.
	Closed *HeldSet[T]
	// Unwritten are sets that dispatch to Admin policies by rules that are not in the kernel yet.
	Unwritten []HeldSet[T]
	// Members yields the entries of a set.
	Members func(name string) iter.Seq2[ipset.Entry, members.State]
}

// HeldSet is a set that the kernel has.
type HeldSet[T any] struct {
	Of        T
	Direction npc.Direction
	State     func(ipset.Entry) members.State
}

// Of takes what must come first or last out of changes. Without sets of cluster network policies among them there is
// nothing: it reports false, and k, which returns what else the order depends on, is not called.
func Of[T any](changes []*SetChange[T], k func() Kernel[T]) (Plan[T], bool) {
	ordered := func(c *SetChange[T]) bool { return c.Role.Cluster || c.Evaluation >= BaselineList }
	if !slices.ContainsFunc(changes, ordered) {
		return Plan[T]{}, false
	}
	o := &planner[T]{kernel: k()}
	for _, c := range changes {
		o.look(c)
	}
	for _, c := range changes {
		o.divide(c)
	}
	o.closeKept()
	o.planNode()
	slices.Reverse(o.closeTail)
	slices.Reverse(o.closeAdmin)
	slices.Reverse(o.leaveTail)
	slices.Reverse(o.leaveAdmin)
	return Plan[T]{
		Enter: o.enterTail,
		Leave: slices.Concat(o.leaveTail, o.leaveAdmin),
		Close: slices.Concat(o.closeNode, o.closeTail, o.closeAdmin, o.deny, o.unaccept),
		Open:  slices.Concat(o.accept, o.undeny, o.openAdmin, o.openTail, o.openNode),
	}, true
}

// planner makes one plan.
type planner[T any] struct {
	kernel Kernel[T]
	// passing are the addresses that a Pass rule of the Admin tier gains or loses.
	passing set[netip.Addr]
	// gains and loses are the entries of local pods that are added to an Admin list or leave one, tail those whose tail
	// changes, and listed those that other lists of a tier evaluate.
	gains, loses, tail, listed [len(npc.Directions)]set[ipset.Entry]
	// revoked are the entries of local pods that leave an Admin list because their addresses changed hands.
	revoked [len(npc.Directions)]set[ipset.Entry]
	// peers are the addresses that change as peers.
	peers set[netip.Addr]
	// targets are the addresses of local pods that NetworkPolicies begin or cease to be for.
	targets set[netip.Addr]
	// noNode are the entries of local pods that are taken from a tail or an Admin list, and so must not reach their node
	// -> whether the plan puts them into one again.
	noNode map[ipset.Entry]bool

	closeNode, closeTail, closeAdmin              []Op[T]
	deny, unaccept                                []Op[T]
	enterTail, leaveTail, leaveAdmin              []Op[T]
	accept, undeny, openAdmin, openTail, openNode []Op[T]
}

// set is a set; nil is an empty one.
type set[K comparable] map[K]struct{}

func (s *set[K]) add(key K) {
	if *s == nil {
		*s = set[K]{}
	}
	(*s)[key] = struct{}{}
}

func (s set[K]) has(key K) bool {
	_, is := s[key]
	return is
}

// appendOp appends an operation, if it has entries.
func appendOp[T any](ops []Op[T], kind ipset.OpKind, of T, entries []ipset.Entry) []Op[T] {
	if len(entries) == 0 {
		return ops
	}
	return append(ops, Op[T]{of, kind, entries})
}

// look records a change by the entries that it concerns.
func (o *planner[T]) look(c *SetChange[T]) {
	if d := c.Direction; c.Evaluation == adminList {
		for _, e := range c.Add {
			o.gains[d].add(e)
		}
		for _, e := range slices.Concat(c.Remove, c.Flushed) {
			o.loses[d].add(e)
		}
		for _, e := range c.Stale {
			o.revoked[d].add(e)
		}
	}
	for _, e := range slices.Concat(c.Add, c.Remove, c.Stale, c.Flushed) {
		switch d := c.Direction; c.Evaluation {
		case adminList:
			o.listed[d].add(e)
		case BaselineList:
			o.tail[d].add(e)
			o.listed[d].add(e)
		case Tail:
			o.tail[d].add(e)
		default:
			o.lookAtPeer(c, e)
		}
	}
}

func (o *planner[T]) lookAtPeer(c *SetChange[T], e ipset.Entry) {
	if c.Role.Target {
		o.targets.add(e.Prefix.Addr())
	}
	if len(c.Flushed) > 0 || !c.Peers {
		return
	}
	if e.Set != "" { // the pods of a namespace
		for member := range o.kernel.Members(e.Set) {
			o.peers.add(member.Prefix.Addr())
		}
		return
	}
	a := e.Prefix.Addr()
	o.peers.add(a)
	if c.Role.Cluster && c.Role.Effect() == policy.Pass {
		o.passing.add(a)
	}
}

// mixed reports whether a local pod's lists change while other addresses change as peers.
func (o *planner[T]) mixed(d npc.Direction, e ipset.Entry) bool {
	others := len(o.peers)
	if o.peers.has(e.Prefix.Addr()) {
		others--
	}
	return o.listed[d].has(e) && others > 0
}

// isRevoked reports whether an address leaves the Admin list of its former pod. That of its new pod comes later, so it
// must not be in a tail until then, even if both pods have the same.
func (o *planner[T]) isRevoked(d npc.Direction, e ipset.Entry) bool { return o.revoked[d].has(e) }

// closed reports whether a local pod is taken from its tail while the rest changes.
func (o *planner[T]) closed(d npc.Direction, e ipset.Entry) bool {
	gains, loses, target := o.gains[d].has(e), o.loses[d].has(e), o.targets.has(e.Prefix.Addr())
	unwritten := o.unwritten(d, e)
	switch {
	case o.isRevoked(d, e), o.mixed(d, e):
		return true
	case gains != loses && !target && !unwritten:
		return false
	}
	return (o.tail[d].has(e) || target) && (gains || loses || unwritten)
}

// enters reports whether a local pod goes to its tail only after the Admin list that it gets evaluates it.
func (o *planner[T]) enters(d npc.Direction, e ipset.Entry) bool {
	return o.gains[d].has(e) && !o.closed(d, e)
}

// leaves reports whether a local pod loses its Admin list once it is in its tail.
func (o *planner[T]) leaves(d npc.Direction, e ipset.Entry) bool {
	return o.tail[d].has(e) && o.loses[d].has(e) && !o.gains[d].has(e) && !o.closed(d, e)
}

// unwritten reports whether the Admin policies that a local pod was given do not evaluate it yet: an earlier
// transaction was interrupted.
func (o *planner[T]) unwritten(d npc.Direction, e ipset.Entry) bool {
	return slices.ContainsFunc(o.kernel.Unwritten, func(s HeldSet[T]) bool {
		st := s.State(e)
		return s.Direction == d && st.Exists && st.Wanted
	})
}

// take removes the entries that when reports, and returns them.
func take(from *[]ipset.Entry, when func(ipset.Entry) bool) (taken []ipset.Entry) {
	*from = slices.DeleteFunc(slices.Clone(*from), func(e ipset.Entry) bool {
		if when(e) {
			taken = append(taken, e)
			return true
		}
		return false
	})
	return taken
}

func all(ipset.Entry) bool { return true }

// divide takes what must come first or last out of a change.
func (o *planner[T]) divide(c *SetChange[T]) {
	leaving := &c.Remove
	if len(c.Flushed) > 0 {
		leaving = &c.Flushed
	}
	closed := func(e ipset.Entry) bool { return o.closed(c.Direction, e) }
	mixed := func(e ipset.Entry) bool { return o.mixed(c.Direction, e) }
	revoked := func(e ipset.Entry) bool { return o.isRevoked(c.Direction, e) }
	passing := func(e ipset.Entry) bool { return o.passing.has(e.Prefix.Addr()) }
	leaves := func(e ipset.Entry) bool { return o.leaves(c.Direction, e) }
	enters := func(e ipset.Entry) bool { return o.enters(c.Direction, e) }
	switch {
	case c.Evaluation == adminList:
		o.closeAdmin = o.close(o.closeAdmin, c.Of, c.Direction, take(leaving, mixed), take(&c.Stale, all))
		o.openAdmin = appendOp(o.openAdmin, ipset.Add, c.Of, take(&c.Add, mixed))
		if slices.ContainsFunc(c.Flushed, leaves) {
			leaves = all // a flush would not wait
		}
		o.leaveAdmin = appendOp(o.leaveAdmin, ipset.Delete, c.Of, take(leaving, leaves))
	case c.Evaluation == ClosedToNode:
		o.closeNode = appendOp(o.closeNode, ipset.Add, c.Of, take(&c.Add, all))
		o.openNode = appendOp(o.openNode, ipset.Delete, c.Of, take(&c.Remove, all))
	case c.Evaluation != 0:
		o.closeTail = o.close(o.closeTail, c.Of, c.Direction, take(leaving, closed), take(&c.Stale, all))
		take(&c.Recommented, revoked) // closeKept takes them out
		o.openTail = appendOp(o.openTail, ipset.Add, c.Of, take(&c.Add, closed))
		o.enterTail = appendOp(o.enterTail, ipset.Add, c.Of, take(&c.Add, enters))
		o.leaveTail = appendOp(o.leaveTail, ipset.Delete, c.Of, take(&c.Remove, leaves))
	case len(o.passing) == 0 || !c.Peers:
	case c.Role.Effect() == policy.Deny:
		o.deny = appendOp(o.deny, ipset.Add, c.Of, take(&c.Add, passing))
		o.undeny = appendOp(o.undeny, ipset.Delete, c.Of, take(&c.Remove, passing))
	case c.Role.Effect() == policy.Accept:
		o.unaccept = appendOp(o.unaccept, ipset.Delete, c.Of, take(&c.Remove, passing))
		o.accept = appendOp(o.accept, ipset.Add, c.Of, take(&c.Add, passing))
	}
}

// closeKept takes pods from tails that do not change, if other changes must not meet their lists. It puts them back,
// unless their addresses changed hands: then a later plan does.
func (o *planner[T]) closeKept() {
	for _, s := range o.kernel.Tails {
		d := s.Direction
		if len(o.peers)+len(o.targets)+len(o.revoked[d]) == 0 {
			continue
		}
		var gone, again []ipset.Entry
		for e := range o.listed[d] {
			switch st := s.State(e); {
			case !st.Exists || !st.Wanted || !o.closed(d, e):
			case o.isRevoked(d, e):
				gone = append(gone, e)
			default:
				again = append(again, e)
			}
		}
		o.closeTail = o.close(o.closeTail, s.Of, d, again, gone)
		o.openTail = appendOp(o.openTail, ipset.Add, s.Of, again)
	}
}

// close appends the deletion of pods from a tail or an Admin list: of those that the plan puts into one again, and of
// those that are gone until a later plan.
func (o *planner[T]) close(ops []Op[T], of T, d npc.Direction, returning, gone []ipset.Entry) []Op[T] {
	o.left(d, returning, true)
	o.left(d, gone, false)
	return appendOp(ops, ipset.Delete, of, slices.Concat(returning, gone))
}

// left records that pods are taken from a tail or an Admin list, and whether the plan puts them into one again.
func (o *planner[T]) left(d npc.Direction, entries []ipset.Entry, returns bool) {
	if d != npc.Egress {
		return
	}
	if o.noNode == nil {
		o.noNode = map[ipset.Entry]bool{}
	}
	for _, e := range entries {
		before, is := o.noNode[e]
		o.noNode[e] = returns && (before || !is)
	}
}

// planNode closes the way to this node to the pods that are taken from a tail or an Admin list, and has it opened at
// last to those that the plan puts into one again. NetworkPolicies would let the others pass to the node, too.
func (o *planner[T]) planNode() {
	s := o.kernel.Closed
	if s == nil {
		return
	}
	var entries, returning []ipset.Entry
	for e, returns := range o.noNode {
		if st := s.State(e); st.Exists || st.Wanted {
			continue
		}
		entries = append(entries, e)
		if returns {
			returning = append(returning, e)
		}
	}
	o.closeNode = appendOp(o.closeNode, ipset.Add, s.Of, entries)
	o.openNode = appendOp(o.openNode, ipset.Delete, s.Of, returning)
}
