// Package wire shows which frames of a pod pass that are more than its packets (S54, S56, S58, S59, S71): VLAN tags, router
// advertisements, broadcast, DHCP, and what a pod sends before its address is known.
package wire

import (
	"os"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }
