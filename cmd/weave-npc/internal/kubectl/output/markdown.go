package output

import (
	"fmt"
	"html"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// Code returns a text as code without Markdown syntax, for tables too.
func Code(text string) string {
	return "<code>" + Escaped(text) + "</code>"
}

// Escaped returns a text with all Markdown syntax escaped.
func Escaped(text string) string {
	var b strings.Builder
	for _, r := range spelling.Escape(text) {
		if strings.ContainsRune("|`*_[]()~#@!\\{}", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteString(html.EscapeString(string(r)))
	}
	return b.String()
}
