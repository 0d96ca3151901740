package expectation

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// NamesServices reports whether an expectation of the file names a Service.
func (f *File) NamesServices() bool {
	return slices.ContainsFunc(f.Expectations, func(e Expectation) bool {
		return slices.ContainsFunc(slices.Concat(e.From, e.To), isService)
	})
}

func isService(t Term) bool { return t.Kind == flow.KindService }

// Through replaces Services that are destinations by the pods that they select, and their ports by those of the pods.
func (f *File) Through(services []*corev1.Service) error {
	f.Expectations = slices.Clone(f.Expectations)
	for i := range f.Expectations {
		if err := f.Expectations[i].through(services); err != nil {
			e := &f.Expectations[i]
			return Problem{e.Path, e.Line, err.Error()}
		}
	}
	return nil
}

func (e *Expectation) through(services []*corev1.Service) error {
	if i := slices.IndexFunc(e.From, isService); i >= 0 {
		return errors.Errorf("%s is a Service, which opens no connections: name its pods", e.From[i].Text)
	}
	i := slices.IndexFunc(e.To, isService)
	switch {
	case i < 0:
		return nil
	case len(e.To) > 1:
		return errors.Errorf("%s is a Service, whose ports are others than those of its pods: "+
			"write an expectation for it alone", e.To[i].Text)
	}
	t := e.To[0]
	s, err := find(services, t)
	if err != nil {
		return err
	}
	e.To = Subject{{Text: t.Text, Namespace: t.Namespace,
		Pods: policy.Selector{Selector: labels.SelectorFromSet(s.Spec.Selector)}}}
	e.Ports, err = e.portsBehind(s)
	return err
}

// find returns the Service that a term names. It must select pods.
func find(services []*corev1.Service, t Term) (*corev1.Service, error) {
	var names []string
	for _, s := range services {
		switch {
		case s.Namespace != t.Namespace:
		case s.Name != t.Name:
			names = append(names, s.Name)
		case len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName:
			return nil, errors.Errorf("Service %s/%s selects no pods: name the addresses that it leads to", s.Namespace, s.Name)
		default:
			return s, nil
		}
	}
	return nil, errors.Errorf("there is no Service %s in namespace %s%s", t.Name, t.Namespace,
		spelling.DidYouMean(t.Name, slices.Values(names)))
}

// portsBehind returns the ports of the pods that those of an expectation are forwarded to. Without any, it is about all ports of
// the Service.
func (e *Expectation) portsBehind(s *corev1.Service) (out []Port, err error) {
	var has []string
	for _, p := range s.Spec.Ports {
		has = append(has, portOf(p).String())
		if len(e.Ports) == 0 {
			out = append(out, target(p))
		}
	}
	if len(e.Ports) == 0 && len(has) > 1 && e.Verb == Reaches {
		return nil, errors.Errorf("Service %s/%s has several ports: write on %s", s.Namespace, s.Name,
			strings.Join(has, " or on "))
	}
	for _, asked := range e.Ports {
		i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
			return portOf(p) == asked || asked.Name != "" && asked.Name == p.Name && asked.Protocol == portOf(p).Protocol
		})
		switch {
		case i >= 0:
			out = append(out, target(s.Spec.Ports[i]))
		case s.Spec.ClusterIP == corev1.ClusterIPNone && asked.Name == "":
			out = append(out, asked) // a headless Service has every port
		default:
			return nil, errors.Errorf("Service %s/%s has no port %s; it has %s", s.Namespace, s.Name, asked,
				strings.Join(has, ", "))
		}
	}
	return out, nil
}

// portOf returns a port of a Service.
func portOf(p corev1.ServicePort) Port {
	return Port{Protocol: npc.PortProtocol(p.Protocol), First: uint16(p.Port), Last: uint16(p.Port)}
}

// target returns the port of pods that one of a Service is forwarded to.
func target(p corev1.ServicePort) Port {
	to := portOf(p)
	switch number := uint16(p.TargetPort.IntVal); {
	case p.TargetPort.StrVal != "":
		return Port{Protocol: to.Protocol, Name: p.TargetPort.StrVal}
	case number != 0:
		to.First, to.Last = number, number
	}
	return to
}
