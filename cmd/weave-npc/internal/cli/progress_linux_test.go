package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// screen returns what a terminal shows of some text, whose lines have no more than 80 characters.
func screen(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		var cells [80]rune
		for _, part := range strings.Split(line, "\r") {
			copy(cells[:], []rune(part))
		}
		lines = append(lines, strings.TrimRight(strings.ReplaceAll(string(cells[:]), "\x00", ""), " "))
	}
	return strings.Join(lines, "\n")
}

// TestProgress is a line on the terminal from the third second on, which makes room for notes and for the answer.
func TestProgress(t *testing.T) {
	var terminal bytes.Buffer
	width := 80
	p := &progress{Writer: &terminal, terminal: &terminal, width: func() int { return width }, started: time.Unix(100, 0),
		stopped: make(chan struct{})}
	at := func(seconds int64) { p.show(time.Unix(100+seconds, 0)) }
	var steps []string
	for _, step := range []func(){
		func() { at(3) }, // it has not said anything
		func() { Doing(p, "reading the objects of %s", "a\x1b[2J"); at(1) },
		func() { at(2) },
		func() { at(12) },
		func() { Doing(p, "evaluating"); at(13) },
		func() { fmt.Fprintln(p, "weave-npc: a note") },
		func() { at(14) },
		func() { width = 10; at(15) },
		func() { fmt.Fprint(answered{&terminal, p}, "answer") },
		func() { at(16) },
		p.end,
	} {
		step()
		steps = append(steps, screen(terminal.String()))
	}
	want := []string{"", "", `reading the objects of a\u001b[2J (2 s)`, `reading the objects of a\u001b[2J (12 s)`, "evaluating (13 s)",
		"weave-npc: a note\n", "weave-npc: a note\nevaluating (14 s)", "weave-npc: a note\nevaluatin",
		"weave-npc: a note\nanswer", "weave-npc: a note\nanswer", "weave-npc: a note\nanswer"}
	for i := range want {
		if steps[i] != want[i] {
			t.Errorf("step %d shows\n%q, want\n%q", i, steps[i], want[i])
		}
	}
	select {
	case <-p.stopped:
	default:
		t.Error("it goes on after the end")
	}
}

// TestProgressIsForTerminals that can erase a line; what is said is lost elsewhere.
func TestProgressIsForTerminals(t *testing.T) {
	terminal, file := opened(t, "/dev/ptmx"), opened(t, t.TempDir()+"/file")
	for _, tc := range []struct {
		name, kind string
		end        io.Writer
		want       bool
	}{
		{"terminal", "xterm", terminal, true}, {"file", "xterm", file, false},
		{"buffer", "xterm", &bytes.Buffer{}, false}, {"dumb", "dumb", terminal, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("TERM", tc.kind)
			cmd := &cobra.Command{}
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				p, got := cmd.ErrOrStderr().(*progress)
				if got != tc.want {
					t.Errorf("it shows progress: %t", got)
				}
				Doing(cmd.ErrOrStderr(), "waiting")
				if got && p.text != "waiting" {
					t.Errorf("it does %q", p.text)
				}
				return nil
			}
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(tc.end)
			guard(cmd, tc.end)
			if err := cmd.RunE(cmd, nil); err != nil {
				t.Fatal(err)
			}
			p, is := cmd.ErrOrStderr().(*progress)
			if is && !p.ended {
				t.Error("it does not end with the command")
			}
			if w, is := cmd.OutOrStdout().(*spelling.Writer); !is || tc.want != isAnswered(w.Raw()) {
				t.Errorf("the answer goes to %T", cmd.OutOrStdout())
			}
		})
	}
}

func isAnswered(w io.Writer) bool {
	_, is := w.(answered)
	return is
}
