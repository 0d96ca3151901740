package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/term"
)

// width is where printed lines end.
const width = 100

// colour is an ANSI colour or attribute.
type colour string

const (
	bold  colour = "1"
	dim   colour = "2"
	red   colour = "31"
	green colour = "32"
)

// painter colours text.
type painter interface {
	paint(text string, colours ...colour) string
}

// plain is a painter without colours.
type plain struct{}

func (plain) paint(text string, _ ...colour) string { return text }

// ansi is a painter for terminals.
type ansi struct{}

func (ansi) paint(text string, colours ...colour) string {
	for _, c := range colours {
		text = "\x1b[" + string(c) + "m" + text + "\x1b[0m"
	}
	return text
}

// printer writes the text of the demo.
type printer struct {
	painter
	w      io.Writer
	cancel context.CancelCauseFunc // called when the reader of the output is gone
	enters <-chan struct{}         // lines of the reader, for whom each screen waits; nil if there is none
	steps  int
	spaced bool // the last line is empty
}

// newPrinter prints to a file, in colours if it is a terminal.
func newPrinter(f *os.File, cancel context.CancelCauseFunc) *printer {
	p := &printer{painter: plain{}, w: f, cancel: cancel}
	if term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		p.painter = ansi{}
	}
	return p
}

// print prints lines as they are, after an empty line.
func (p *printer) print(text string) {
	if !p.spaced {
		text = "\n" + text
	}
	p.spaced = strings.HasSuffix(text, "\n\n")
	if _, err := io.WriteString(p.w, text); err != nil {
		p.cancel(errors.Wrap(err, "printing"))
	}
}

// enters returns a channel that receives for each line of a file, and is closed at its end.
func enters(f io.Reader) <-chan struct{} {
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(f); scanner.Scan(); {
			lines <- struct{}{}
		}
	}()
	return lines
}

// prompt is what a screen ends with.
const prompt = "[Enter]"

// pause waits for the reader, if there is one, to have seen the screen.
func (p *printer) pause(ctx context.Context) error {
	if p.enters == nil {
		return ctx.Err()
	}
	p.print(p.paint(prompt, dim) + " ")
	p.spaced = false
	select {
	case <-p.enters:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// headline begins a step of the story.
func (p *printer) headline(format string, args ...any) {
	p.steps++
	p.print(p.paint(fmt.Sprintf("%d. %s", p.steps, fmt.Sprintf(format, args...)), bold) + "\n")
}

// say prints a paragraph.
func (p *printer) say(format string, args ...any) {
	p.print(wrap(fmt.Sprintf(format, args...), width, "", " ") + "\n")
}

// quote prints files, commands and their output: indented, and long lines broken in front of one of the given strings.
func (p *printer) quote(text string, before ...string) {
	const indent, more = "    ", "            "
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = indent + wrap(strings.TrimRight(line, "\n"), width-len(more), more, before...)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	p.print(b.String())
}

// wrap breaks a line where one of the given strings begins, a space first. Lines that follow are indented.
func wrap(line string, width int, indent string, before ...string) string {
	var b strings.Builder
	for len(line) > width {
		at := lastBreak(line, width, before)
		if at < 0 {
			break
		}
		b.WriteString(line[:at] + "\n" + indent)
		line = line[at+1:]
	}
	return b.String() + line
}

// lastBreak returns the last place within the width where one of the strings begins, or else the first one after it; -1
// if there is none.
func lastBreak(line string, width int, before []string) int {
	last, next := -1, -1
	for _, s := range before {
		last = max(last, strings.LastIndex(line[:min(len(line), width+len(s))], s))
		if i := strings.Index(line[width:], s); i >= 0 && (next < 0 || width+i < next) {
			next = width + i
		}
	}
	if last > 0 {
		return last
	}
	return next
}

// draw returns the matrix as a table. A sign marks the cells that differ from an earlier matrix, if there is one.
func (m matrix) draw(before matrix, paint painter) string {
	const first = 24
	lines := [3]string{}
	for i := range lines {
		lines[i] = strings.Repeat(" ", first+1)
	}
	lines[2] = fmt.Sprintf("  %-*s", first-1, "from \\ to")
	heads := headings()
	for _, head := range heads {
		for i := range lines {
			lines[i] += fmt.Sprintf("%-*s", head.width(), head[i])
		}
	}
	table := lines[:]
	for _, from := range rows() {
		line := fmt.Sprintf("  %-*s", first-2, from)
		for i, to := range columns() {
			p := pair{from, to}
			line += m.cell(p, before, paint) + strings.Repeat(" ", heads[i].width()-1-len(m[p].mark()))
		}
		table = append(table, line)
	}
	for i := range table {
		table[i] = strings.TrimRight(table[i], " ")
	}
	return strings.Join(table, "\n") + "\n"
}

// heading is what is above a column: a namespace, a host's name and a port.
type heading [3]string

func (h heading) width() int {
	const least, gap = 7, 2
	w := least
	for _, text := range h {
		w = max(w, len(text)+gap)
	}
	return w
}

// headings returns the headings of all columns. A host is named above its first one.
func headings() []heading {
	var all []heading
	last := ""
	for _, to := range columns() {
		h := heading{2: fmt.Sprintf(":%d", to.port)}
		if namespace, name, ok := strings.Cut(to.host, "/"); to.host == last {
			// It is named already.
		} else if ok {
			h[0], h[1] = namespace+"/", name
		} else {
			h[1] = to.host
		}
		last = to.host
		all = append(all, h)
	}
	return all
}

// cell returns a verdict in the table, with a sign in front.
func (m matrix) cell(p pair, before matrix, paint painter) string {
	v := m[p]
	colours := []colour{[...]colour{dim, green, red}[v]}
	sign := " "
	if before != nil && before[p] != v {
		sign = [...]string{" ", "+", "-"}[v]
		colours = append(colours, bold)
	}
	return paint.paint(sign+v.mark(), colours...)
}
