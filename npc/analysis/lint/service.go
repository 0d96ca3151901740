package lint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// checkServices looks for Services for clients outside of the cluster whose pods no rule lets addresses outside reach.
func checkServices(l *linter, n snapshot.Network) {
	network := service.New(l.view, n)
	open := func(e service.Endpoint) bool { return isOpen(l.view, e) }
	for _, s := range n.Services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeNodePort {
			continue
		}
		targets, err := network.FindAll("svc/"+s.Name+"."+s.Namespace, "")
		if err != nil {
			continue // it has no port, or no pod
		}
		for _, t := range targets {
			if slices.ContainsFunc(t.Endpoints, open) {
				continue
			}
			for _, e := range t.Endpoints {
				isolating, _ := l.view.Isolating(l.view.Pods[e.Pod], npc.Ingress)
				if len(isolating) == 0 {
					continue // a policy of a tier closes it
				}
				l.add(serviceClosed, subject{manifest.KindNetworkPolicy, isolating[0].Namespace, isolating[0].Name}, "",
					fmt.Sprintf("no rule lets addresses outside reach %s of pod %s, which is behind %s %s/%s",
						e.Service, e.Pod, s.Spec.Type, s.Namespace, s.Name), "")
				break
			}
		}
	}
}

// isOpen reports whether policies may let addresses outside reach an endpoint.
func isOpen(v *cluster.View, e service.Endpoint) bool {
	p := v.Pods[e.Pod]
	return p == nil || mayAccept(v.Applied(p, npc.Ingress), func(r cluster.Rule) policy.Fit {
		return min(policy.FitOf(hasPort(r.Ports, e.Service, p)), fitOutside(r.Peers))
	})
}

// hasPort reports whether ports of a rule have one of a pod.
func hasPort(ports []policy.Port, s flow.Service, p *npc.Pod) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(r policy.Port) bool { return explain.PortFits(r, s, p) })
}

// fitOutside reports whether peers are addresses outside. Those of a block may be.
func fitOutside(peers []policy.Peer) policy.Fit {
	switch {
	case len(peers) == 0:
		return policy.Always
	case slices.ContainsFunc(peers, func(p policy.Peer) bool { return p.Block != nil }):
		return policy.Maybe
	}
	return policy.Never
}
