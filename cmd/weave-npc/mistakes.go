package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMistake describes in one line what is wrong with a flag as it was given, and the way out where it is known.
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

// unknownFlag describes a flag that there is not, with the one that may be meant.
func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	given, dashes := e.GetSpecifiedName(), "--"
	if short := e.GetSpecifiedShortnames(); short != "" { // all of what follows a single dash
		given, dashes = short, "-"
	}
	name, _, _ := strings.Cut(given, "=")
	text := fmt.Sprintf("unknown flag: %s%s", dashes, name)
	if near := nearest(name, names); near != "" && len(name) > 1 {
		text += ": did you mean --" + near + "?"
	}
	return text
}

// wanted describes why a flag does not take a value.
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

// noSuchCommand is an error for what is given to a command that only has commands below it.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if _, err := strconv.ParseBool(args[0]); err == nil {
		return errors.Errorf("%q is no command: the value of a flag that is true or false is given as --FLAG=%s", args[0], args[0])
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

// nearest returns the one of some names that a misspelt one is most likely meant to be, or an empty string if none is near.
func nearest(misspelt string, names []string) string {
	const third = 3 // at most every third letter is wrong, or two of few
	best, least := "", 0
	given := strings.ToLower(misspelt)
	for _, name := range names {
		other := strings.ToLower(name)
		d := distance(given, other)
		part := len(given) > third && strings.Contains(other, given)
		if d > max(2, len(given)/third) && !part || d >= min(len(given), len(other)) && !part {
			continue
		}
		if best == "" || d < least || d == least && name < best {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or change to make one text of another (Levenshtein).
func distance(a, b string) int {
	above := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			changed := above[j]
			if a[i] != b[j] {
				changed++
			}
			row[j+1] = min(changed, above[j+1]+1, row[j]+1)
		}
		above = row
	}
	return above[len(b)]
}
