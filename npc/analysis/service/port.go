package service

import (
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// servicePort returns the port of a Service with a number or a name. A headless Service has every port.
func servicePort(s *corev1.Service, text string) (corev1.ServicePort, error) {
	asked, err := flow.ParseService(text)
	number := err == nil
	name, of := strings.ToLower(text), uint8(0)
	if word, rest, slash := strings.Cut(name, "/"); slash {
		name, of = rest, npc.PortProtocol(corev1.Protocol(strings.ToUpper(word)))
	}
	var has []string
	for _, p := range s.Spec.Ports {
		has = append(has, portName(p))
		if number && int32(asked.Port) == p.Port && asked.Protocol == npc.PortProtocol(p.Protocol) {
			return p, nil
		}
		if !number && p.Name == name && (of == 0 || of == npc.PortProtocol(p.Protocol)) {
			return p, nil
		}
	}
	if number && asked.Port == 0 {
		return corev1.ServicePort{}, errors.Errorf("Service %s/%s passes on ports, not icmp; ask about its pods",
			s.Namespace, s.Name)
	}
	if number && s.Spec.ClusterIP == corev1.ClusterIPNone {
		return corev1.ServicePort{Protocol: npc.APIProtocol(asked.Protocol), Port: int32(asked.Port)}, nil
	}
	if text == "" && len(s.Spec.Ports) == 1 {
		return s.Spec.Ports[0], nil
	}
	if text == "" {
		return corev1.ServicePort{}, errors.Errorf("the port of Service %s/%s is missing; it has %s", s.Namespace, s.Name,
			strings.Join(has, ", "))
	}
	return corev1.ServicePort{}, errors.Errorf("Service %s/%s has no port %q; it has %s", s.Namespace, s.Name, text,
		strings.Join(has, ", "))
}

// HasPort reports whether a Service has a port with a number or a name.
func HasPort(s *corev1.Service, text string) bool {
	_, err := servicePort(s, text)
	return err == nil
}

// portName returns a port with its name in parentheses.
func portName(p corev1.ServicePort) string {
	text := flow.Service{Protocol: npc.PortProtocol(p.Protocol), Port: uint16(p.Port)}.String()
	if p.Name != "" {
		text += " (" + p.Name + ")"
	}
	return text
}

// slicePort returns the port of a slice's endpoints that a Service's port leads to. Its number is 0 if they have none.
func slicePort(slice *discoveryv1.EndpointSlice, p corev1.ServicePort) flow.Service {
	port := flow.Service{Protocol: npc.PortProtocol(p.Protocol)}
	for _, q := range slice.Ports {
		if q.Port == nil || q.Protocol != nil && npc.PortProtocol(*q.Protocol) != port.Protocol {
			continue
		}
		if q.Name == nil && p.Name == "" || q.Name != nil && *q.Name == p.Name {
			port.Port = uint16(*q.Port)
		}
	}
	if port.Port == 0 && p.Name == "" && p.TargetPort.IntVal != 0 {
		port.Port = uint16(p.TargetPort.IntVal)
	}
	return port
}

// podPort returns the port of a pod that a Service's port leads to. Its number is 0 if the pod has no port of the name.
func podPort(pod *npc.Pod, p corev1.ServicePort) flow.Service {
	port := flow.Service{Protocol: npc.PortProtocol(p.Protocol), Port: uint16(p.TargetPort.IntVal)}
	for _, named := range pod.Ports {
		if p.TargetPort.StrVal != "" && named.Name == p.TargetPort.StrVal && named.Protocol == port.Protocol {
			port.Port = named.Port
		}
	}
	if port.Port == 0 && p.TargetPort.StrVal == "" {
		port.Port = uint16(p.Port)
	}
	return port
}
