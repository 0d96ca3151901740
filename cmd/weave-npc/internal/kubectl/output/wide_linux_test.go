package output

import (
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
)

// TestWide has the lines of a table longer than the terminal is wide.
func TestWide(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}); err != nil {
		t.Fatal(err)
	}
	pod := explain.PodRow{Pod: "shop/web", Ingress: []string{"shop/one-policy", "shop/another-policy", "shop/a-third-policy"}}
	for format, lines := range map[string]int{"table": 4, "wide": 2} {
		out := &onTerminal{terminal: terminal}
		if err := Pods(out, format, []explain.PodRow{pod}); err != nil || strings.Count(out.String(), "\n") != lines {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}
}

// onTerminal keeps what is written to a terminal.
type onTerminal struct {
	strings.Builder
	terminal *os.File
}

// Raw returns the terminal.
func (o *onTerminal) Raw() io.Writer { return o.terminal }
