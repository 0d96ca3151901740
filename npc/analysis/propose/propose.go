// Package propose finds the NetworkPolicies that allow the connections of a recording, and nothing else.
//
// The connections are those from and to the workloads of a namespace; nothing else is what labels can distinguish.
//
//	policies, err := propose.Request{Namespace: "shop", Records: records, Limit: 8}.Policies()
//	fmt.Print(policies[0].Text)    // YAML, with the connections that justify each rule as comments
//
//	records ─▶ counts (workloads, names of ports) ─▶ log (what each workload needs) ─▶ rules ─▶ Policy
//
// It does not know which policies there are, but for their names, nor why connections were allowed.
package propose

import (
	"maps"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// Request is what policies are sought for.
type Request struct {
	Namespace string
	// Records are as flowlog.Read gives them, which checks their names and labels. Those count that were allowed and
	// got a reply.
	Records []flowlog.Record
	// Known is what manifests show of the cluster, or nil: further pods to distinguish, how they name their ports, the
	// addresses of their nodes and the names of existing policies.
	Known *cluster.View
	// Limit is how many ranges of addresses a rule may have. It is at least 1; a rule with addresses of both families
	// has two or more.
	Limit int
	// All asks for a policy that allows nothing for every workload that has no connections that count.
	All bool
	// Group is the group of staged policies that the policies are to be in; empty if they are not staged.
	Group string
}

// Proposal is a proposed policy, for the pods of a workload in both directions.
type Proposal struct {
	Object *networkingv1.NetworkPolicy
	// Text is the object as YAML, with the connections that justify each rule as comments.
	Text string
}

// Policies returns the policies, ordered by the names of the workloads, and the workloads of the namespace that get
// none.
func (r Request) Policies() (policies []Proposal, without []string, err error) {
	c := count(r.Records, r.Known)
	if err := r.check(c); err != nil {
		return nil, nil, err
	}
	all, names := read(r.Records, r.Namespace, c, r.Known), r.names()
	for _, w := range c.in(r.Namespace) {
		d := draft{workload: w}
		for _, direction := range npc.Directions {
			seen := all.in(w, direction)
			d.seen = append(d.seen, seen...)
			d.rules[direction] = rules(seen, direction, r.Limit, c.addrs)
		}
		if len(d.seen) == 0 && !r.All {
			without = append(without, w.String())
			continue
		}
		d.name = names.free(w.nickname())
		o := d.object()
		if r.Group != "" {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, staged.Annotation, r.Group)
		}
		text, err := d.text(o)
		if err != nil {
			return nil, nil, errors.Wrapf(err, "writing policy %s", d.name)
		}
		policies = append(policies, Proposal{o, text})
	}
	if len(policies) == 0 {
		return nil, nil, errors.Errorf("no connection from or to pods of namespace %s was allowed and got a reply",
			r.Namespace)
	}
	return policies, without, nil
}

// check returns an error if the namespace is not known, or the limit is not positive.
func (r Request) check(c *counts) error {
	if r.Limit < 1 {
		return errors.Errorf("a limit of %d ranges allows no address; give 1 or more", r.Limit)
	}
	known := map[string]bool{}
	for _, w := range c.workloads {
		known[w.namespace] = true
	}
	if !known[r.Namespace] {
		return errors.Errorf("there is no pod of namespace %s%s", r.Namespace,
			spelling.DidYouMean(r.Namespace, maps.Keys(known)))
	}
	return nil
}

// names returns the names that policies of the namespace have.
func (r Request) names() taken {
	t := taken{}
	if r.Known != nil {
		for _, p := range r.Known.Policies {
			if p.Namespace == r.Namespace {
				t[p.Name] = true
			}
		}
	}
	return t
}
