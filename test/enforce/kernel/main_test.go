// Package kernel has weave-npc enforce policies where the kernel has what few kernels have: SCTP sockets, and flow
// tables.
package kernel

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
