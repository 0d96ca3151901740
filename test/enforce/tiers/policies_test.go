package tiers

import (
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func cases() []e2e.Case {
	return slices.Concat(tierOrderCases(), subjectCases(), tierPeerCases(), protocolCases(), tierWireCases(),
		ownNodeTierCases())
}

func TestPolicies(t *testing.T) { e2e.RunPolicies(t, cases) }
