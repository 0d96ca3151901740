package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
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

// printer writes what the demo has to say.
type printer struct {
	painter
	w      io.Writer
	cancel context.CancelCauseFunc // called if nobody reads us any more
	steps  int
}

// newPrinter prints to a file, in colours if it is a terminal.
func newPrinter(f *os.File, cancel context.CancelCauseFunc) *printer {
	p := &printer{painter: plain{}, w: f, cancel: cancel}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		p.painter = ansi{}
	}
	return p
}

func (p *printer) print(text string) {
	if _, err := io.WriteString(p.w, text); err != nil {
		p.cancel(errors.Wrap(err, "printing"))
	}
}

// step begins a step of the story with a headline.
func (p *printer) step(headline string) {
	p.steps++
	p.print("\n" + p.paint(fmt.Sprintf("%d. %s", p.steps, headline), bold) + "\n\n")
}

// say prints sentences, broken into lines.
func (p *printer) say(text string) {
	for _, line := range strings.Split(text, "\n") {
		p.print(wrap(line, width, "") + "\n")
	}
}

// quote prints what is not ours: files, commands and their output, indented, long lines broken.
func (p *printer) quote(text string) {
	const indent = "    "
	p.print("\n")
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		line = wrap(line, width-len(indent), "      ")
		p.print(indent + strings.ReplaceAll(line, "\n", "\n"+indent) + "\n")
	}
	p.print("\n")
}

// wrap breaks a line at spaces. Lines that follow are indented.
func wrap(line string, width int, indent string) string {
	var b strings.Builder
	for len(line) > width {
		at := strings.LastIndex(line[:width+1], " ")
		if strings.TrimSpace(line[:max(at, 0)]) == "" {
			break // one long word
		}
		b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
		line = indent + strings.TrimLeft(line[at:], " ")
	}
	return b.String() + line
}

// String is the verdict in words.
func (v verdict) String() string { return [...]string{"itself", "reaches", "blocked"}[v] }

// draw is the matrix as a table. What differs from before, if there is one, has a sign in front.
func (m matrix) draw(before matrix, paint painter) string {
	const first, column = 23, 7
	var b strings.Builder
	heads := [3]string{"", "", "from \\ to"}
	for i := range heads {
		heads[i] = fmt.Sprintf("  %-*s", first, heads[i])
	}
	for i, to := range columns() {
		namespace, name, inCluster := strings.Cut(to.host, "/")
		if namespace += "/"; !inCluster {
			namespace, name = "", to.host
		}
		if i > 0 && columns()[i-1].host == to.host {
			namespace, name = "", ""
		}
		heads[0] += fmt.Sprintf("%-*s", room(i, column), namespace)
		heads[1] += fmt.Sprintf("%-*s", room(i, column), name)
		heads[2] += fmt.Sprintf("%-*s", room(i, column), fmt.Sprintf(":%d", to.port))
	}
	for _, head := range heads {
		b.WriteString(strings.TrimRight(head, " ") + "\n")
	}
	for _, from := range rows() {
		line := fmt.Sprintf("  %-*s", first-1, from)
		for i, to := range columns() {
			p := pair{from, to}
			sign := " "
			if before != nil && before[p] != m[p] {
				sign = map[verdict]string{reaches: "+", blocked: "-"}[m[p]]
			}
			line += m[p].cell(sign, paint) + strings.Repeat(" ", room(i, column)-len(sign)-len(m[p].mark()))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// room is the width of a column: that of a host with one port has to hold the host's name.
func room(i, width int) int {
	to := columns()[i]
	namespace, name, _ := strings.Cut(to.host, "/")
	last := i == len(columns())-1 || columns()[i+1].host != to.host
	first := i == 0 || columns()[i-1].host != to.host
	if first && last {
		return max(width, len(namespace)+3, len(name)+2)
	}
	return width
}

// mark is the verdict in a table.
func (v verdict) mark() string { return [...]string{".", "ok", "x"}[v] }

// cell is the mark with a sign and in colours.
func (v verdict) cell(sign string, paint painter) string {
	colours := []colour{[...]colour{dim, green, red}[v]}
	if sign != " " {
		colours = append(colours, bold)
	}
	return paint.paint(sign+v.mark(), colours...)
}
