// Package replay evaluates the policies of a cluster for recorded connections, and finds those whose verdict changes.
//
//	changes := replay.Changes(records, c)    // c holds the policies that are to be
//
// It trusts npc/analysis/explain. The pods are those of the recording, with the labels that they had; of the cluster's
// pods it takes only where they run and how they name their ports. It does not know how verdicts could be kept.
package replay

import (
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// ChangedRecord is a record whose verdict changes.
type ChangedRecord struct {
	Record flowlog.Record `json:"record"`
	Before Outcome        `json:"before"`
	After  Outcome        `json:"after"`
}

// Outcome is what happens to the connections of a record.
type Outcome struct {
	Verdict flowlog.Verdict `json:"verdict"`
	// By are the rules that decide: of both ends if the connections are allowed, else of those that deny them. There
	// are none if no policy is for the pods.
	By []flowlog.RuleRef `json:"by,omitempty"`
}

// Changes returns the records whose verdict is another one under the policies of a cluster, in their order.
func Changes(records []flowlog.Record, c *cluster.Cluster) (changes []ChangedRecord) {
	stage, denied := newStage(c), denials(records)
	for i, r := range records {
		if !denied.overrule(r) {
			stage.place(i, r)
		}
	}
	after := stage.verdicts()
	for i, r := range records {
		v, evaluated := after[i]
		if !evaluated || v.Allowed == (r.Verdict == flowlog.Allowed) {
			continue
		}
		change := ChangedRecord{Record: r, Before: Outcome{Verdict: r.Verdict}, After: outcome(v)}
		if r.By != nil {
			change.Before.By = []flowlog.RuleRef{*r.By}
		}
		changes = append(changes, change)
	}
	return changes
}

// Between returns the records whose verdict differs between the policies of two clusters, in their order, whatever it
// was when they were recorded.
func Between(records []flowlog.Record, before, after *cluster.Cluster) (changes []ChangedRecord) {
	first, second := newStage(before), newStage(after)
	for i, r := range records {
		first.place(i, r)
		second.place(i, r)
	}
	was, is := first.verdicts(), second.verdicts()
	for i, r := range records {
		if was[i].Allowed != is[i].Allowed {
			changes = append(changes, ChangedRecord{Record: r, Before: outcome(was[i]), After: outcome(is[i])})
		}
	}
	return changes
}

// outcome returns a verdict with the rules that decide it.
func outcome(v explain.Verdict) Outcome {
	o := Outcome{Verdict: flowlog.Denied}
	if v.Allowed {
		o.Verdict = flowlog.Allowed
	}
	for _, s := range []explain.Side{v.Egress, v.Ingress} {
		if s.Allowed == v.Allowed {
			o.By = append(o.By, Deciding(s)...)
		}
	}
	return o
}

// Deciding returns the rule that decides a direction, or the policies that isolate the pod if no rule allows the
// connections.
func Deciding(s explain.Side) (rules []flowlog.RuleRef) {
	direction := s.Direction.String()
	if s.By != nil {
		return []flowlog.RuleRef{{Tier: s.By.Tier, Policy: s.By.Policy, Number: s.By.Rule, Direction: direction}}
	}
	for _, p := range s.Policies {
		if !s.Allowed {
			rules = append(rules, flowlog.RuleRef{Policy: p.Policy, Direction: direction})
		}
		for _, r := range p.Rules {
			if r.Allows {
				return []flowlog.RuleRef{{Policy: p.Policy, Number: r.Number, Direction: direction}}
			}
		}
	}
	return rules
}

// denying holds the nodes that denied connections.
type denying map[flowlog.Between]map[string]bool

func denials(records []flowlog.Record) denying {
	all := denying{}
	for _, r := range records {
		if r.Verdict != flowlog.Denied {
			continue
		}
		if all[r.Between()] == nil {
			all[r.Between()] = map[string]bool{}
		}
		all[r.Between()][r.Node] = true
	}
	return all
}

// overrule reports whether the connections of a record were allowed by one node, and denied by the other's. The record
// of that node shows them.
func (d denying) overrule(r flowlog.Record) bool {
	nodes := d[r.Between()]
	return r.Verdict == flowlog.Allowed && r.Replied == 0 && (len(nodes) > 1 || len(nodes) == 1 && !nodes[r.Node])
}
