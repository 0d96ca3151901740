package policies

import (
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func cases() []e2e.Case {
	return slices.Concat(isolationCases(), combinedCases(), peerCases(), changeCases(), blockCases(), portCases(),
		namedPortCases(), serviceCases(), connectionCases(), wireCases(), timeCases(), arrivalCases(), addressCases())
}

func TestPolicies(t *testing.T) { e2e.RunPolicies(t, cases) }
