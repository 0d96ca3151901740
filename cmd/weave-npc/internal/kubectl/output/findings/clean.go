package findings

import (
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

const (
	// maxLine limits the bytes of a line of text, and maxDetail the lines of a detail.
	maxLine   = 2000
	maxDetail = 200
)

// clean returns a text as one line, not too long, that is printed as it is wherever it is put.
func clean(text string) string {
	text = spelling.Escape(strings.ReplaceAll(text, "\t", " "))
	if len(text) <= maxLine {
		return text
	}
	return strings.ToValidUTF8(text[:maxLine], "") + "..."
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
