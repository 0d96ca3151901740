package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMistake describes in one line the mistake in a flag, and the likely correction if there is one.
func flagMistake(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	var without *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &without):
		return "--" + without.GetSpecifiedName() + ": a value is missing"
	case errors.As(err, &wrong):
		return fmt.Sprintf("--%s: %q is %s", wrong.GetFlag().Name, wrong.GetValue(), wanted(wrong))
	}
	return err.Error()
}

// unknownFlag describes an unknown flag, with the nearest known one.
func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	given, dashes := e.GetSpecifiedName(), "--"
	if short := e.GetSpecifiedShortnames(); short != "" { // everything after a single dash
		given, dashes = short, "-"
	}
	name, _, _ := strings.Cut(given, "=")
	text := fmt.Sprintf("unknown flag: %s%s", dashes, name)
	if near := nearest(name, names); near != "" && len(name) > 1 {
		text += ": did you mean --" + near + "?"
	}
	return text
}

// wanted describes why a flag refuses a value.
func wanted(e *pflag.InvalidValueError) string {
	switch e.GetFlag().Value.Type() {
	case "bool":
		return "neither true nor false"
	case "int", "int64":
		return "no whole number"
	case "uint16":
		return "no number from 0 to 65535"
	case "uintSlice":
		return "no list of numbers such as 80,443"
	case "stringSlice":
		return "no list such as a,b"
	case "duration":
		return "no duration such as 10s"
	}
	return "refused: " + e.Unwrap().Error()
}

// NoArguments returns an error for arguments of a command that takes flags only.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if err := noBool(args[0]); err != nil {
		return err
	}
	return errors.Errorf("%q is one too many: %s takes flags only; see %s --help", args[0], cmd.CommandPath(),
		cmd.CommandPath())
}

// noBool returns an error for an argument that is the value of a flag.
func noBool(arg string) error {
	if _, err := strconv.ParseBool(arg); err != nil {
		return nil //nolint:nilerr // it is something else
	}
	return errors.Errorf("%q is no command: the value of a flag that is true or false is given as --FLAG=%s", arg, arg)
}

// noSuchCommand returns an error for arguments of a command that takes subcommands only, with the nearest subcommand.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if err := noBool(args[0]); err != nil {
		return err
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := nearest(args[0], names); near != "" {
		text += ": did you mean " + near + "?"
	}
	return errors.Errorf("%s; see %s --help", text, cmd.CommandPath())
}
