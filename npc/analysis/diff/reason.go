package diff

import (
	"fmt"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/analysis/replay"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// Example is one of the flows of a group.
type Example struct {
	From string       `json:"from"`
	To   string       `json:"to"`
	Port flow.Service `json:"port"`
	// Family is IPv4 or IPv6; empty if an end has no address yet.
	Family string `json:"family,omitempty"`
	// Only is set if the group is this flow alone.
	Only bool `json:"only,omitempty"`
}

// String returns the example as commands name flows.
func (e Example) String() string { return fmt.Sprintf("%s -> %s, %s", e.From, e.To, e.Port) }

// Reason is what decides about a flow in a cluster state.
type Reason struct {
	Allowed bool `json:"allowed"`
	// Absent are the pods that are not in the cluster state.
	Absent []string `json:"absent,omitempty"`
	// Sides are the directions that decide: the ones that are allowed in one cluster state only.
	Sides []Decision `json:"sides,omitempty"`
}

// Decision is what decides in a direction.
type Decision struct {
	Direction string `json:"direction"`
	Allowed   bool   `json:"allowed"`
	// Text is what decides in words, By the rules, or the policies that isolate the pod if no rule allows the flow.
	Text string            `json:"text"`
	By   []flowlog.RuleRef `json:"by,omitempty"`
}

// String returns the reason in words.
func (r Reason) String() string {
	if len(r.Absent) > 0 {
		return strings.Join(r.Absent, " and ") + map[bool]string{true: " is not there", false: " are not there"}[len(r.Absent) == 1]
	}
	return strings.Join(spelling.Texts(r.Sides), "; ")
}

// String returns the decision in words, with the rules that decide.
func (d Decision) String() string {
	var rules []string
	for _, r := range d.By {
		if r.Tier == "" { // the text names others
			rules = append(rules, r.String())
		}
	}
	if len(rules) > 3 {
		rules = append(rules[:3], fmt.Sprintf("%d more", len(rules)-3))
	}
	if len(rules) > 0 {
		return d.Text + " (" + strings.Join(rules, ", ") + ")"
	}
	return d.Text
}

// explain adds an example, and what decides about it.
func (s *Side) explain(g *Group, of *group) {
	from, to := s.pair(of)
	from, to = s.otherNode(from, to), s.otherNode(to, from)
	g.Example = Example{From: s.endText(from), To: s.endText(to), Port: of.ports.example(s.declared(to)),
		Only: of.pods+of.outside == 1 && len(of.ports) == 1 && of.ports[0].First == of.ports[0].Last}
	for _, is4 := range []bool{true, false} {
		was, inFirst := s.verdict(0, from, to, g.Example.Port, is4)
		is, inSecond := s.verdict(1, from, to, g.Example.Port, is4)
		absent := [2]bool{!from.In[0] || !to.In[0], !from.In[1] || !to.In[1]}
		if inFirst == absent[0] || inSecond == absent[1] || inFirst && was.Allowed == s.opens ||
			inSecond && is.Allowed != s.opens {
			continue
		}
		v := is
		if !inSecond {
			v = was
		}
		if v.Flow.From.Addr.IsValid() && v.Flow.To.Addr.IsValid() {
			g.Example.Family = npc.FamilyOf(v.Flow.To.Addr).String()
		}
		g.Before, g.After = s.reason(0, was, inFirst, is, inSecond, from, to),
			s.reason(1, is, inSecond, was, inFirst, from, to)
		return
	}
}

// pair returns two subjects of a group, or one that stands for a workload twice. At most one of them is addresses.
func (s *Side) pair(of *group) (from, to *reachability.Subject) {
	for _, line := range of.sources.numbers {
		for _, a := range of.sources.members[line] {
			for _, column := range of.destinations.numbers {
				for _, b := range of.destinations.members[column] {
					if a != b && (s.of[a] >= 0 || s.of[b] >= 0) {
						return &s.Subjects[a], &s.Subjects[b]
					}
					if a == b && s.several[a] && from == nil {
						from, to = &s.Subjects[a], &s.Subjects[b]
					}
				}
			}
		}
	}
	return from, to
}

// otherNode returns a subject, if it is Nodes, with the address of one that the pod at the other end is not on.
func (s *Side) otherNode(of, pod *reachability.Subject) *reachability.Subject {
	for _, a := range of.NodeAddrs {
		own := false
		for state, v := range s.states {
			own = own || pod.In[state] && pod.Pod != "" && v.NodeHas(v.Pods[pod.Pod].Node, a)
		}
		if !own {
			other := *of
			other.Addr = a
			return &other
		}
	}
	return of
}

// declared returns the ports that a subject declares in the second cluster state, or else in the first.
func (s *Side) declared(e *reachability.Subject) []npc.NamedPort {
	if ports := cluster.DeclaredPorts(s.states[1], e.Pod); len(ports) > 0 {
		return ports
	}
	return cluster.DeclaredPorts(s.states[0], e.Pod)
}

func (s *Side) endText(e *reachability.Subject) string {
	if e.Domain != "" {
		return e.Domain
	}
	if e.Pod == "" {
		return e.Addr.String()
	}
	return e.Pod
}

// verdict returns the verdict between two subjects in a cluster state and a family; ok is false if there is no flow.
func (s *Side) verdict(
	state int, from, to *reachability.Subject, port flow.Service, is4 bool,
) (v explain.Verdict, ok bool) {
	view := s.states[state]
	if from == to {
		var others map[string]string
		view, others = s.others[state]()
		other := *to
		other.Pod, to = others[to.Pod], &other
	}
	a, hasFrom := end(view, state, from, is4)
	b, hasTo := end(view, state, to, is4)
	if !hasFrom || !hasTo {
		return v, false
	}
	return explain.Explain(view, flow.Flow{From: a, To: b, Service: port}), true
}

// end returns the end of a subject in a family; ok is false if it has none.
func end(v *cluster.View, state int, s *reachability.Subject, is4 bool) (e flow.End, ok bool) {
	switch {
	case s.Pod == "":
		return flow.End{Addr: s.Addr}, s.Addr.Is4() == is4
	case !s.In[state]:
		return e, false
	}
	for _, e := range v.OwnedEnds(s.Pod) {
		if !e.Addr.IsValid() || e.Addr.Is4() == is4 {
			return e, true
		}
	}
	return e, false
}

// reason returns what decides in a cluster state, by its verdict and that of the other state, if there are any.
func (s *Side) reason(
	state int, v explain.Verdict, evaluated bool, other explain.Verdict, otherEvaluated bool,
	from, to *reachability.Subject,
) (r Reason) {
	if !evaluated {
		for _, e := range []*reachability.Subject{from, to} {
			if !e.In[state] {
				r.Absent = append(r.Absent, e.Pod)
			}
		}
		return r
	}
	r.Allowed = v.Allowed
	for _, side := range []explain.Side{v.Egress, v.Ingress} {
		if otherEvaluated && side.Allowed == other.Side(side.Direction).Allowed {
			continue
		}
		e, _ := v.Flow.Ends(side.Direction)
		if from == to {
			side.Pod = to.Pod // not the one that is made up
		}
		r.Sides = append(r.Sides, Decision{Direction: side.Direction.String(), Allowed: side.Allowed,
			Text: side.Head(e), By: replay.Deciding(side)})
	}
	return r
}
