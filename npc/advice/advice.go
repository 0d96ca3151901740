// Package advice finds changes of policies or labels that would allow a flow, and says what else they open and close.
package advice

import (
	"slices"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	"github.com/weave-npc/weave-npc/npc/reach"
)

// Change is one way to allow what was asked about. It was tried on a copy of the objects.
type Change struct {
	// For is the end that the change is for, if there are several.
	For string `json:"for,omitempty"`
	// Text says in one line what to do.
	Text string `json:"text"`
	// Apply is the YAML of the objects to apply; empty if labels are to be changed.
	Apply string `json:"apply,omitempty"`
	// Effect is what it opens and closes besides.
	reach.Effect
	// Notes are what else is to be known of it.
	Notes []string `json:"notes,omitempty"`
	apply func(*explain.World)
}

// In returns a copy of a world with the change.
func (c Change) In(w *explain.World) *explain.World {
	after := w.Clone()
	c.apply(after)
	return after
}

// Asked is what advice is sought for.
type Asked struct {
	*explain.World
	// Flows are those of one service between the same two ends, in the families that both have.
	Flows []explain.Flow
	// Controllers are the names of what manages pods, such as "ReplicaSet web-7d4", by namespace/name of the pod.
	Controllers map[string]string
}

// trial is a change that may be what is sought.
type trial struct {
	Change
	// cost orders changes of labels: those that touch less cost less.
	cost int
}

// Nearest returns changes that allow all flows: policies to add, and then the change of labels that opens and closes the least. There are none if
// nothing denies the flows, or no change was found.
func (a Asked) Nearest() ([]Change, error) {
	q := question{Asked: a, objects: a.Objects()}
	for _, f := range a.Flows {
		v := a.Explain(f)
		q.verdicts = append(q.verdicts, v)
		q.denied[npc.Egress] = q.denied[npc.Egress] || !v.Egress.Allowed
		q.denied[npc.Ingress] = q.denied[npc.Ingress] || !v.Ingress.Allowed
	}
	if !q.denied[npc.Egress] && !q.denied[npc.Ingress] {
		return nil, nil
	}
	var out []Change
	policies, err := q.policies()
	if err != nil {
		return nil, err
	}
	for _, trials := range [][]trial{policies, q.relabellings()} {
		if best := q.best(trials); best != nil {
			out = append(out, best.Change)
		}
	}
	return out, nil
}

// question is what is asked, and what is known of it.
type question struct {
	Asked
	objects  explain.Objects
	verdicts []explain.Verdict
	denied   [2]bool // by direction
}

// mostTried is how many changes of a kind are compared by what they open and close.
const mostTried = 4

// best returns the trial that allows all flows and opens and closes the least; nil if there is none.
func (q question) best(trials []trial) (best *trial) {
	slices.SortStableFunc(trials, func(a, b trial) int { return a.cost - b.cost })
	compared := 0
	for _, t := range trials {
		after := t.In(q.World)
		if compared == mostTried || slices.ContainsFunc(q.Flows, func(f explain.Flow) bool { return !after.Explain(f).Allowed }) {
			continue
		}
		compared++
		t.Effect = reach.Effects(q.World, after, q.meant())
		if best == nil || burden(t.Effect) < burden(best.Effect) {
			best = &t
		}
	}
	return best
}

// burden is how much a change opens and closes.
func burden(e reach.Effect) int {
	n := e.Opens + e.Closes
	for _, outside := range []bool{e.OpensOutside, e.ClosesOutside} {
		if outside {
			n++
		}
	}
	return n
}

// meant is the flow that was asked about, with the names of pods.
func (q question) meant() explain.Flow {
	f := q.Flows[0]
	for d, e := range map[npc.Direction]*explain.End{npc.Egress: &f.From, npc.Ingress: &f.To} {
		if pod := q.pod(d); pod != nil {
			*e = explain.End{Pod: objectkey.Of(pod.Namespace, pod.Name)}
		}
	}
	return f
}

// pod returns the pod that is the flows' source, for egress, or destination; nil if it is none.
func (q question) pod(d npc.Direction) *npc.Pod {
	if d == npc.Egress {
		return q.objects.Pods[q.verdicts[0].Egress.Pod]
	}
	return q.objects.Pods[q.verdicts[0].Ingress.Pod]
}

func other(d npc.Direction) npc.Direction { return npc.Ingress + npc.Egress - d }

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
	t := trial{Change: Change{Text: addText(made), Apply: text, apply: func(w *explain.World) {
		for _, p := range made {
			w.SetPolicy(p.DeepCopy())
		}
	}}}
	if q.Flows[0].Service.Port == 0 {
		t.Notes = append(t.Notes, "a policy cannot name icmp: without ports it allows every protocol and port between the two")
	}
	return []trial{t}, nil
}
