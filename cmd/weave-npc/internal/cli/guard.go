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
// for a terminal or for continuous integration.
func guard(cmd *cobra.Command) {
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	cmd.SetOut(spelling.NewWriter(coloured(cmd.OutOrStdout())))
	cmd.SetErr(spelling.NewWriter(cmd.ErrOrStderr()))
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
