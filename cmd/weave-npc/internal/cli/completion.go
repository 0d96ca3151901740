package cli

import (
	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The annotations of flags that completion reads.
const (
	valuesAnnotation    = "weave-npc/values"
	fileAnnotation      = "weave-npc/file"
	directoryAnnotation = cobra.BashCompSubdirsInDir
)

// Values records the only values that a registered flag takes. Shells offer them.
func Values(f *pflag.FlagSet, flag string, values ...string) {
	annotate(f, flag, valuesAnnotation, values)
}

// File records that a registered flag takes the name of a file.
func File(f *pflag.FlagSet, flag string) { annotate(f, flag, fileAnnotation, nil) }

// Directory records that a registered flag takes the name of a directory.
func Directory(f *pflag.FlagSet, flag string) { annotate(f, flag, directoryAnnotation, nil) }

// annotate panics if the flag is not registered: that is a mistake in the program.
func annotate(f *pflag.FlagSet, flag, annotation string, values []string) {
	if err := f.SetAnnotation(flag, annotation, values); err != nil {
		panic(err)
	}
}

// completeFlags registers the completion of the flags of a command and of its subcommands.
func completeFlags(cmd *cobra.Command) error {
	var err error
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if e := completeFlag(cmd, f); err == nil {
			err = e
		}
	})
	for _, sub := range cmd.Commands() {
		if e := completeFlags(sub); err == nil {
			err = e
		}
	}
	return err
}

func completeFlag(cmd *cobra.Command, f *pflag.Flag) error {
	_, directory := f.Annotations[directoryAnnotation]
	_, file := f.Annotations[fileAnnotation]
	_, done := cmd.GetFlagCompletionFunc(f.Name)
	if directory || file || done {
		return nil // cobra and the shell complete the former by themselves
	}
	values := cobra.FixedCompletions(f.Annotations[valuesAnnotation], cobra.ShellCompDirectiveNoFileComp)
	return errors.Wrapf(cmd.RegisterFlagCompletionFunc(f.Name, values), "completing --%s", f.Name)
}
