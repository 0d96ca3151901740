package spelling

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns a text as one line that a terminal prints as it is, and that continuous integration takes for no
// command, wherever it is printed. What it escapes is written as JSON would: \n, \u001b.
func Escape(text string) string {
	var b strings.Builder
	w := Writer{to: &b, oneLine: true}
	_, _ = w.Write([]byte(text))
	for _, c := range w.part { // a character that has no end
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

// Writer escapes in each line what Escape does, and leaves lines as they are otherwise. What was JSON has the same
// meaning then.
//
// For continuous integration, a line that begins with ::NAME, after blanks too, may be a command, and so may one with
// ##[NAME or ##NAME[ anywhere. So that it is none, the first letter or the bracket is escaped.
type Writer struct {
	to      io.Writer
	oneLine bool // an end of line is escaped too

	part   []byte // the beginning of a character
	colons int    // that the line begins with; of a line that has begun otherwise, begun
	hashes int    // that have just been written, and perhaps a name
}

// begun is more colons than a command begins with.
const begun = 3

// NewWriter returns a Writer that passes lines on.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Raw returns what the lines are passed on to.
func (w *Writer) Raw() io.Writer { return w.to }

// Write writes text. A character may be divided between two calls.
func (w *Writer) Write(text []byte) (int, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(text)+len(w.part)))
	rest := text
	if len(w.part) > 0 {
		rest = slices.Concat(w.part, text)
	}
	for len(rest) > 0 && utf8.FullRune(rest) {
		if plain := w.plain(rest); plain > 0 {
			out.Write(rest[:plain])
			rest = rest[plain:]
			continue
		}
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1: // no UTF-8
			w.escape(out, rune(rest[0]))
		case r == '\n' && w.oneLine:
			out.WriteString(`\n`)
		case r == '\n':
			w.colons, w.hashes = 0, 0
			out.WriteByte('\n')
		case r != '\t' && !unicode.IsPrint(r), w.isCommand(r):
			w.escape(out, r)
		default:
			out.WriteRune(r)
		}
		rest = rest[size:]
	}
	w.part = bytes.Clone(rest)
	_, err := w.to.Write(out.Bytes())
	return len(text), err
}

// plain returns how many of the next bytes are printed as they are, and change nothing about the others: nearly all.
func (w *Writer) plain(text []byte) (n int) {
	if w.colons != begun || w.hashes > 0 {
		return 0
	}
	for n < len(text) && text[n] >= ' ' && text[n] < '\x7f' && text[n] != '#' {
		n++
	}
	return n
}

// isCommand reports whether a character would make the line a command.
func (w *Writer) isCommand(r rune) bool {
	letter := r < utf8.RuneSelf && unicode.IsLetter(r)
	switch {
	case w.colons == 2 && letter:
		return true
	case w.colons < 2 && r == ':':
		w.colons++
	case w.colons > 0 || r != ' ' && r != '\t':
		w.colons = begun
	}
	switch {
	case r == '#':
		w.hashes = min(w.hashes+1, 2)
	case w.hashes == 2 && r == '[':
		return true
	case w.hashes < 2 || !letter && r != '.':
		w.hashes = 0
	}
	return false
}

func (w *Writer) escape(out *bytes.Buffer, r rune) {
	w.colons, w.hashes = begun, 0
	if r < 0x10000 {
		fmt.Fprintf(out, `\u%04x`, r)
		return
	}
	high, low := utf16.EncodeRune(r)
	fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
}
