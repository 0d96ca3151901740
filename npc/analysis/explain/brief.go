package explain

import (
	"fmt"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
)

// Brief returns in a few words what decides verdicts on flows between the same two: the policy and the rule in each
// direction. Of a flow that is not allowed, that is only the direction that denies it, or is not known. Verdicts of two
// families with different texts are listed separately.
func Brief(verdicts []Verdict) string {
	var texts []string
	same := true
	for _, v := range verdicts {
		texts = append(texts, v.brief())
		same = same && texts[0] == texts[len(texts)-1]
	}
	if same {
		texts = texts[:min(len(texts), 1)]
	}
	for i := range texts {
		if len(texts) > 1 {
			texts[i] = verdicts[i].family() + ": " + texts[i]
		}
	}
	return strings.Join(texts, "; ")
}

// family returns the family of a flow between addresses. At least one of them is known.
func (v Verdict) family() string {
	a := v.Flow.From.Addr
	if !a.IsValid() {
		a = v.Flow.To.Addr
	}
	return npc.FamilyOf(a).String()
}

// brief returns what decides: for a flow that is allowed, what allows it in each direction that policies are asked
// about; else what does not.
func (v Verdict) brief() string {
	var words []string
	for _, s := range []Side{v.Egress, v.Ingress} {
		trivial := s.Reason == noPod || s.Reason == notIsolated
		if v.Allowed && !trivial || !v.Allowed && !s.Allowed && v.Unknown == (s.Unknown != "") {
			words = append(words, fmt.Sprintf("%s: %s", s.Direction, s.brief()))
		}
	}
	if len(words) == 0 {
		return "no policy isolates them"
	}
	return strings.Join(words, "; ")
}

func (s Side) brief() string {
	switch {
	case s.Unknown != "":
		return "unknown, " + s.Unknown
	case s.By != nil:
		return s.By.String()
	case s.Reason == ruleAllows:
		return "policy " + s.allowing()
	case s.Reason == nothingAllows && len(s.Policies) == 1:
		return "no rule of policy " + s.Policies[0].Policy
	case s.Reason == nothingAllows && len(s.Policies) > 1:
		return fmt.Sprintf("no rule of policy %s and %d more", s.Policies[0].Policy, len(s.Policies)-1)
	}
	return s.sentence(s.Reason)
}

// allowing returns the first policy and rule that allows the flow.
func (s Side) allowing() string {
	for _, p := range s.Policies {
		for _, r := range p.Rules {
			if r.Allows {
				return fmt.Sprintf("%s/rule %d", p.Policy, r.Number)
			}
		}
	}
	return ""
}
