// Package input shows what weave-npc makes of its input and its flags (S64, S70, S74 to S76): manifests, an API
// server that misbehaves, what could not be read, tenants that want too much, and what its server answers.
package input

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
