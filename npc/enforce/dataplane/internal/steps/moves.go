package steps

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// Moves are the entries of a plan that come to chains and leave chains. The zero Moves are those of no entries, as most
// plans have.
//
// A pod must be found in one of the chains at any moment, with its rules: so it is added to sets from the rules up to
// the root, and deleted from them from the root down to the rules.
type Moves[C comparable] struct {
	// late are the entries that are added to a set of the dispatch tree only after the rules are written.
	late map[lateEntry]struct{}
	// entered and left are the chains that entries come to and leave.
	entered, left map[C]struct{}
}

type lateEntry struct {
	ipset.Entry
	npc.Direction
}

// Enter divides entries that come to a chain into those that are added before the rules and those that are added after
// them; unready is set if they must not come to the chain as it is in the kernel. Calls go from the rules up to the
// root.
func (m *Moves[C]) Enter(to C, d npc.Direction, unready bool, entries []ipset.Entry) (before, after []ipset.Entry) {
	if m.entered == nil {
		m.late, m.entered = map[lateEntry]struct{}{}, map[C]struct{}{}
	}
	m.entered[to] = struct{}{}
	for _, e := range entries {
		key := lateEntry{e, d}
		if _, later := m.late[key]; !unready && !later {
			before = append(before, e)
			continue
		}
		m.late[key] = struct{}{}
		after = append(after, e)
	}
	return before, after
}

// Leave records that some entries leave a chain.
func (m *Moves[C]) Leave(from C) {
	if m.left == nil {
		m.left = map[C]struct{}{}
	}
	m.left[from] = struct{}{}
}

// Needs reports whether a chain keeps rules that are no longer desired, because entries leave it that the rules are
// still for. It is unknown which other sources rules that were loaded let in: no new pod may reach them.
func (m *Moves[C]) Needs(c C, loaded bool) bool {
	_, entered := m.entered[c]
	_, left := m.left[c]
	return left && (!loaded || !entered)
}

// None reports whether nothing is moved, so that no old dispatch is needed.
func (m *Moves[C]) None() bool { return len(m.late)+len(m.left) == 0 }
