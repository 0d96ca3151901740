// Package policies shows what network policies allow and deny (S1 to S76), by tables of cases: isolation, peers, blocks,
// ports, and what every packet, connection and address gets whatever the peers are.
package policies

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
