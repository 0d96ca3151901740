package cli

import (
	"fmt"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
)

// Prepare makes a root command and its subcommands read environment variables, answer mistakes and complete flags. It
// is called once all flags and subcommands are registered. The function tree returns the whole command tree, which root
// may be a part of; its root is the daemon.
func Prepare(root *cobra.Command, tree func() *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		stderr := cmd.ErrOrStderr()
		cmd.SetErr(notes{stderr, root.DisplayName()})
		if isAnswer(cmd) {
			guard(cmd, stderr)
		}
		return setFromEnvironment(cmd, tree())
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 {
			return noSuchCommand(cmd, before) // the flag is one of the command that was intended
		}
		return errors.Errorf("%s; see %s --help", flagMistake(cmd, err), cmd.CommandPath())
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		if !strings.Contains(cmd.Long, "exit status") { // some have one of their own
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "\nExit status: %s\n", ExitStatus(cmd))
		}
	})
	answerMistakes(root)
	if err := completeFlags(root); err != nil {
		panic(err) // a flag is registered twice
	}
}

// answerMistakes makes every command with subcommands answer an unknown one with the nearest.
func answerMistakes(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.Args = noSuchCommand
	}
	for _, sub := range cmd.Commands() {
		answerMistakes(sub)
	}
}
