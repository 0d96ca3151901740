package dataplane

import (
	"cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/setref"
)

// family is what the sets and the chains of one IP family both depend on.
type family struct {
	ip npc.Family
	// active is set once a local pod has had an address of the family. Until then only what every node has is
	// programmed.
	active bool
	// changes counts the calls that marked a set or a chain for the next plan.
	changes uint64
	// aliases are the sets that have another name in the kernel than their own -> that name.
	aliases setref.Aliases
	// rejected are the sets that the kernel did not take, by the names that rules have for them -> why.
	rejected setref.Rejected
	// incomplete are the lists without a member that the kernel did not take, likewise.
	incomplete setref.Rejected
}

// change counts a change and returns the count.
func (f *family) change() uint64 {
	f.changes++
	return f.changes
}

// rejection returns why a rule is left out, itself or for a set that it refers to; empty if it is not.
func (f *family) rejection(r *rule) string {
	why := cmp.Or(r.rejected, f.rejected.By(r.match))
	if why == "" && r.Closed != "" {
		return f.incomplete.By(r.match) // who is not in the list would not be denied
	}
	return why
}

// done removes from the marked sets or chains those that a plan is done with, unless they were marked again since there
// were so many changes.
func done[T comparable](marked map[T]uint64, done []T, changes uint64) {
	for _, x := range done {
		if marked[x] <= changes {
			delete(marked, x)
		}
	}
}
