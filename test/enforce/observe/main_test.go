// Package observe shows what weave-npc reports and changes nothing by it (S90, S99 to S102): blocked packets, recorded
// connections, hits of rules, staged policies and explanations.
package observe

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
