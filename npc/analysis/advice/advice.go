// Package advice finds changes of policies or labels that would allow a denied flow, and what else they open and close.
//
//	changes, err := advice.Request{Cluster: c, Flows: flows}.Nearest()
//	after := changes[0].In(c)    // a copy of the cluster with the first change
//
//	Request ─▶ question ─▶ policies to add (policy), other labels (labels): trials ─▶ the best of each kind
//
// It tries every change on a copy of the cluster: it trusts npc/analysis/explain and
// npc/analysis/internal/reachability, not its own reasoning. It changes nothing.
package advice

import (
	"slices"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Nearest returns changes that allow all flows: policies to add, and then the change of labels that opens and closes
// the least. There are none if nothing denies the flows, or no change was found.
func (r Request) Nearest() ([]Suggestion, error) {
	q := question{Request: r, view: r.Cluster.View()}
	for _, f := range r.Flows {
		v := explain.Explain(q.view, f)
		q.verdicts = append(q.verdicts, v)
		for d := range q.denied {
			q.denied[d] = q.denied[d] || !v.Side(npc.Direction(d)).Allowed
		}
	}
	if !q.denied[npc.Egress] && !q.denied[npc.Ingress] {
		return nil, nil
	}
	var out []Suggestion
	policies, err := q.policies()
	if err != nil {
		return nil, err
	}
	for _, trials := range [][]trial{policies, q.relabellings()} {
		if best := q.best(trials); best != nil {
			out = append(out, best.Suggestion)
		}
	}
	return out, nil
}

// mostTried is how many changes of a kind are compared by what they open and close.
const mostTried = 4

// best returns the trial that allows all flows and opens and closes the least, or nil.
func (q question) best(trials []trial) (best *trial) {
	slices.SortStableFunc(trials, func(a, b trial) int { return a.cost - b.cost })
	compared := 0
	for _, t := range trials {
		after := t.In(q.Cluster).View()
		if compared == mostTried ||
			slices.ContainsFunc(q.Flows, func(f flow.Flow) bool { return !explain.Explain(after, f).Allowed }) {
			continue
		}
		compared++
		t.Effect = reachability.Effects(q.view, after, q.intended())
		if best == nil || burden(t.Effect) < burden(best.Effect) {
			best = &t
		}
	}
	return best
}

// burden returns how much a change opens and closes.
func burden(e reachability.Effect) int {
	n := e.Opens + e.Closes
	for _, outside := range []bool{e.OpensOutside, e.ClosesOutside} {
		if outside {
			n++
		}
	}
	return n
}

// intended returns the first flow with the names of its pods instead of their addresses.
func (q question) intended() flow.Flow {
	f := q.Flows[0]
	for d, e := range map[npc.Direction]*flow.End{npc.Egress: &f.From, npc.Ingress: &f.To} {
		if pod := q.pod(d); pod != nil {
			*e = flow.End{Pod: pod.Key()}
		}
	}
	return f
}

// policies returns the trial that adds a policy for each direction that denies the flows.
func (q question) policies() ([]trial, error) {
	var made []*networkingv1.NetworkPolicy
	for _, d := range []npc.Direction{npc.Egress, npc.Ingress} {
		if !q.denied[d] {
			continue
		}
		policy := q.policy(d)
		if policy == nil {
			return nil, nil
		}
		made = append(made, policy)
	}
	text, err := toYAML(made)
	if err != nil {
		return nil, errors.Wrap(err, "writing down the nearest change")
	}
	t := trial{Suggestion: Suggestion{Text: addText(made), Apply: text, apply: func(c *cluster.Cluster) {
		for _, p := range made {
			c.SetPolicy(p.DeepCopy())
		}
	}}}
	if q.Flows[0].Service.Port == 0 {
		t.Notes = append(t.Notes,
			"a policy cannot name icmp: without ports it allows every protocol and port between the two")
	}
	return []trial{t}, nil
}
