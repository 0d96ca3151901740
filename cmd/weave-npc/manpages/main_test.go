package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rootcmd"
)

// TestEveryCommandHasAPage checks that each command of the daemon and of the plug-in has a page with its flags, its
// examples, its exit status and the date given.
func TestEveryCommandHasAPage(t *testing.T) {
	for _, c := range []struct {
		root *cobra.Command
		args []string
	}{{rootcmd.Command(), nil}, {rootcmd.Plugin(), []string{"-plugin"}}} {
		dir := t.TempDir()
		if err := run(append(c.args, "-version", "v1.2.3", "-day", "2026-11-23", dir)); err != nil {
			t.Fatal(err)
		}
		c.root.InitDefaultCompletionCmd()
		commands := append([]*cobra.Command{c.root}, c.root.Commands()...)
		for i := 1; i < len(commands); i++ {
			commands = append(commands, commands[i].Commands()...)
		}
		for _, cmd := range commands {
			if cmd == c.root || cmd.IsAvailableCommand() {
				checkPage(t, cmd, filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
			}
		}
	}
	if err := run([]string{"-version", "v1.2.3", t.TempDir()}); err == nil {
		t.Error("pages are written without a date")
	}
}

func checkPage(t *testing.T, cmd *cobra.Command, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	// Without fonts and escapes.
	text := strings.NewReplacer(`\fB`, "", `\fP`, "", `\`, "").Replace(string(data))
	want := []string{cmd.Short, cmd.UseLine(), `"Nov 2026"`, "v1.2.3", "xit status"}
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			want = append(want, "--"+f.Name, "WEAVE_NPC_")
		}
	})
	for line := range strings.Lines(cmd.Example) {
		want = append(want, strings.TrimSpace(line))
	}
	for _, w := range want {
		if !strings.Contains(strings.ReplaceAll(text, "EXIT STATUS", "exit status"), w) {
			t.Errorf("%s lacks %q", file, w)
		}
	}
	if strings.Contains(text, "Auto generated") {
		t.Errorf("%s says how it was made:\n%s", file, text)
	}
}
