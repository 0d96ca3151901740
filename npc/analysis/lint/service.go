package lint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
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
	closed := func(e service.Endpoint) bool { return isIsolated(l.view, e) && !isOpen(l.view, e) }
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
			if i := slices.IndexFunc(t.Endpoints, closed); i >= 0 && !slices.ContainsFunc(t.Endpoints, open) {
				e := t.Endpoints[i]
				isolating, _ := l.view.Isolating(l.view.Pods[e.Pod], npc.Ingress)
				p := isolating[0]
				l.add(serviceClosed, subject{manifest.KindNetworkPolicy, p.Namespace, p.Name}, "",
					fmt.Sprintf("no rule lets addresses outside reach %s of pod %s, which is behind %s %s/%s",
						e.Service, e.Pod, s.Spec.Type, s.Namespace, s.Name), "")
			}
		}
	}
}

// isIsolated reports whether NetworkPolicies isolate an endpoint.
func isIsolated(v *cluster.View, e service.Endpoint) bool {
	p := v.Pods[e.Pod]
	if p == nil {
		return false
	}
	_, isolated := v.Isolating(p, npc.Ingress)
	return isolated
}

// isOpen reports whether policies may let addresses outside reach an endpoint.
func isOpen(v *cluster.View, e service.Endpoint) (may bool) {
	p := v.Pods[e.Pod]
	if p == nil {
		return true
	}
	of := v.Applied(p, npc.Ingress)
	q := policy.Question[policy.Fit, cluster.Rule]{
		Sets:   policy.Fits(),
		Action: cluster.Rule.Does,
		Matches: func(r cluster.Rule) policy.Fit {
			return min(policy.FitOf(hasPort(r.Ports, e.Service, p)), fitOutside(r.Peers))
		},
		Decide: func(d policy.Decision[cluster.Rule], _, _ policy.Fit) { may = may || d.Action == policy.Accept },
	}
	q.Ask(&of, policy.Always)
	return may
}

// hasPort reports whether ports of a rule have one of a pod.
func hasPort(ports []policy.Port, s flow.Service, p *npc.Pod) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(r policy.Port) bool {
		if r.Name == "" {
			return r.Includes(s.Protocol, s.Port)
		}
		return slices.Contains(p.Ports, npc.NamedPort{Name: r.Name, Protocol: s.Protocol, Port: s.Port})
	})
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
