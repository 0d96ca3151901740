package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
)

// TestFlagsPage compares docs/flags.md with the flags of every command.
func TestFlagsPage(t *testing.T) {
	const page = "../../docs/flags.md"
	var b strings.Builder
	b.WriteString("# Flags\n\nGenerated from the code. Every flag can be given as an environment variable; the flag takes precedence.\n")
	writeFlags(&b, command())
	checkFile(t, page, b.String())
}

// writeFlags writes the sections of a command and its subcommands.
func writeFlags(b *strings.Builder, c *cobra.Command) {
	if c.Name() == "help" {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
	if c.LocalFlags().HasAvailableFlags() {
		b.WriteString("\n| flag | variable | default | |\n|---|---|---|---|\n")
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value := f.DefValue
		if value != "" {
			value = "`" + strings.Trim(value, "[]") + "`"
		}
		if value == "``" {
			value = ""
		}
		fmt.Fprintf(b, "| `--%s` | `%s` | %s | %s |\n", f.Name, commandline.Variable(f.Name), value, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	for _, sub := range c.Commands() {
		writeFlags(b, sub)
	}
}

// TestVariablesOfManifestsAreFlags checks that manifests set no variable that the daemon would refuse.
func TestVariablesOfManifestsAreFlags(t *testing.T) {
	known := map[string]bool{}
	command().Flags().VisitAll(func(f *pflag.Flag) { known[commandline.Variable(f.Name)] = true })
	found := 0
	err := filepath.WalkDir("../../prod", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`name: (WEAVE_NPC_[A-Z_]+)\b`).FindAllStringSubmatch(string(text), -1) {
			found++
			if !known[name[1]] && !strings.HasSuffix(name[1], "_") { // the chart makes names of its values
				t.Errorf("%s: $%s is no flag", path, name[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no manifest sets a flag")
	}
}
