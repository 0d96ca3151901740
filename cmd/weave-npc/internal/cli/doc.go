// Package cli prepares a tree of commands: environment variables, completion, and errors with a suggestion.
//
//	Prepare       environment  sets flags that are not given from WEAVE_NPC_ variables
//	              mistakes     describes a wrong flag, variable or command in one line; nearest: the right name
//	              completion   completes values of flags: Values, File, Directory
//	Format        the flag --output, and the formats that a command has
//	Answers       marks commands that answer a question; Status returns the exit status after an error
//	Version       the version of the binary, and the command that prints it
//	Raw           the output without the escapes that commands which answer have
//	Doing         what a command does that takes long, on a terminal
//	SaveMemory    for commands that run once
//
// It must not know any particular flag or command, except those that cobra adds and version: what depends on a flag is
// recorded on it.
//
//	root := &cobra.Command{Use: "weave-npc", ...}
//	root.Flags().StringVar(&mode, "fail-closed", "auto", "...")
//	cli.Values(root.Flags(), "fail-closed", "auto", "never", "always")
//	cli.Prepare(root, tree)
package cli
