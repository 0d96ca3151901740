package rootcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/completion"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/flows"
)

// Command returns weave-npc with its subcommands. On Linux it is the daemon.
func Command() *cobra.Command {
	root := enforce()
	root.AddCommand(kubectl.Commands()...)
	return prepare(root)
}

// name is that of the program, and displayed that of the plug-in.
const (
	name      = "weave-npc"
	displayed = "kubectl npc"
)

// ask returns a command that only answers what policies allow.
func ask(name string) *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Show which pods reach which under a cluster's network policies, and why",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(kubectl.Explain(nil), kubectl.Show(), flows.OfCluster())
	return root
}

// PluginName is the name of the binary that kubectl runs as "kubectl npc".
const PluginName = "kubectl-npc"

// Plugin returns the command for kubectl.
func Plugin() *cobra.Command {
	root := ask(PluginName)
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: displayed}
	root.AddCommand(kubectl.Commands()...)
	rename(root)
	return prepare(root)
}

// rename has the examples of a command and of its subcommands begin as users of the plug-in type them.
func rename(cmd *cobra.Command) {
	cmd.Example = strings.ReplaceAll(cmd.Example, name+" ", displayed+" ")
	for _, sub := range cmd.Commands() {
		rename(sub)
	}
}

// prepare gives a root command its version, variables, completion and answers to mistakes. The version has cobra's
// text: another text needs a template, and a program with templates links every exported method, which makes it half as
// large again.
func prepare(root *cobra.Command) *cobra.Command {
	root.Version = cli.Version()
	if err := completion.Prepare(root); err != nil {
		panic(err) // a flag is completed in two ways
	}
	cli.Prepare(root, Command)
	return root
}
