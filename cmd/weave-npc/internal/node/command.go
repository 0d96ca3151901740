package node

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/flows"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
)

// Commands returns explain and show with what they add on a node, flows, check-node, and cleanup.
func Commands() []*cobra.Command {
	return []*cobra.Command{kubectl.Explain(newNode()),
		kubectl.Show(showNamesCommand(), showSetsCommand(), showRulesCommand()),
		flowsCommand(), checkNodeCommand(), cleanupCommand()}
}

// flowsCommand returns the command that lists the connections of this node.
func flowsCommand() *cobra.Command {
	client := &flowsocket.Client{Path: sharedflags.DefaultFlowsSocket}
	cmd := flows.OfNode(client)
	sharedflags.FlowsSocket(cmd.Flags(), &client.Path)
	return cmd
}
