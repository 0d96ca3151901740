package main

import (
	"strings"

	"github.com/pkg/errors"
)

// hunk is one place of a file that a unified diff changes.
type hunk struct {
	lines []string // with their first characters: ' ', '-' or '+'
}

// parseDiff reads a unified diff: file -> hunks. What precedes the first file is ignored.
func parseDiff(text string) (map[string][]hunk, error) {
	files := map[string][]hunk{}
	file := ""
	for number, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		hunks := files[file]
		switch {
		case strings.HasPrefix(line, "+++ "):
			file = strings.TrimPrefix(strings.TrimPrefix(line, "+++ "), "b/")
		case file == "" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "diff "):
		case strings.HasPrefix(line, "@@ "):
			files[file] = append(hunks, hunk{})
		case len(hunks) == 0 || line == "" || !strings.ContainsRune(" -+", rune(line[0])):
			return nil, errors.Errorf("line %d, %q, is no part of a unified diff", number+1, line)
		default:
			last := &hunks[len(hunks)-1]
			last.lines = append(last.lines, line)
		}
	}
	if len(files) == 0 {
		return nil, errors.New("there is no unified diff")
	}
	return files, nil
}

// side returns what a hunk finds ('-') or leaves ('+').
func (h hunk) side(sign byte) []string {
	var out []string
	for _, line := range h.lines {
		if line[0] == ' ' || line[0] == sign {
			out = append(out, line[1:])
		}
	}
	return out
}

// context returns the number of unchanged lines before the first change and after the last one.
func (h hunk) context() (before, after int) {
	for before < len(h.lines) && h.lines[before][0] == ' ' {
		before++
	}
	for after < len(h.lines)-before && h.lines[len(h.lines)-1-after][0] == ' ' {
		after++
	}
	return before, after
}

// apply changes a text, wherever in it the hunk's lines are. Lines around the change may differ, except the nearest
// ones: it is enough that what remains of the hunk is there once.
func (h hunk) apply(text []string) ([]string, error) {
	before, after := h.context()
	for near := max(before, after); near > 0; near-- {
		old, changed := h.side('-'), h.side('+')
		first, last := before-min(near, before), after-min(near, after)
		old, changed = old[first:len(old)-last], changed[first:len(changed)-last]
		switch at := places(text, old); len(at) {
		case 0:
		case 1:
			out := append([]string{}, text[:at[0]]...)
			out = append(out, changed...)
			return append(out, text[at[0]+len(old):]...), nil
		default:
			return nil, errors.Errorf("%d places have\n%s", len(at), strings.Join(old, "\n"))
		}
	}
	return nil, errors.Errorf("no place has\n%s", strings.Join(h.side('-'), "\n"))
}

// places returns the indexes at which a text has these lines.
func places(text, lines []string) []int {
	var at []int
next:
	for i := 0; i+len(lines) <= len(text); i++ {
		for j, line := range lines {
			if text[i+j] != line {
				continue next
			}
		}
		at = append(at, i)
	}
	return at
}

// applyAll applies hunks to a text.
func applyAll(text string, hunks []hunk) (string, error) {
	lines := strings.Split(text, "\n")
	for _, h := range hunks {
		var err error
		if lines, err = h.apply(lines); err != nil {
			return "", err
		}
	}
	return strings.Join(lines, "\n"), nil
}
