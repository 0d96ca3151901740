package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
)

// VersionCommand returns the command that prints the version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArguments,
		RunE:  printVersion,
	}
}

// printVersion prints the same as --version.
func printVersion(cmd *cobra.Command, _ []string) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().DisplayName(), "version", Version())
	return errors.Wrap(err, "printing the version")
}

// Version returns the version that the binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "unreleased"
	}
	return info.Main.Version
}
