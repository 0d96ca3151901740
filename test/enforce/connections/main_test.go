// Package connections shows what packets of open and of new connections get when policies change (S62, S95 to S98): no edit
// cuts what both versions allow, and what a change denies ends where --established=terminate asks for it.
package connections

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
