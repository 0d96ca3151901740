package controller

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// input is what of the objects has not been read although it may exist.
type input struct {
	lacks  npc.Missing
	tables [len(npc.Families)]*dataplane.Table
}

// missing returns what is missing. Cluster network policies are missed only if the kernel had rules of some at the
// start.
func (x input) missing() npc.Missing {
	if x.lacks == npc.ClusterPoliciesMissing &&
		!slices.ContainsFunc(x.tables[:], func(t *dataplane.Table) bool { return t.Chains.FoundLists() }) {
		return npc.NothingMissing
	}
	return x.lacks
}

// lacksPods reports whether pods may be missing.
func (x input) lacksPods() bool {
	return x.lacks != npc.NothingMissing && x.lacks != npc.ClusterPoliciesMissing
}
