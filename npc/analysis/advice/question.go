package advice

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Suggestion is one way to allow the flows.
type Suggestion struct {
	// For is the end that the change is for, if there are several.
	For string `json:"for,omitempty"`
	// Text describes the change in one line.
	Text string `json:"text"`
	// Apply is the YAML of the objects to apply; empty if labels are to be changed.
	Apply string `json:"apply,omitempty"`
	// Effect is what the change opens and closes besides the flows.
	reachability.Effect
	// Notes are side effects of the change.
	Notes []string `json:"notes,omitempty"`
	apply func(*cluster.Cluster)
}

// In returns a copy of a cluster with the change.
func (c Suggestion) In(of *cluster.Cluster) *cluster.Cluster {
	after := of.Clone()
	c.apply(after)
	return after
}

// Request is what advice is sought for.
type Request struct {
	Cluster *cluster.Cluster
	// Flows are those of one service between the same two ends, in the families that both have.
	Flows []flow.Flow
	// Controllers are the names of what manages pods, such as "ReplicaSet web-7d4", by namespace/name of the pod.
	Controllers map[string]string
}

// trial is a change that may allow the flows.
type trial struct {
	Suggestion
	// cost orders changes of labels: those that affect less cost less.
	cost int
}

// question is a request with what explain answers to it.
type question struct {
	Request
	view     *cluster.View
	verdicts []explain.Verdict
	denied   [len(npc.Directions)]bool
}

// pod returns the pod that is the flows' source, for egress, or destination; nil if it is no pod.
func (q question) pod(d npc.Direction) *npc.Pod {
	return q.view.Pods[q.verdicts[0].Side(d).Pod]
}
