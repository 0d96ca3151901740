package tree

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/enforcing"
)

// enforce returns the daemon, with the commands that read the kernel of its node.
func enforce() *cobra.Command {
	root := enforcing.Command()
	root.AddCommand(enforcing.Commands()...)
	return root
}
