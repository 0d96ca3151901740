package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// Network has a cluster's pods and the Services, slices and nodes that route to them.
type Network struct {
	view       *cluster.View
	services   []*corev1.Service
	slices     map[string][]*discoveryv1.EndpointSlice // namespace/name of a Service -> its slices
	nodes      map[netip.Addr]bool
	ranges     []addrRange
	unreadable []string
}

// New returns the network of a cluster.
func New(v *cluster.View, n snapshot.Network) *Network {
	x := &Network{view: v, services: n.Services, slices: map[string][]*discoveryv1.EndpointSlice{},
		nodes: map[netip.Addr]bool{}, unreadable: n.Unreadable}
	for _, s := range n.Slices {
		key := npc.ObjectKey(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		x.slices[key] = append(x.slices[key], s)
	}
	for _, p := range x.view.Pods {
		for _, a := range p.HostAddrs {
			x.nodes[a] = true
		}
	}
	for _, addrs := range NodeAddrs(n.Nodes) {
		for _, a := range addrs {
			x.nodes[a] = true
		}
	}
	x.ranges = findRanges(v, n.Services, n.Nodes)
	return x
}

// NodeAddrs returns the addresses in Node objects by the name of the node.
func NodeAddrs(nodes []*corev1.Node) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, node := range nodes {
		for _, a := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				out[node.Name] = append(out[node.Name], addr.Unmap())
			}
		}
	}
	return out
}

// Find returns the target of a connection to an address, to a name such as svc/NAME.NAMESPACE, or to a node as
// node/NAME. The port is one that flow.ParseService reads, or the name of a port of the Service. The target is nil if
// the text names no Service, and no node at which a Service has the port.
func (x *Network) Find(text, port string) (*Target, error) {
	if IsName(text) {
		return x.byName(text, port)
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return x.byNodeName(text, port)
	}
	a = a.Unmap()
	if s, via := x.at(a); s != nil {
		return x.target(s, via, port, a)
	}
	if x.nodes[a] {
		return x.byNodePort(a, port)
	}
	return nil, nil //nolint:nilnil // it is none
}

// FindAll returns the targets of connections to an address or to the name of a Service at each of its ports, or at one
// if it is given. There are none if the text names no Service.
func (x *Network) FindAll(text, port string) (all []*Target, err error) {
	s := x.service(text)
	if port != "" || s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		t, err := x.Find(text, port)
		if t != nil {
			all = append(all, t)
		}
		return all, err
	}
	for _, p := range s.Spec.Ports {
		t, err := x.Find(text, flow.Service{Protocol: npc.PortProtocol(p.Protocol), Port: uint16(p.Port)}.String())
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.Errorf("Service %s/%s has no port: give the one to ask about", s.Namespace, s.Name)
	}
	return all, nil
}

// service returns the Service that an address or a name is of; nil if it is of none.
func (x *Network) service(text string) *corev1.Service {
	if a, err := netip.ParseAddr(text); err == nil {
		s, _ := x.at(a.Unmap())
		return s
	}
	name, namespace := splitName(text)
	for _, s := range x.services {
		if IsName(text) && s.Name == name && s.Namespace == namespace {
			return s
		}
	}
	return nil
}

// at returns the Service that has an address, and a text about the address; nil and an empty text if none has.
func (x *Network) at(a netip.Addr) (*corev1.Service, string) {
	for _, s := range x.services {
		if via := x.via(s, a); via != "" {
			return s, via
		}
	}
	return nil, ""
}

// IsName reports whether a text is the name of a Service: svc/NAME.NAMESPACE or svc/NAMESPACE/NAME.
func IsName(text string) bool {
	rest, ok := strings.CutPrefix(text, "svc/")
	return ok && (strings.Contains(rest, ".") || strings.Contains(rest, "/"))
}

// splitName returns the name and the namespace of a text that IsName.
func splitName(text string) (name, namespace string) {
	name, namespace, dotted := strings.Cut(strings.TrimPrefix(text, "svc/"), ".")
	if dotted {
		return name, strings.TrimSuffix(strings.TrimSuffix(namespace, ".cluster.local"), ".svc")
	}
	namespace, name, _ = strings.Cut(name, "/")
	return name, namespace
}

func (x *Network) byName(text, port string) (*Target, error) {
	name, namespace := splitName(text)
	if s := x.service(text); s != nil {
		return x.target(s, "the name of Service "+npc.ObjectKey(namespace, name), port, netip.Addr{})
	}
	if len(x.unreadable) > 0 {
		return nil, errors.Errorf("Service %s/%s is not known: %s", namespace, name, strings.Join(x.unreadable, "; "))
	}
	for _, s := range x.services {
		if s.Name == name {
			return nil, errors.Errorf("there is no Service %s in namespace %s; did you mean svc/%s.%s?", name, namespace,
				name, s.Namespace)
		}
	}
	if err := x.view.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	names := func(yield func(string) bool) {
		for _, s := range x.services {
			if s.Namespace == namespace && !yield(s.Name) {
				return
			}
		}
	}
	return nil, errors.Errorf("there is no Service %s in namespace %s%s", name, namespace,
		spelling.DidYouMean(name, names))
}

// via returns a text about the address of a Service; it is empty if the Service does not have the address.
func (x *Network) via(s *corev1.Service, a netip.Addr) string {
	is := func(text string) bool {
		b, err := netip.ParseAddr(text)
		return err == nil && b.Unmap() == a
	}
	name := " of Service " + npc.ObjectKey(s.Namespace, s.Name)
	if slices.ContainsFunc(clusterIPs(s), is) {
		return "a cluster IP" + name
	}
	if slices.ContainsFunc(s.Spec.ExternalIPs, is) {
		return "an external IP" + name
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		if is(i.IP) {
			return "a load balancer's address" + name
		}
	}
	return ""
}

// byNodeName returns the target of a connection to a node by its name; nil if the text is not the name of one with
// addresses, or if no Service has the port.
func (x *Network) byNodeName(text, port string) (*Target, error) {
	ends, err := x.view.Find(text)
	if err != nil || !cluster.NamesNode(text) || ends[0].Pod != "" {
		return nil, nil //nolint:nilnil,nilerr // it names a pod
	}
	a := ends[0].Addr
	if slices.ContainsFunc(ends, func(e flow.End) bool { return family(e.Addr) != family(a) }) {
		a = netip.Addr{} // the node has both families
	}
	return x.byNodePort(a, port)
}

// byNodePort returns the target of a connection to a node; nil if no Service has the port.
func (x *Network) byNodePort(a netip.Addr, port string) (*Target, error) {
	asked, err := flow.ParseService(port)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // only a number can be a node's
	}
	for _, s := range x.services {
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 && p.NodePort == int32(asked.Port) && npc.PortProtocol(p.Protocol) == asked.Protocol {
				t := &Target{Service: npc.ObjectKey(s.Namespace, s.Name),
					Via: fmt.Sprintf("a node's address, where %s is port %s of Service %s/%s", asked,
						portName(p), s.Namespace, s.Name)}
				return x.complete(t, s, p, family(a))
			}
		}
	}
	return nil, nil //nolint:nilnil // the node answers itself
}

// target returns the target of a connection to an address or to the name of a Service.
func (x *Network) target(s *corev1.Service, via, port string, a netip.Addr) (*Target, error) {
	name := npc.ObjectKey(s.Namespace, s.Name)
	t := &Target{Service: name, Via: via}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, errors.Errorf("Service %s is another name for %s, by DNS: ask about its address", name,
			s.Spec.ExternalName)
	}
	p, err := servicePort(s, port)
	if err != nil {
		return nil, err
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		t.Notes = append(t.Notes, "the Service is headless: its name leads to its pods, and ports stay as they are")
		if asked, err := flow.ParseService(port); err == nil {
			// A connection to a number goes to that port.
			p.TargetPort.Type, p.TargetPort.IntVal, p.TargetPort.StrVal = 0, int32(asked.Port), ""
			p.Name = ""
		}
	}
	return x.complete(t, s, p, family(a))
}

// complete adds the endpoints to a target.
func (x *Network) complete(t *Target, s *corev1.Service, p corev1.ServicePort, of corev1.IPFamily) (*Target, error) {
	if of == "" && len(s.Spec.IPFamilies) == 1 {
		of = s.Spec.IPFamilies[0]
	}
	t.Endpoints = x.fromSlices(s, p, of)
	if len(x.slices[t.Service]) == 0 && len(s.Spec.Selector) > 0 {
		t.Endpoints = x.fromSelector(s, p, of)
	}
	if len(t.Endpoints) == 0 {
		return nil, errors.Errorf("Service %s has no endpoints for port %s: %s", t.Service, portName(p), x.lacking(s, p))
	}
	if p.NodePort != 0 && !strings.HasPrefix(t.Via, "the name") && !strings.HasPrefix(t.Via, "a cluster IP") &&
		s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		t.Notes = append(t.Notes,
			"a node that passes the connection on may put its own address in place of the source's")
	}
	return t, nil
}

// fromSlices returns the endpoints of EndpointSlices, except for those that are not ready.
func (x *Network) fromSlices(s *corev1.Service, p corev1.ServicePort, of corev1.IPFamily) (out []Endpoint) {
	for _, slice := range x.slices[npc.ObjectKey(s.Namespace, s.Name)] {
		if of != "" && string(slice.AddressType) != string(of) {
			continue
		}
		port := slicePort(slice, p)
		for _, e := range slice.Endpoints {
			if port.Port == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, text := range e.Addresses {
				a, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				end := flow.End{Addr: a.Unmap()}
				if r := e.TargetRef; r != nil && r.Kind == "Pod" &&
					x.isPodAt(npc.ObjectKey(r.Namespace, r.Name), end.Addr) {
					end.Pod = npc.ObjectKey(r.Namespace, r.Name)
				}
				if found := (Endpoint{end, port}); !slices.Contains(out, found) {
					out = append(out, found)
				}
			}
		}
	}
	sortEndpoints(out)
	return out
}

func (x *Network) isPodAt(name string, a netip.Addr) bool {
	p := x.view.Pods[name]
	return p != nil && slices.Contains(p.Claims(), a)
}

// fromSelector returns the pods that a Service selects and that have its port.
func (x *Network) fromSelector(s *corev1.Service, p corev1.ServicePort, of corev1.IPFamily) (out []Endpoint) {
	for name, pod := range x.view.Pods {
		if !selects(s, pod) {
			continue
		}
		port := podPort(pod, p)
		ends, err := x.view.Find(name)
		if err != nil || port.Port == 0 {
			continue
		}
		for _, e := range ends {
			if of == "" || !e.Addr.IsValid() || of == family(e.Addr) {
				out = append(out, Endpoint{e, port})
			}
		}
	}
	sortEndpoints(out)
	return out
}

// selects reports whether a Service selects a pod.
func selects(s *corev1.Service, pod *npc.Pod) bool {
	return pod.Namespace == s.Namespace && !pod.Finished && !pod.Deleting &&
		labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels))
}

// lacking returns why a Service has no endpoints for a port.
func (x *Network) lacking(s *corev1.Service, p corev1.ServicePort) string {
	if len(x.slices[npc.ObjectKey(s.Namespace, s.Name)]) > 0 || len(s.Spec.Selector) == 0 {
		return "nothing answers"
	}
	selected, has := false, false
	for _, pod := range x.view.Pods {
		if selects(s, pod) {
			selected, has = true, has || podPort(pod, p).Port != 0
		}
	}
	switch {
	case !selected:
		return "no running pod of its namespace has " + labels.Set(s.Spec.Selector).String()
	case !has:
		return fmt.Sprintf("no pod that it selects has a %s port of the name %s",
			npc.ProtocolName(npc.PortProtocol(p.Protocol)), p.TargetPort.StrVal)
	}
	return "nothing answers"
}

func family(a netip.Addr) corev1.IPFamily {
	switch {
	case !a.IsValid():
		return ""
	case a.Is4():
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// Name returns a text about the Service that has an address; it is empty if none has.
func (x *Network) Name(a netip.Addr) string {
	_, via := x.at(a)
	return via
}
