package main

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
)

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Shows the effect of policies: pods, policies, the matrix of who reaches whom, and the sets and rules of this node",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(showPodsCommand(), showPoliciesCommand(), showMatrixCommand(), showSetsCommand(), showRulesCommand())
	return cmd
}

// format is the value of --output of a subcommand of show.
type format struct {
	name    string
	formats []string
}

// register registers --output with the formats that a subcommand supports, the first of which is the default.
func (o *format) register(f *pflag.FlagSet, usage string, formats ...string) {
	o.formats = formats
	f.StringVarP(&o.name, "output", "o", formats[0], usage)
	commandline.Values(f, "output", formats...)
}

func (o *format) check() error {
	if slices.Contains(o.formats, o.name) {
		return nil
	}
	return errors.Errorf("--output: %q is none of %s", o.name, strings.Join(o.formats, ", "))
}
