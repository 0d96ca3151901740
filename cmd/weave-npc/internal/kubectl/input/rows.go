package input

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/npc/source/staging"
)

// Row is a staged policy.
type Row struct {
	Policy string    `json:"policy"`
	Staged StagedRow `json:"staged"`
	// PolicyRow is the policy as it would be in its group; nil if it adds nothing to it.
	*explain.PolicyRow
}

// StagedRow is what a staged policy does, and where it is enforced nevertheless.
type StagedRow struct {
	Group string `json:"group"`
	// Adds is set if the policy adds itself. Replaces or Removes is the enforced policy that it takes away; empty for
	// none.
	Adds     bool   `json:"adds"`
	Replaces string `json:"replaces,omitempty"`
	Removes  string `json:"removes,omitempty"`
	// Problem is why the policy is not what its annotations ask for.
	Problem string `json:"problem,omitempty"`
	// EnforcedOn are the nodes that enforce the policy, and UnknownOn those that may enforce it. NodesUnknown is why
	// no node is known.
	EnforcedOn   []string `json:"enforced_on,omitempty"`
	UnknownOn    []string `json:"unknown_on,omitempty"`
	NodesUnknown string   `json:"nodes_unknown,omitempty"`
}

// Rows returns a row for each staged policy that is not applied, in order of their groups and names; with a namespace
// only for those of its NetworkPolicies, and for cluster network policies that select pods of it or replace one that
// does.
func (r *Staged) Rows(namespace string, view func(snapshot.Objects) *cluster.View, nodes *Nodes) (rows []Row) {
	if !r.any() {
		return nil
	}
	enforced := byName(view(r.groups.Enforced), namespace)
	for _, group := range r.groups.Names() {
		if group == r.group {
			continue
		}
		would, err := r.groups.In(group)
		if err != nil {
			continue // unreachable: the group has a name
		}
		in := byName(view(would), namespace)
		for i := range r.groups.Staged {
			p := &r.groups.Staged[i]
			if p.Group != group {
				continue
			}
			row := Row{Policy: p.Key.Policy(), Staged: stagedRow(p)}
			row.PolicyRow = in[row.Policy]
			if namespace != "" && p.Key.Namespace != namespace && row.PolicyRow == nil && enforced[taken(p)] == nil {
				continue
			}
			nodes.notify(&row.Staged, p.Key.Namespace == "")
			rows = append(rows, row)
		}
	}
	return rows
}

func byName(v *cluster.View, namespace string) map[string]*explain.PolicyRow {
	rows := map[string]*explain.PolicyRow{}
	for _, row := range explain.Policies(v, namespace) {
		rows[row.Policy] = &row
	}
	return rows
}

func stagedRow(p *staging.StagedPolicy) StagedRow {
	r := StagedRow{Group: p.Group, Adds: p.Adds, Problem: p.Problem}
	if p.Adds {
		r.Replaces = taken(p)
	} else {
		r.Removes = taken(p)
	}
	return r
}

// taken returns the policy that one takes away; empty for none.
func taken(p *staging.StagedPolicy) string {
	if p.Takes == "" {
		return ""
	}
	return staged.Key{Namespace: p.Key.Namespace, Name: p.Takes}.Policy()
}

// has reports whether policies of a kind are staged.
func (r *Staged) has(cluster bool) bool {
	return slices.ContainsFunc(r.groups.Staged,
		func(p staging.StagedPolicy) bool { return (p.Key.Namespace == "") == cluster })
}
