// Package names shows what policies with domain names allow (S108 to S114).
package names

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
