package controller_test

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }
