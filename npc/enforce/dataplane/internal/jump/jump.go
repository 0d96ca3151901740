// Package jump keeps rules in builtin chains that jump to weave-npc's: each exists once, with nothing above it that
// accepts a packet, or not at all.
//
//	j := jump.New("FORWARD", "WEAVE-NPC-FORWARD", rule)
//	j.Want(true)
//	j.Load(seen)                    // what the kernel has
//	if j.Missing() || j.Surplus() {
//		update.Jumps = append(update.Jumps, j.Update())
//	}
package jump

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Jump is a desired rule in a builtin chain that jumps to another chain, together with what is known of the kernel's.
// New returns one.
type Jump struct {
	// chain is the builtin chain, and leadsTo the chain that the rule jumps to.
	chain, leadsTo string
	rule           iptables.Rule
	wanted         bool
	// loaded is set once it is known what the kernel has; stale are the jumps there, as they print or were written, and
	// placed is set if that is one, and nothing above it accepts a packet.
	loaded, placed bool
	stale          []string
}

// New returns a jump that is not wanted. The rule has to jump to the chain leadsTo.
func New(chain, leadsTo string, rule iptables.Rule) *Jump {
	return &Jump{chain: chain, leadsTo: leadsTo, rule: rule}
}

// EvaluatesNode reports whether the jump has packets to the node itself evaluated.
func (j *Jump) EvaluatesNode() bool {
	return j.chain == naming.NodeHookChain && j.leadsTo != naming.TerminateChain
}

// Want makes the jump desired or not.
func (j *Jump) Want(wanted bool) { j.wanted = wanted }

// Found reports whether the kernel has the jump.
func (j *Jump) Found() bool { return len(j.stale) > 0 }

// Missing reports whether the jump has to be put first.
func (j *Jump) Missing() bool { return j.wanted && j.loaded && !j.placed }

// Surplus reports whether jumps have to be deleted.
func (j *Jump) Surplus() bool { return !j.wanted && len(j.stale) > 0 }

// Update returns what makes the kernel's chain as it is desired.
func (j *Jump) Update() iptables.Jump {
	u := iptables.Jump{Chain: j.chain, Stale: j.stale}
	if j.wanted {
		u.Rule = j.rule
	}
	return u
}

// Wrote reports whether an update is what Update returned. A chain may have several jumps.
func (j *Jump) Wrote(u iptables.Jump) bool {
	if u.Rule == (iptables.Rule{}) {
		return u.Chain == j.chain && slices.Equal(u.Stale, j.stale)
	}
	return u.Chain == j.chain && u.Rule.ID() == j.rule.ID()
}

// Written records that an update was written.
func (j *Jump) Written(u iptables.Jump) {
	j.placed, j.stale = u.Rule != (iptables.Rule{}), nil
	if j.placed {
		j.stale = []string{"-A " + j.chain + " " + j.rule.String()}
	}
}

// Load finds out whether the jump is there once, with nothing above it that accepts.
func (j *Jump) Load(seen iptables.Seen) {
	jumps, before := j.find(seen)
	j.loaded, j.stale, j.placed = true, jumps, len(jumps) == 1 && len(before) == 0
}

// find returns the jumps that the chain has, and the rules before the first of them that can accept a packet.
func (j *Jump) find(seen iptables.Seen) (jumps, before []string) {
	for _, r := range seen.Hooks[j.chain] {
		switch {
		case iptables.RuleID(r) == j.rule.ID():
			jumps = append(jumps, r)
		case len(jumps) == 0 && seen.Accepts(r):
			before = append(before, r)
		}
	}
	return jumps, before
}

// Drift returns in words how the kernel's jumps differ from what the transactions left.
func (j *Jump) Drift(seen iptables.Seen) (drift []string) {
	jumps, before := j.find(seen)
	if j.placed && j.wanted {
		for _, r := range before {
			drift = append(drift, fmt.Sprintf("%s accepts before us: %s", j.chain, r))
		}
	}
	if len(jumps) != len(j.stale) {
		drift = append(drift, fmt.Sprintf("%s has %d jumps to %s", j.chain, len(jumps), j.leadsTo))
	}
	return drift
}
