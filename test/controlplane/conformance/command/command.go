// Package command holds what the commands that run a conformance suite have in common: their exit statuses, arguments
// that are all flags, their end by a signal, and the files that record a run.
package command

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/pkg/errors"
)

// Exit statuses.
const (
	Passed = 0 // all that ran passed, and something ran
	Failed = 1
	Usage  = 2 // nothing ran
)

// Main carries out the arguments of the process and ends it with the exit status that run returns. The error
// flag.ErrHelp is none.
func Main(run func(args []string) (int, error)) {
	status, err := run(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		status = Passed
	case err != nil:
		complain(err)
	}
	os.Exit(status)
}

// complain prints an error.
func complain(err error) { fmt.Fprintf(os.Stderr, "conformance: %v\n", err) }

// Parse reads arguments, which have to be flags. If they ask for help, it is printed, and the error is flag.ErrHelp.
func Parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	case err != nil:
		return err
	case flags.NArg() > 0:
		return errors.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// ModuleVersion returns the version of a module that the command is built of.
func ModuleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "an unknown version"
}
