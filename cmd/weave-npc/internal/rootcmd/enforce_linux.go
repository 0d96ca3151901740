package rootcmd

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/daemon"
)

// enforce returns the daemon, with the commands that read the kernel of its node.
func enforce() *cobra.Command {
	root := daemon.Command()
	root.AddCommand(daemon.Commands()...)
	return root
}
