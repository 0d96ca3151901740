package e2e

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/refmodel"
)

// Evaluated returns the cluster for the reference model. Its nodes are those of the cluster.
func (o *Objects) Evaluated(t *testing.T, in *Cluster) refmodel.State {
	t.Helper()
	w := refmodel.State{Namespaces: map[string]map[string]string{}}
	for _, n := range in.Nodes() {
		w.Nodes = append(w.Nodes, refmodel.Node{Name: n.Name(), Addrs: n.Addrs()})
	}
	for name, n := range o.Namespaces {
		w.Namespaces[name] = map[string]string{corev1.LabelMetadataName: name}
		for k, v := range n.Labels {
			w.Namespaces[name][k] = v
		}
	}
	for _, p := range o.Pods {
		if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		j := refmodel.Pod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Labels: p.Labels}
		for _, ip := range p.Status.PodIPs {
			j.Addrs = append(j.Addrs, netip.MustParseAddr(ip.IP))
		}
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				if port.Protocol == "" {
					port.Protocol = corev1.ProtocolTCP
				}
				j.Ports = append(j.Ports, port)
			}
		}
		w.Pods = append(w.Pods, j)
	}
	for name, spec := range o.Policies {
		var p networkingv1.NetworkPolicy
		p.Namespace, p.Name, _ = strings.Cut(name, "/")
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		w.Policies = append(w.Policies, p)
	}
	for name, spec := range o.Tiers {
		var p v1alpha2.ClusterNetworkPolicy
		p.Name = name
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		w.ClusterPolicies = append(w.ClusterPolicies, p)
	}
	return w
}

// PacketOf returns a packet of the lab for the reference model.
func PacketOf(from, to netip.Addr, proto string, port uint16) refmodel.Packet {
	return refmodel.Packet{Src: from, Dst: to, Protocol: corev1.Protocol(strings.ToUpper(proto)), Port: int32(port)}
}
