package query

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/advice"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Explanation is the answer to a query.
type Explanation struct {
	// Allowed reports whether all verdicts allow the connection, including those of the kernel if there are any.
	Allowed bool `json:"allowed"`
	// Unknown is set if neither is known: no verdict denies the connection, and for one something could not be read
	// that decides.
	Unknown bool `json:"unknown,omitempty"`
	// Service is the Service that the connection goes to, with verdicts for each of its endpoints; nil if it goes to
	// none.
	Service  *service.Target   `json:"service,omitempty"`
	Verdicts []explain.Verdict `json:"verdicts"`
	// Kernel is what the kernel of this node does.
	Kernel []kernelview.FlowTrace `json:"kernel,omitempty"`
	// Nearest are alternative changes that would allow what is denied, the preferred one first.
	Nearest []advice.Suggestion `json:"nearest,omitempty"`
	// Warnings are reasons against taking an address for what it seems to be.
	Warnings []string `json:"warnings,omitempty"`
	// Groups are the verdicts for each endpoint.
	Groups [][]explain.Verdict `json:"-"`
}

// maxAdvised is the number of endpoints of a Service that get advice of their own.
const maxAdvised = 3

// Explain answers a query.
func Explain(q Query, k Knowledge) (*Explanation, error) {
	r, err := q.resolve(k)
	if err != nil {
		return nil, err
	}
	x := &Explanation{Allowed: true, Service: r.target, Warnings: r.doubts}
	for _, flows := range r.flows {
		x.addVerdicts(k.Cluster.View(), flows)
	}
	// A mistyped address needs no policy, nor may what is not known, and what a change would open is not known without
	// all rights.
	if read := !k.Cluster.View().Unreadable.Any(); read && !x.Unknown && len(r.doubts) == 0 {
		if err := x.addAdvice(k, r.flows); err != nil {
			return nil, err
		}
	}
	if k.Kernel != nil {
		err = x.addKernel(k, slices.Concat(r.flows...))
	}
	return x, err
}

// addVerdicts adds the verdicts on the flows to one endpoint.
func (x *Explanation) addVerdicts(c *cluster.View, flows []flow.Flow) {
	var verdicts []explain.Verdict
	for _, f := range flows {
		v := explain.Explain(c, f)
		verdicts = append(verdicts, v)
		x.Allowed = x.Allowed && v.Allowed
	}
	x.Verdicts, x.Groups = append(x.Verdicts, verdicts...), append(x.Groups, verdicts)
	x.Unknown = !x.Allowed &&
		!slices.ContainsFunc(x.Verdicts, func(v explain.Verdict) bool { return !v.Allowed && !v.Unknown })
}

// addAdvice adds changes for the first endpoints that are denied. The change preferred for one may be enough for the
// next, so each endpoint is looked at as if the changes before were made.
func (x *Explanation) addAdvice(k Knowledge, endpoints [][]flow.Flow) error {
	c, controllers, advised := k.Cluster, controllers(k.Pods), 0
	for _, flows := range endpoints {
		if advised == maxAdvised {
			return nil
		}
		changes, err := advice.Request{Cluster: c, Flows: flows, Controllers: controllers}.Nearest()
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			continue
		}
		advised++
		c = changes[0].In(c)
		if len(endpoints) > 1 {
			for i := range changes {
				changes[i].For = flows[0].To.String()
			}
		}
		x.Nearest = append(x.Nearest, changes...)
	}
	return nil
}

// addKernel adds what the kernel does with the flows.
func (x *Explanation) addKernel(k Knowledge, flows []flow.Flow) error {
	for _, f := range flows {
		v, err := k.Kernel.Verdict(f, k.Node)
		if err != nil {
			return err
		}
		x.Kernel = append(x.Kernel, v)
		x.Allowed = x.Allowed && (!v.Asked || v.Accepted)
	}
	return nil
}

// controllers returns the controllers of pods, as kind and name, by namespace/name of the pod.
func controllers(pods []*corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, p := range pods {
		if owner := metav1.GetControllerOf(p); owner != nil {
			out[npc.ObjectKey(p.Namespace, p.Name)] = owner.Kind + " " + owner.Name
		}
	}
	return out
}
