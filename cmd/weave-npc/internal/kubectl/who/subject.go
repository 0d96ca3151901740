package who

import (
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/analysis/whocan"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// subject is what a question is about.
type subject struct {
	name string
	whocan.Question
	// via describes the Service that targets it; empty if none does.
	via string
}

// find returns what a text names: a pod, an address, or the pods behind a Service, one for each and each port.
func (o *options) find(v *cluster.View, network *service.Network, text string) ([]subject, error) {
	if network != nil {
		if found, err := o.behind(network, text); err != nil || len(found) > 0 {
			return found, err
		}
	}
	ends, err := v.Find(text)
	if err != nil {
		return nil, err
	}
	if v.Pods[ends[0].Pod] == nil {
		if why := cluster.UnreadablePod(v, ends[0]); why != "" {
			return nil, errors.Errorf("who it is, is not known: %s", why)
		}
	}
	s := subject{name: text, Question: whocan.Question{Ends: ends, Direction: o.direction}}
	if owner := v.Owner(ends[0].Addr, ""); ends[0].Pod == "" && owner != nil {
		s.Ends[0].Pod = owner.Namespace + "/" + owner.Name
	}
	if s.Ends[0].Pod != "" {
		s.name = s.Ends[0].Pod
	}
	if network != nil && s.Ends[0].Pod == "" {
		if doubt := network.Doubt(ends[0].Addr); doubt != "" {
			return nil, errors.New(doubt)
		}
	}
	if o.port == "" {
		return []subject{s}, nil
	}
	service, err := v.Service(o.port, ends)
	if err != nil {
		return nil, errors.Wrap(err, "--port")
	}
	s.Services = []flow.Service{service}
	return []subject{s}, nil
}

// behind returns the pods behind a Service; none if the text names no Service.
func (o *options) behind(network *service.Network, text string) (found []subject, err error) {
	if o.direction == npc.Egress {
		if a, err := netip.ParseAddr(text); service.IsName(text) || err == nil && network.Name(a.Unmap()) != "" {
			return nil, errors.Errorf("%s is a Service, which reaches nothing itself: give one of its pods", text)
		}
		return nil, nil // --port is that of what a node reaches, not its own
	}
	targets, err := network.FindAll(text, o.port)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		for _, e := range t.Endpoints {
			name := e.Pod
			if name == "" {
				name = e.Addr.String()
			}
			via := fmt.Sprintf("%s: %s", t.Via, e.Service)
			i := slices.IndexFunc(found, func(s subject) bool { return s.name == name && s.via == via })
			if i >= 0 {
				found[i].Ends = append(found[i].Ends, e.End)
				continue
			}
			found = append(found, subject{name: name, via: via, Question: whocan.Question{
				Ends: []flow.End{e.End}, Direction: o.direction, Services: []flow.Service{e.Service}}})
		}
	}
	return found, nil
}

// answer is the answer about a subject, and about others with the same answer.
type answer struct {
	subject
	neighbours []whocan.Neighbour
	alike      []string
	omitted    []string
}

// ask answers about each subject. Of subjects that are alike, the first stands for all.
func ask(v *cluster.View, subjects []subject, eachPod bool, stderr io.Writer) (answers []answer) {
	for i, s := range subjects {
		cli.Doing(stderr, "evaluating the policies for %s, %d of %d", s.name, i+1, len(subjects))
		answered := func(a answer) bool { return a.via == s.via && slices.Contains(a.alike, s.name) }
		if slices.ContainsFunc(answers, answered) {
			continue
		}
		s.EachPod = eachPod
		all := whocan.Around(v, s.Question)
		answers = append(answers, answer{s, all.Neighbours, all.Alike, all.Omitted})
	}
	return answers
}
