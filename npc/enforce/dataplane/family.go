package dataplane

import (
	"cmp"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
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
	aliases map[string]string
	// rejected are the sets that the kernel did not take, by the names that rules have for them -> why.
	rejected map[string]string
	// incomplete are the lists without a member that the kernel did not take, likewise.
	incomplete map[string]string
}

// change counts a change and returns the count.
func (f *family) change() uint64 {
	f.changes++
	return f.changes
}

// resolve returns a rule's match with the names that sets have in the kernel.
func (f *family) resolve(match string) string {
	for key, name := range f.aliases {
		match = strings.ReplaceAll(match, naming.Match(key, ""), naming.Match(name, ""))
		match = strings.ReplaceAll(match, naming.NoMatch(key, ""), naming.NoMatch(name, ""))
	}
	return match
}

// rejection returns why a rule is left out, itself or for a set that it refers to; empty if it is not.
func (f *family) rejection(r *rule) string {
	why := cmp.Or(r.rejected, reason(f.rejected, r.match))
	if why == "" && r.closed != "" {
		return reason(f.incomplete, r.match) // who is not in the list would not be denied
	}
	return why
}

// reason returns what some sets have for one that a match refers to.
func reason(sets map[string]string, match string) string {
	if len(sets) == 0 {
		return "" // as nearly always
	}
	for _, name := range (iptables.Rule{Match: match}).Sets() {
		if why := sets[name]; why != "" {
			return why
		}
	}
	return ""
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
