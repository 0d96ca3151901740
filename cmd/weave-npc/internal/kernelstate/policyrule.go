package kernelstate

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kernelrow"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// policyRule matches the name of a rule of a policy in the comment of a rule, such as "shop/web rule 2", or "Admin policy pci rule 1 databases".
var policyRule = regexp.MustCompile(`^(?:(Admin|Baseline) policy (\S+)|(\S+/\S+)) rule (\d+)(?: |$)`)

// policyRules returns the rules of policies that a comment names, and whether it names all of them.
func policyRules(comment string, d traffic.Direction) (named []kernelrow.PolicyRule, all bool) {
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
		named = append(named, kernelrow.PolicyRule{Tier: m[1], Policy: m[2] + m[3], Number: number, Direction: d})
	}
	return named, all
}

// directions returns the directions of the chains that have the rules of policies.
func directions(seen iptables.Seen) map[string]traffic.Direction {
	found := map[string]traffic.Direction{}
	for name, chain := range seen.Chains {
		for _, d := range traffic.Directions {
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
