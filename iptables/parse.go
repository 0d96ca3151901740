package iptables

import (
	"strings"

	"github.com/pkg/errors"
)

const (
	// idLen is the length of a rule's id: 50 bits of its hash.
	idLen = 10

	idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"
)

// nextLine splits the first line off text. A line break between quotes does not end the line: comments may contain it.
func nextLine(text string) (line, rest string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			// Only rules have quotes; a comment line of iptables-save may contain a single one.
			quoted = !quoted && (text[0] == '-' || text[0] == '[')
		case '\n':
			if !quoted {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// parsed is the part of a printed rule that this package uses.
type parsed struct {
	chain   string
	comment string
	target  string // of -j or -g
}

// parseRule parses a rule as iptables-save and iptables -S print it, or as Update writes it.
func parseRule(line string) (parsed, error) {
	words, err := Words(line)
	if err != nil {
		return parsed{}, err
	}
	if len(words) < 2 || !strings.HasPrefix(line+" ", words[0]+" "+words[1]+" ") {
		return parsed{}, errors.New("not a rule")
	}
	r := parsed{chain: words[1]}
	for i := 2; i+1 < len(words); i++ {
		switch words[i] {
		case "--comment":
			i++
			r.comment = words[i]
		case "-j", "-g":
			i++
			r.target = words[i]
		}
	}
	return r, nil
}

// refersTo reports whether the rule jumps or goes to a chain whose name has the prefix.
func (r parsed) refersTo(prefix string) bool {
	return r.target != "" && strings.HasPrefix(r.target, prefix)
}

// idOr returns the id at the start of the rule's comment, or other if there is none.
func (r parsed) idOr(other string) string {
	if id := commentID(r.comment); id != "" {
		return id
	}
	return other
}

// Words splits a rule into words as iptables-restore does: blanks separate, double quotes group, and between quotes a
// backslash escapes the next character.
func Words(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, started := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '"':
			quoted, started = !quoted, true
		case c == '\\' && quoted:
			if i++; i == len(line) {
				return nil, errors.New("nothing follows the backslash")
			}
			word.WriteByte(line[i])
		case (c == ' ' || c == '\t') && !quoted:
			if started {
				words = append(words, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if started {
		words = append(words, word.String())
	}
	return words, nil
}

// RuleID returns the id at the start of a printed rule's comment. It is empty if there is none or the rule cannot be
// parsed.
func RuleID(printed string) string {
	r, err := parseRule(printed)
	if err != nil {
		return ""
	}
	return r.idOr("")
}

// commentID returns the id at the start of a comment, or "" if there is none.
func commentID(comment string) string {
	first, _, _ := strings.Cut(comment, " ")
	if len(first) != idLen || strings.Trim(first, idAlphabet) != "" {
		return ""
	}
	return first
}
