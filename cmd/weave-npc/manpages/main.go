// Command manpages writes the manual pages of weave-npc, or of the plug-in for kubectl, into a directory, for a release.
//
//	go run ./cmd/weave-npc/manpages -plugin -version v1.2.3 -day 2026-11-23 DIR
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/manpage"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/tree"
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
	version := flags.String("version", "", "what the pages say that they are of")
	day := flags.String("day", "", "the day that the pages have")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name one directory to write to")
	}
	root := tree.Command()
	if *plugin {
		root = tree.Plugin()
	}
	root.InitDefaultCompletionCmd()
	for _, p := range manpage.Pages(root, manpage.Edition{Program: root.DisplayName() + " " + *version, Day: *day}) {
		if err := os.WriteFile(filepath.Join(flags.Arg(0), p.File), p.Text, 0o644); err != nil {
			return errors.Wrap(err, "writing a page")
		}
	}
	return nil
}
