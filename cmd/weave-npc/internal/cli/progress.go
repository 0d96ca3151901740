package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

const (
	// unshown is how long a command may take without a line about what it does.
	unshown = 2 * time.Second
	// refresh is how often the line is written.
	refresh = 500 * time.Millisecond
)

// progress shows on a terminal what a command does, in one line, if the command takes long. The line is erased before
// anything else is written, and at the end.
type progress struct {
	io.Writer // of notes
	terminal  io.Writer
	width     func() int
	started   time.Time
	stopped   chan struct{}

	mu    sync.Mutex // guards the fields below, and what is written
	text  string
	shown int // the characters of the line on the terminal
	ended bool
}

// newProgress returns a progress that begins now, for a command that writes its notes to a writer; nil if that does not
// end at a terminal that can erase a line.
func newProgress(notes, end io.Writer) *progress {
	f, is := end.(*os.File)
	if !is || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	p := &progress{Writer: notes, terminal: f, started: time.Now(), stopped: make(chan struct{})}
	p.width = func() int {
		width, _, _ := term.GetSize(int(f.Fd()))
		return width
	}
	go p.follow()
	return p
}

// Doing sets what a command does from now on, such as reading objects. It takes where the notes of the command go.
func Doing(stderr io.Writer, format string, args ...any) {
	if p, is := stderr.(*progress); is {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.text = spelling.Escape(fmt.Sprintf(format, args...))
	}
}

// follow writes the line again and again until the command ends.
func (p *progress) follow() {
	ticks := time.NewTicker(refresh)
	defer ticks.Stop()
	for {
		select {
		case now := <-ticks.C:
			p.show(now)
		case <-p.stopped:
			return
		}
	}
}

// show writes the line.
func (p *progress) show(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := now.Sub(p.started)
	if p.ended || p.text == "" || took < unshown {
		return
	}
	line := []rune(fmt.Sprintf("%s (%d s)", p.text, int(took.Seconds())))
	if width := p.width(); width > 0 && len(line) >= width { // a full line would go on in the next one
		line = line[:width-1]
	}
	p.erase()
	_, _ = io.WriteString(p.terminal, string(line))
	p.shown = len(line)
}

// erase removes the line. It does not depend on the terminal's sequences, which not every system has.
func (p *progress) erase() {
	if p.shown > 0 {
		_, _ = io.WriteString(p.terminal, "\r"+strings.Repeat(" ", p.shown)+"\r")
		p.shown = 0
	}
}

// Write writes a note.
func (p *progress) Write(note []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	return p.Writer.Write(note)
}

// end removes the line for good.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.erase()
		p.ended = true
		close(p.stopped)
	}
}

// answered ends the progress of a command at the first text of its answer.
type answered struct {
	io.Writer
	of *progress
}

// Write writes text of the answer.
func (a answered) Write(text []byte) (int, error) {
	a.of.end()
	return a.Writer.Write(text)
}

// Raw returns what is written to.
func (a answered) Raw() io.Writer { return a.Writer }
