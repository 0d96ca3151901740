package main

import "github.com/spf13/cobra"

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Shows the effect of policies: pods, policies, the matrix of who reaches whom, and the sets and rules of this node",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(showPodsCommand(), showPoliciesCommand(), showMatrixCommand(), showSetsCommand(), showRulesCommand())
	return cmd
}
