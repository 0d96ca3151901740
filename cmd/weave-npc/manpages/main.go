// Command manpages writes the manual pages of weave-npc, or of the plug-in for kubectl, into a directory, for a
// release.
//
//	go run ./cmd/weave-npc/manpages -plugin -version v1.2.3 -day 2026-11-23 DIR
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rootcmd"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// run writes the pages that arguments ask for.
func run(args []string) error {
	flags := flag.NewFlagSet("manpages", flag.ContinueOnError)
	plugin := flags.Bool("plugin", false, "write the pages of the plug-in")
	version := flags.String("version", "", "version of the pages")
	day := flags.String("day", "", "date of the pages, such as 2026-11-23")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name one directory to write to")
	}
	date, err := time.Parse(time.DateOnly, *day)
	if err != nil {
		return errors.Wrap(err, "-day")
	}
	root := rootcmd.Command()
	if *plugin {
		root = rootcmd.Plugin()
	}
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	addSections(root)
	header := &doc.GenManHeader{Date: &date, Source: root.DisplayName() + " " + *version}
	return errors.Wrap(doc.GenManTree(root, header, flags.Arg(0)), "writing the pages")
}

// addSections adds sections to the text of a command and of its subcommands, in Markdown: cobra has no field for exit
// statuses and variables.
func addSections(cmd *cobra.Command) {
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	if !strings.Contains(cmd.Long, "exit status") {
		cmd.Long += "\n\n# EXIT STATUS\n" + cli.ExitStatus(cmd)
	}
	if cmd.HasAvailableLocalFlags() {
		prefix := strings.ReplaceAll(cli.Variable(""), "_", `\_`)
		cmd.Long += "\n\n# ENVIRONMENT\nEach option can be given as a variable, which begins with " + prefix +
			" and has the name of the option in capitals, with underscores for dashes."
	}
	for _, sub := range cmd.Commands() {
		addSections(sub)
	}
}
