package cli

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// guard prepares a command that answers about what others wrote, such as the author of a pull request. It changes
// nothing, so that a signal ends it at once, whatever it is reading or computing. Nothing that it prints is a command,
// for a terminal or for continuous integration. Its notes end at a writer; if that is a terminal, it shows there what it
// does.
func guard(cmd *cobra.Command, end io.Writer) {
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	out, stderr := coloured(cmd.OutOrStdout()), io.Writer(spelling.NewWriter(cmd.ErrOrStderr()))
	if p := newProgress(stderr, end); p != nil {
		out, stderr = answered{out, p}, p
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			defer p.end()
			return run(cmd, args)
		}
	}
	cmd.SetOut(spelling.NewWriter(out))
	cmd.SetErr(stderr)
}

// notes has what is noted begin with the name by which the user called the program.
type notes struct {
	io.Writer
	name string
}

// Write writes a note, which must be a whole one.
func (n notes) Write(note []byte) (int, error) {
	if text, ok := bytes.CutPrefix(note, []byte("weave-npc:")); ok {
		note = append([]byte(n.name+":"), text...)
	}
	return n.Writer.Write(note)
}

// Raw returns the output of a command for a format that escapes what it prints, and whose lines may be commands or look
// like some.
func Raw(out io.Writer) io.Writer {
	if w, ok := out.(*spelling.Writer); ok {
		return w.Raw()
	}
	return out
}
