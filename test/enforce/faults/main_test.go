// Package faults shows what packets get when weave-npc is killed, boots, or is tampered with, and when its programs or the
// relay fail (S59, S63, S65, S93).
package faults

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
