package findings

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxLine limits the bytes of a line of text, and maxDetail the lines of a detail.
	maxLine   = 2000
	maxDetail = 200
)

// clean returns a text as one line without anything that a terminal or a reader would not print as it is, such as
// escape sequences and marks that turn the direction of writing. These are written as Go would.
func clean(text string) string {
	var b strings.Builder
	for i, r := range text {
		if b.Len() >= maxLine {
			b.WriteString("...")
			break
		}
		writeClean(&b, text[i:], r)
	}
	return b.String()
}

func writeClean(b *strings.Builder, rest string, r rune) {
	switch {
	case r == utf8.RuneError && !strings.HasPrefix(rest, "\uFFFD"):
		fmt.Fprintf(b, `\x%02x`, rest[0])
	case unicode.IsPrint(r):
		b.WriteRune(r)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\t':
		b.WriteString(" ")
	case r < 0x100:
		fmt.Fprintf(b, `\x%02x`, r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// cleanLines returns the lines of a text, each clean.
func cleanLines(text string) (lines []string) {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if len(lines) == maxDetail {
			return append(lines, "...")
		}
		lines = append(lines, clean(line))
	}
	return lines
}

// asciiJSON returns JSON whose strings keep their meaning, without anything in it that a terminal would not print as it
// is.
func asciiJSON(text []byte) []byte {
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case unicode.IsPrint(r) || r == '\n':
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return []byte(b.String())
}
