package rootcmd

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/daemon"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/node"
)

// enforce returns the daemon, with the commands that read the kernel of its node.
func enforce() *cobra.Command {
	root := daemon.Command()
	root.AddCommand(node.Commands()...)
	return root
}
