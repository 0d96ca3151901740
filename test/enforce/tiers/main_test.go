// Package tiers shows what cluster network policies allow and deny (S80 to S94): the order of tiers, subjects, peers and
// ports, changes under load, and the kind's resource definition as it comes, changes and goes.
package tiers

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
