package policy

import "iter"

// Fit is whether something holds, or may hold because not everything that it depends on could be read. It is also a set
// of one flow: that is in the set, or may be.
type Fit uint8

// The values of Fit. What is made of several is the least of them if all must hold, and the greatest if one is enough.
const (
	Never Fit = iota
	Maybe
	Always
)

// FitOf returns the Fit of what is known.
func FitOf(holds bool) Fit {
	if holds {
		return Always
	}
	return Never
}

// Sets computes with sets of flows of a kind.
type Sets[S any] struct {
	None    func() S
	IsEmpty func(S) bool
	// With returns a set with what is in both others, and Less a set without another one. Both may change the set.
	With func(s, of, and S) S
	Less func(s, of S) S
}

// Fits returns what computes with sets of one flow.
func Fits() Sets[Fit] {
	return Sets[Fit]{
		None:    func() Fit { return Never },
		IsEmpty: func(f Fit) bool { return f == Never },
		With:    func(f, of, and Fit) Fit { return max(f, min(of, and)) },
		Less:    func(f, of Fit) Fit { return min(f, Always-of) },
	}
}

// Applied is the rules that apply to a pod in one direction. R is a rule, or refers to one.
type Applied[R any] struct {
	// Tiers holds the rules of ClusterNetworkPolicies, each in the order of the policies and of their rules.
	Tiers [len(Tiers)][]R
	// Allowing holds the rules of NetworkPolicies. They count if NetworkPolicies isolate the pod.
	Allowing []R
	Isolated Fit
}

// All yields the rules that are asked.
func (a *Applied[R]) All() iter.Seq[R] {
	return func(yield func(R) bool) {
		asked := [...][]R{a.Tiers[Admin], nil, nil}
		if a.Isolated != Never {
			asked[1] = a.Allowing
		}
		if a.Isolated != Always {
			asked[2] = a.Tiers[Baseline]
		}
		for _, rules := range asked {
			for _, r := range rules {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Cause is what decides about flows.
type Cause uint8

// The causes. What no rule decides is denied if NetworkPolicies isolate the pod, and else allowed.
const (
	ByRule Cause = iota
	Exempt
	NoRule
	NotIsolated
)

// Decision is what happens to flows, and why.
type Decision[R any] struct {
	Cause  Cause
	Action Action
	Rule   R // if the cause is ByRule
}

// Question is flows of a pod in one direction. S is the kind of their sets.
type Question[S, R any] struct {
	Sets[S]
	// Exempt is set for flows that NetworkPolicies do not apply to: to the pod itself, and to its node.
	Exempt  bool
	Action  func(R) Action
	Matches func(R) S
	// Decide is called with each decision, also to pass flows on, about those that are in both sets. It must neither
	// change nor keep them.
	Decide func(d Decision[R], of, matched S)
}

// Ask asks the rules that apply to a pod about flows, in the order of the Network Policy API: the Admin tier, then
// NetworkPolicies if they isolate the pod, and the Baseline tier if they do not. It asks no rule about flows that are
// decided.
func (q *Question[S, R]) Ask(of *Applied[R], flows S) {
	rest := q.rules(of.Tiers[Admin], flows)
	if of.Isolated != Never {
		if q.Exempt {
			q.decide(Exempt, Accept, rest)
		} else {
			q.decide(NoRule, Deny, q.rules(of.Allowing, rest))
		}
	}
	if of.Isolated == Always {
		return
	}
	rest = q.rules(of.Tiers[Baseline], rest)
	if q.Exempt {
		q.decide(Exempt, Accept, rest)
	} else {
		q.decide(NotIsolated, Accept, rest)
	}
}

// rules asks rules, and returns what they do not decide: what none matches, and what one passes on.
func (q *Question[S, R]) rules(rules []R, rest S) S {
	var passed S
	some := false
	for _, r := range rules {
		if q.IsEmpty(rest) {
			break
		}
		matched := q.Matches(r)
		if q.IsEmpty(matched) {
			continue
		}
		action := q.Action(r)
		q.Decide(Decision[R]{ByRule, action, r}, rest, matched)
		if action == Pass {
			if !some {
				passed, some = q.None(), true
			}
			passed = q.With(passed, rest, matched)
		}
		rest = q.Less(rest, matched)
	}
	if some {
		return q.With(passed, rest, rest)
	}
	return rest
}

func (q *Question[S, R]) decide(c Cause, a Action, flows S) {
	if !q.IsEmpty(flows) {
		q.Decide(Decision[R]{Cause: c, Action: a}, flows, flows)
	}
}
