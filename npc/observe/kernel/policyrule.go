package kernel

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// policyRule matches the name of a rule of a policy in the comment of a rule, such as "shop/web rule 2", or "Admin
// policy pci rule 1 databases".
var policyRule = regexp.MustCompile(`^(?:(Admin|Baseline) policy (\S+)|(\S+/\S+)) rule (\d+)(?: |$)`)

// policyRules returns the rules of policies that a comment names, and whether it names all of them.
func policyRules(comment string, d npc.Direction) (named []kernelview.PolicyRule, all bool) {
	all = true
	for _, text := range strings.Split(comment, " / ") {
		m := policyRule.FindStringSubmatch(text)
		if m == nil {
			all = false // "and 2 more", or cut off
			continue
		}
		number, err := strconv.Atoi(m[4])
		if err != nil {
			all = false
			continue
		}
		named = append(named, kernelview.PolicyRule{Tier: m[1], Policy: m[2] + m[3], Number: number, Direction: d})
	}
	return named, all
}

// directions returns the directions of the chains that have the rules of policies.
func directions(seen iptables.Seen) map[string]npc.Direction {
	found := map[string]npc.Direction{}
	for name, chain := range seen.Chains {
		for _, d := range npc.Directions {
			if strings.HasPrefix(name, naming.NodeChain(d, "")) {
				found[name] = d
			}
			if !strings.HasSuffix(name, naming.TierChain("", d)[len(naming.ChainPrefix)+1:]) {
				continue
			}
			for _, text := range chain.Text { // to the lists of the tier
				if m := ruleTarget.FindStringSubmatch(text); m != nil {
					found[m[2]] = d
				}
			}
		}
	}
	return found
}
