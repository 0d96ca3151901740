package kernel

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
)

// Rules returns the rules of weave-npc's chains, in the order of the chains' names.
func (s *State) Rules() []kernelview.RuleRow {
	rows := []kernelview.RuleRow{}
	for _, f := range s.families {
		seen := s.tables[f]
		directions := directions(seen)
		for _, name := range slices.Sorted(maps.Keys(seen.Chains)) {
			for i, text := range seen.Chains[name].Text {
				r := readRule(strings.TrimPrefix(text, "-A "+name+" "), s.purpose.Sets)
				r.Family, r.Chain, r.Number, r.About = f.String(), name, i+1, s.chainUse(name)
				if d, ok := directions[name]; ok {
					named, all := policyRules(r.For, d)
					r.PolicyRules, r.Unnamed = named, !all && len(named) > 0
				}
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// The parts of a rule as iptables prints it.
var (
	setMatch    = regexp.MustCompile(`-m set --match-set (\S+) (\S+)`)
	ruleComment = regexp.MustCompile(`-m comment --comment ("(?:[^"\\]|\\.)*"|\S+) ?`)
	bytecode    = regexp.MustCompile(`--bytecode "[^"]*"`)
	ruleTarget  = regexp.MustCompile(` ?-([jg]) (\S+)(.*)$`)
)

// readRule parses a rule as iptables prints it.
func readRule(text string, uses map[string]controller.SetUse) kernelview.RuleRow {
	r := kernelview.RuleRow{Rule: text}
	if m := ruleComment.FindStringSubmatch(text); m != nil {
		_, r.For, _ = strings.Cut(strings.Trim(m[1], `"`), " ")
		text = strings.Replace(text, m[0], "", 1)
	}
	if m := ruleTarget.FindStringSubmatch(text); m != nil {
		r.Target = m[2]
		text = strings.TrimSuffix(text, m[0])
	}
	text = bytecode.ReplaceAllString(text, "--bytecode ..")
	r.Match = setMatch.ReplaceAllStringFunc(text, func(match string) string {
		m := setMatch.FindStringSubmatch(match)
		r.Sets = append(r.Sets, m[1])
		if use := uses[m[1]]; use.About != "" {
			return m[2] + " in {" + use.About + "}"
		}
		return m[2] + " in " + m[1]
	})
	return r
}
