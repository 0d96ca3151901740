// Package node shows how weave-npc shares a node (S60): it is installed, started again and cleaned up, takes over from other
// engines, and leaves the rules of others as they are.
package node

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
