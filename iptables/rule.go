package iptables

import (
	"cmp"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

const (
	// idLen is the length of a rule's id: 50 bits of its hash.
	idLen = 10
	// maxComment is what a comment may have in bytes, id included. Both backends cut silently at 255.
	maxComment = 200

	idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"
)

// Rule is one rule of a chain. What the kernel prints differs in form from what it was given (order of matches,
// masks, defaults), so a rule is known again by the id that its comment begins with.
type Rule struct {
	// Match holds iptables arguments without chain, comment and target, for example
	// `-m set --match-set weave-x src -p tcp -m tcp --dport 80`.
	Match string
	// Target holds the target's arguments, for example `-j ACCEPT` or `-g WEAVE-NPC-DROP-INGRESS`. A rule
	// without one only counts.
	Target string
	// Comment is for humans; it is sanitised when the rule is rendered.
	Comment string
	// Order comes before the text where rules are sorted whose order means nothing. It is no part of the rule.
	Order int
	// Printed, if not empty, is the rule as the kernel prints it, without command and chain. Such a rule is written back
	// as it is; Target is its target, Match and Comment are empty.
	Printed string
}

// Found returns a rule of ours that the kernel printed ("-A CHAIN ..."), to be kept. ok is false for a rule without an
// id, which is not ours.
func Found(printed string) (r Rule, ok bool) {
	found, err := parseRule(printed)
	if err != nil || commentID(found.comment) == "" {
		return Rule{}, false
	}
	r.Printed = strings.TrimPrefix(printed, "-A "+found.chain+" ")
	if words := strings.Fields(printed); len(words) >= 2 && words[len(words)-1] == found.target {
		r.Target = strings.Join(words[len(words)-2:], " ")
	}
	return r, true
}

// Sets returns the names of the sets that a rule matches.
func (r Rule) Sets() []string {
	words, err := split(cmp.Or(r.Printed, r.Match))
	if err != nil {
		return nil
	}
	var names []string
	for i, word := range words[:max(len(words)-1, 0)] {
		if word == "--match-set" {
			names = append(names, words[i+1])
		}
	}
	return names
}

// ID names the rule: ten characters of lower-case base32 of SHA1 over its three fields.
func (r Rule) ID() string {
	if r.Printed != "" {
		return RuleID("-A x " + r.Printed)
	}
	h := sha1.New()
	for _, field := range []string{r.Match, r.Target, r.Comment} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return base32.NewEncoding(idAlphabet).EncodeToString(h.Sum(nil))[:idLen]
}

// String is the rule as iptables arguments, without command and chain:
// `<Match> -m comment --comment "<id> <comment>" <Target>`.
func (r Rule) String() string {
	if r.Printed != "" {
		return r.Printed
	}
	var b strings.Builder
	if r.Match != "" {
		b.WriteString(r.Match)
		b.WriteByte(' ')
	}
	b.WriteString(`-m comment --comment "`)
	b.WriteString(r.ID())
	if comment := Comment(r.Comment); comment != "" {
		b.WriteByte(' ')
		b.WriteString(comment)
	}
	b.WriteByte('"')
	if r.Target != "" {
		b.WriteByte(' ')
		b.WriteString(r.Target)
	}
	return b.String()
}

// Comment joins parts by a space into a text that is safe between double quotes in iptables-restore input: every
// character outside [A-Za-z0-9 ._/:=-] becomes "?", and what is too long to stand beside an id ends in "..".
func Comment(parts ...string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r >= '0' && r <= '9', strings.ContainsRune(" ._/:=-", r):
			return r
		}
		return '?'
	}, strings.Join(parts, " "))
	const limit = maxComment - idLen - len(" ")
	if len(clean) > limit {
		clean = clean[:limit-len("..")] + ".."
	}
	return strings.TrimSpace(clean)
}

// commentID returns the id at the head of a comment, or "" if the comment does not begin with one.
func commentID(comment string) string {
	first, _, _ := strings.Cut(comment, " ")
	if len(first) != idLen || strings.Trim(first, idAlphabet) != "" {
		return ""
	}
	return first
}
