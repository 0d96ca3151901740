// Package check finds out whether expectations of network policies hold.
//
// They hold for all pods that exist and, where an expectation is about never or always, for all pods that could exist.
//
//	p := check.New(view, check.Assumptions{}, expectations)
//	result := p.Check(expectations[0])
//	if result.Outcome == check.Broken {
//		fmt.Print(result.Why, result.Counterexample)
//	}
//
//	class         existing pods that neither policies nor expectations distinguish
//	combination   labels of pods that could exist, one for each set of selectors that they match
//	place         free addresses, one for each set of blocks that they are in
//
// The verdicts are those of npc/analysis/internal/reachability and npc/analysis/explain.
package check

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Outcome is what became of an expectation.
type Outcome uint8

// The outcomes.
const (
	Holds Outcome = iota
	Broken
	// Unproved: there is too much to check, and nothing that breaks the expectation was found before.
	Unproved
)

// Result is whether an expectation holds.
type Result struct {
	Outcome Outcome
	// Why is a sentence for an expectation that does not hold.
	Why string
	// Counterexample is what breaks the expectation; nil if it holds, or is about nothing.
	Counterexample *Counterexample
	// Possible counts the kinds of pods that could be there, of sources and destinations.
	PossibleFrom, PossibleTo int
}

// check is the check of one expectation.
type check struct {
	*Prover
	expectation.Expectation
	from, to *side
	asks     []ask
	Result
}

// maxAlone is how many pairs are explained one by one at most.
const maxAlone = 200_000

// Check checks an expectation, which must be one of those that the prover was made for.
func (p *Prover) Check(e expectation.Expectation) Result {
	c := &check{Prover: p, Expectation: e}
	if err := c.run(); err != nil {
		c.Outcome, c.Why = Broken, err.Error()
	}
	return c.Result
}

// run returns an error for an expectation that is about nothing.
func (c *check) run() (err error) {
	if c.To, err = c.withAddresses(c.To); err != nil {
		return err
	}
	if !c.AllowEmpty {
		for _, t := range slices.Concat(c.From, c.To) {
			if err := c.missing(t); err != nil {
				return err
			}
		}
	}
	c.from = c.newSide(c.From, c.Outside, npc.Egress)
	c.to = c.newSide(c.To, false, npc.Ingress)
	rules := slices.Concat(c.from.rules, c.to.rules)
	if c.asks, err = c.Prover.asks(c.Ports, rules); err != nil {
		if c.AllowEmpty {
			return nil
		}
		return err
	}
	from, to := c.from.there(c.to.rules), c.to.there(c.from.rules)
	if !c.AllowEmpty {
		if err := c.empty(from, to); err != nil {
			return err
		}
	}
	if c.Verb == expectation.Reaches && len(c.Ports) == 0 {
		c.somePort(from, to)
		return nil
	}
	broken := c.alone(from, to) || c.search(c.view, together(from), together(to), false)
	if !broken && (c.Verb == expectation.Never || c.Verb == expectation.Always) {
		c.possible(rules, from, to)
	}
	return nil
}

// possible checks pods that could be there, with each other and with those that are there.
func (c *check) possible(rules []*policy.Rule, from, to []candidate) {
	for _, a := range c.asks {
		if len(a.names) > maxNames {
			c.unproved(fmt.Sprintf("pods have more than %d names for %s", maxNames, a.Service))
			return
		}
	}
	sources, ok := c.from.possible(c.to.rules, c.asks)
	destinations, ok2 := c.to.possible(c.from.rules, c.asks)
	if !ok || !ok2 {
		c.unproved(fmt.Sprintf("%d rules distinguish too many kinds of pods", len(rules)))
		return
	}
	c.PossibleFrom, c.PossibleTo = len(sources), len(destinations)
	// As few pods as possible that do not exist.
	from, to = append(together(from), sources...), append(together(to), destinations...)
	c.search(c.view.Assume(nil, podsOf(from, to)), from, to, true)
}

func (c *check) unproved(why string) { c.Outcome, c.Why = Unproved, why+", so that it is not proved" }

// missing returns an error if a term matches nothing that exists.
func (c *check) missing(t expectation.Term) error {
	switch {
	case len(t.Blocks) == 1 && t.Blocks[0].CIDR.IsSingleIP() && c.isNodes(t.Blocks[0].CIDR.Addr()):
		return errors.Errorf("%s is an address of a node: expectations are about pods and about addresses of no node",
			t.Text)
	case t.All || len(t.Blocks) > 0:
		return nil
	case t.Namespace != "" && !slices.Contains(c.namespaces, t.Namespace):
		near := spelling.DidYouMean(t.Namespace, slices.Values(c.namespaces))
		switch o, ok := flow.ParseObject(t.Text); {
		case !ok || o.Namespace != "":
		case o.Kind == flow.KindService:
			near = "; for a Service, write svc/NAME.NAMESPACE"
		default:
			near = "; for a " + o.Kind + ", write NAMESPACE/" + t.Text
		}
		return errors.Errorf("there is no namespace %s%s", t.Namespace, near)
	}
	one := &side{Prover: c.Prover, subject: expectation.Subject{t}}
	for _, of := range c.classes {
		if one.has(of.pod, of.ends[0].Addr, true) {
			return nil
		}
	}
	near, otherKind, host := map[string]bool{}, "", false
	for key, q := range c.view.Pods {
		if t.Namespace != "" && q.Namespace != t.Namespace || c.others[key] != "" {
			continue
		}
		host = host || q.HostNetwork && one.has(q, netip.Addr{}, true)
		near[q.Name] = true
		if q.Workload != nil {
			near[q.Workload.Name] = true
			if t.Kind != "" && q.Workload.Name == t.Name {
				otherKind = "; did you mean " + q.Namespace + "/" + q.Workload.String() + "?"
			}
		}
	}
	switch {
	case host:
		return errors.Errorf("%s has only pods on the network of their nodes, "+
			"which policies do not distinguish from the nodes", t.Text)
	case t.Name != "":
		return errors.Errorf("there is no pod and no workload %s%s", t.Text,
			cmp.Or(otherKind, spelling.DidYouMean(t.Name, maps.Keys(near))))
	}
	return errors.Errorf("%s matches no pod", t.Text)
}

// empty returns an error if there is no pair, or if a port's name is not one of each destination.
func (c *check) empty(from, to []candidate) error {
	if len(from) == 0 || len(to) == 0 {
		return errors.New("it is about no pod and no address")
	}
	isPod := func(k candidate) bool { return k.pod != nil }
	if !slices.ContainsFunc(from, isPod) && !slices.ContainsFunc(to, isPod) {
		return errors.New("it is about no pod, and only what pods send and get is for policies to decide")
	}
	for _, port := range c.Ports {
		if port.Name == "" {
			continue
		}
		has := func(k candidate) bool {
			return k.pod != nil && slices.ContainsFunc(k.pod.Ports, func(n npc.NamedPort) bool {
				return n.Name == port.Name && n.Protocol == port.Protocol
			})
		}
		lacks := slices.IndexFunc(to, func(k candidate) bool { return !has(k) })
		if lacks >= 0 && (c.Verb != expectation.Never || !slices.ContainsFunc(to, has)) {
			return errors.Errorf("%s has no %s port of the name %s", to[lacks].End, npc.ProtocolName(port.Protocol),
				port.Name)
		}
	}
	return nil
}

// podsOf returns the pods of candidates.
func podsOf(lists ...[]candidate) (out []*npc.Pod) {
	for _, of := range lists {
		for _, k := range of {
			if k.pod != nil {
				out = append(out, k.pod)
			}
		}
	}
	return out
}

// together returns those that are not to be asked about alone.
func together(of []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(of), func(k candidate) bool { return k.class != nil && k.class.alone })
}

// pair returns the ends of a source and a destination. They are none if both are one pod, or have one address, or if no
// pod is among them.
func pair(from, to candidate) (f flow.Flow, ok bool) {
	f = flow.Flow{From: from.End, To: to.End}
	switch {
	case from.pod == nil && to.pod == nil, from.Addr.IsValid() && to.Addr.IsValid() && from.Addr.Is4() != to.Addr.Is4():
		return f, false
	case from.class != nil && to.class != nil && from.Pod == to.Pod:
		other := slices.IndexFunc(to.class.ends, func(e flow.End) bool { return e.Pod != from.Pod })
		if other < 0 {
			return f, false
		}
		f.To = to.class.ends[other]
	}
	return f, !f.From.Addr.IsValid() || f.From.Addr != f.To.Addr
}

// search looks for a pair that breaks the expectation, and reports whether it found one. With mixed, one of both could
// be there only.
func (c *check) search(v *cluster.View, from, to []candidate, mixed bool) bool {
	s := reachability.NewSample(v, ends(from), ends(to))
	for _, a := range c.asks {
		i, j, found := s.Ask(a.Service).Find(c.Verb == expectation.Never, func(i, j int) bool {
			return c.asked(a, from[i], to[j], mixed)
		})
		if found {
			f, _ := pair(from[i], to[j])
			f.Service = a.Service
			c.broken(f, from[i], to[j])
			return true
		}
	}
	return false
}

// asked reports whether the expectation is about a pair.
func (c *check) asked(a ask, from, to candidate, mixed bool) bool {
	if mixed && (from.class != nil || from.pod == nil) && (to.class != nil || to.pod == nil) {
		return false // it was, before
	}
	if to.bound.Protocol != 0 && to.bound != a.Service || !a.named(to.pod) {
		return false
	}
	_, ok := pair(from, to)
	return ok
}

func ends(of []candidate) []flow.End {
	out := make([]flow.End, len(of))
	for i, k := range of {
		out[i] = k.End
	}
	return out
}

// alone looks for a pair that breaks the expectation among those whose verdicts depend on other pods.
func (c *check) alone(from, to []candidate) bool {
	n := 0
	for _, k := range from {
		for _, l := range to {
			isAlone := k.class != nil && k.class.alone || l.class != nil && l.class.alone
			f, ok := pair(k, l)
			if !isAlone || !ok {
				continue
			}
			for _, a := range c.asks {
				if !a.named(l.pod) {
					continue
				}
				if n++; n > maxAlone {
					c.unproved("too many pods claim an address that is another's too")
					return true
				}
				f.Service = a.Service
				if explain.Explain(c.view, f).Allowed == (c.Verb == expectation.Never) {
					c.broken(f, k, l)
					return true
				}
			}
		}
	}
	return false
}
