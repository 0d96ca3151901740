package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// checkServices looks for Services for clients outside of the cluster whose pods no rule lets addresses outside reach.
func checkServices(l *linter, n snapshot.Network) {
	network := service.New(l.view, n)
	for _, s := range n.Services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeNodePort {
			continue
		}
		targets, err := network.FindAll("svc/"+s.Name+"."+s.Namespace, "")
		if err != nil {
			continue // it has no port, or no pod
		}
		for _, t := range targets {
			if e, isolating := closed(l.view, t.Endpoints, fitOutside); isolating != nil {
				l.add(serviceClosed, *isolating, "",
					fmt.Sprintf("no rule lets addresses outside reach %s of pod %s, which is behind %s %s/%s",
						e.Service, e.Pod, s.Spec.Type, s.Namespace, s.Name), "")
			}
		}
	}
	if len(n.Services) > 0 || !l.manifests {
		for _, e := range n.Entrances {
			for _, b := range e.Backends {
				checkBackend(l, network, &n, &e, b)
			}
		}
	}
}

// checkBackend looks for what keeps the controller of an Ingress or of an HTTPRoute from a Service.
func checkBackend(l *linter, network *service.Network, n *snapshot.Network, e *snapshot.Entrance, b snapshot.Backend) {
	i := slices.IndexFunc(n.Services, func(s *corev1.Service) bool {
		return s.Namespace == b.Namespace && s.Name == b.Service
	})
	targets, err := network.FindAll("svc/"+b.Service+"."+b.Namespace, b.Port)
	switch {
	case i < 0 && len(n.Unreadable) > 0 || i >= 0 && n.Services[i].Spec.Type == corev1.ServiceTypeExternalName:
		return
	case i < 0 || err != nil && !service.HasPort(n.Services[i], b.Port):
		level := backendMissing.Level
		if i < 0 && l.manifests { // it may be in other manifests
			level = Note
		}
		l.found = append(l.found, Finding{Rule: backendMissing.ID, Level: level, Message: err.Error(), Kind: e.Kind,
			Namespace: e.Namespace, Name: e.Name, File: e.Path, Line: e.Line})
		return
	}
	for _, t := range targets { // none if the Service has no pod
		elsewhere := func(peers []policy.Peer) policy.Fit { return l.fitElsewhere(peers, t.Endpoints) }
		if at, isolating := closed(l.view, t.Endpoints, elsewhere); isolating != nil {
			l.add(backendBlocked, *isolating, "",
				fmt.Sprintf("no rule lets pods of other namespaces or addresses outside reach %s of pod %s, "+
					"which %s %s/%s leads to: its controller cannot, unless it runs in the same namespace",
					at.Service, at.Pod, e.Kind, e.Namespace, e.Name), "")
		}
	}
}

// closed returns an endpoint that policies close, and one of these, if they close all to some peers. The function
// reports whether peers of a rule are among them.
func closed(v *cluster.View, all []service.Endpoint, fit func([]policy.Peer) policy.Fit) (service.Endpoint, *subject) {
	isOpen := func(e service.Endpoint) bool {
		p := v.Pods[e.Pod]
		return p == nil || mayAccept(v.Applied(p, npc.Ingress), func(r cluster.Rule) policy.Fit {
			return min(policy.FitOf(hasPort(r.Ports, e.Service, p)), fit(r.Peers))
		})
	}
	if slices.ContainsFunc(all, isOpen) {
		return service.Endpoint{}, nil
	}
	for _, e := range all {
		if isolating, _ := v.Isolating(v.Pods[e.Pod], npc.Ingress); len(isolating) > 0 {
			return e, &subject{manifest.KindNetworkPolicy, isolating[0].Namespace, isolating[0].Name}
		}
	}
	return service.Endpoint{}, nil // a policy of a tier closes it
}

// fitElsewhere reports whether peers are pods of other namespaces than those of some endpoints, or addresses outside.
// Manifests need not have those pods.
func (l *pods) fitElsewhere(peers []policy.Peer, of []service.Endpoint) policy.Fit {
	own, _, _ := strings.Cut(of[0].Pod, "/")
	isElsewhere := func(p policy.Peer) bool {
		return p.Namespaces != nil && (l.manifests && !namesOnly(*p.Namespaces, own) ||
			slices.ContainsFunc(l.peerGroups(p), func(g *group) bool { return g.Namespace != own }))
	}
	if slices.ContainsFunc(peers, isElsewhere) {
		return policy.Maybe
	}
	return fitOutside(peers)
}

// namesOnly reports whether a selector selects one namespace alone, by its name.
func namesOnly(s policy.Selector, name string) bool {
	names, named := constraintsOf(s)[corev1.LabelMetadataName]
	return named && !names.others && len(names.values) == 1 && names.values[name]
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

// clusterIP is an address of a Service inside the cluster.
type clusterIP struct {
	netip.Addr
	service string
}

// clusterIPs returns those of Services, sorted.
func clusterIPs(services []*corev1.Service) (all []clusterIP) {
	for _, s := range services {
		texts := s.Spec.ClusterIPs
		if len(texts) == 0 {
			texts = []string{s.Spec.ClusterIP}
		}
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil {
				all = append(all, clusterIP{a, npc.ObjectKey(s.Namespace, s.Name)})
			}
		}
	}
	slices.SortFunc(all, func(a, b clusterIP) int { return a.Compare(b.Addr) })
	return all
}

// serviceWithin returns a Service whose ClusterIP a block matches, if it has no address of a pod or of a node. Of
// manifests, which do not have these, narrow blocks alone count. Wider ones than ranges of Services are for other
// addresses too.
func serviceWithin(l *linter, b ipblock.Block) (service string, is bool) {
	const widest4, widest6 = 12, 64
	if l.manifests && !narrow(b.CIDR) || b.CIDR.Bits() < widest4 || b.CIDR.Addr().Is6() && b.CIDR.Bits() < widest6 {
		return "", false
	}
	if i, _ := slices.BinarySearchFunc(l.addrs, b.CIDR.Masked().Addr(), netip.Addr.Compare); i < len(l.addrs) &&
		b.CIDR.Contains(l.addrs[i]) || slices.ContainsFunc(l.hosts, b.CIDR.Contains) {
		return "", false
	}
	i := slices.IndexFunc(l.clusterIPs, func(ip clusterIP) bool {
		in, _ := b.Contains(ip.Addr)
		return in
	})
	if i < 0 {
		return "", false
	}
	return l.clusterIPs[i].service, true
}
