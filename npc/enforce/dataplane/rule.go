package dataplane

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Owner is a policy on whose behalf rules are there. The same policy before and after an edit are two owners: an Owner
// is identified by its address.
type Owner struct {
	Namespace, Name string
	UID             types.UID
}

// String returns the policy as namespace/name, or as name if it has no namespace.
func (o *Owner) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return npc.ObjectKey(o.Namespace, o.Name)
}

// ChainRule is a rule of a chain of the dispatch tree, or of a list of cluster network policies.
type ChainRule struct {
	// Target is the rule's own; empty for the chain's.
	Target string
	// About describes for humans what the rule is for; empty if its owners do.
	About string
	// Order sorts the rules, where that saves time or the chain is an ordered one.
	Order int
	// Owners are the policies that ask for the rule -> its number there, from 1; nil for a rule of the dispatch.
	Owners map[*Owner]int
	// Closed is the target of the rule that replaces this one if the kernel rejects it; empty if it is left out.
	// ClosedMatch is the match of that rule.
	Closed, ClosedMatch string
}

// rule is a rule of a chain as the chain keeps it.
type rule struct {
	match string
	ChainRule
	// reports is set if the rule only reports: it leads nowhere and can be left out.
	reports bool
	// rejected is why the kernel did not take the rule.
	rejected string
}

// comment names the policies that a rule is there for.
func (r *rule) comment() string {
	if r.About != "" {
		return r.About
	}
	names := make([]string, 0, len(r.Owners))
	for o, n := range r.Owners {
		names = append(names, fmt.Sprintf("%s rule %d", o, n))
	}
	slices.Sort(names)
	return naming.Few(names)
}

// same reports whether a rule is as it is to be.
func (r *rule) same(want ChainRule) bool {
	return r.Target == want.Target && r.Order == want.Order &&
		(want.Owners == nil || maps.Equal(r.Owners, want.Owners) && r.About == want.About)
}
