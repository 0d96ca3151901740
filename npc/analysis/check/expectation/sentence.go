package expectation

import (
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// phrase is words that stand for a verb.
type phrase struct {
	words string
	verb  Verb
}

// verbs are the words between a subject and another one, longer ones before those that they end with.
func verbs() []phrase {
	return []phrase{
		{"never reaches", Never}, {"never reach", Never}, {"cannot reach", Never}, {"always reaches", Always},
		{"always reach", Always},
		{"can reach", Reaches}, {"reaches", Reaches}, {"reach", Reaches},
	}
}

// parseSentence reads an expectation of the form
//
//	SUBJECT (reaches | never reaches | always reaches) SUBJECT [on PORT, ...]
//	(none | none outside SUBJECT | only SUBJECT) (reaches | can reach) SUBJECT [on PORT, ...]
func parseSentence(text string) (e Expectation, err error) {
	words, err := splitWords(text)
	if err != nil {
		return e, err
	}
	left, verb, right, ok := cutVerb(words)
	if !ok {
		return e, noVerb(words)
	}
	if e, err = parseSources(left, verb); err != nil {
		return e, err
	}
	if at := slices.Index(right, "on"); at >= 0 {
		if e.Ports, err = parsePorts(strings.Join(right[at+1:], " ")); err != nil {
			return e, err
		}
		right = right[:at]
	}
	if len(right) == 0 {
		return e, errors.New("after the verb, the destination is missing, such as shop/db")
	}
	if e.To, err = parseSubject(right); err != nil {
		return e, errors.Wrap(err, "the destination")
	}
	return e, checkVerb(e)
}

// checkVerb returns an error for a verb that needs ports.
func checkVerb(e Expectation) error {
	if e.Verb == Always && len(e.Ports) == 0 {
		return errors.New("always reaches needs ports, such as: on tcp/443")
	}
	for _, t := range e.From {
		if t.Domain != "" {
			return errors.Errorf("%s is a domain name, which opens no connections: it can be a destination", t.Text)
		}
	}
	return nil
}

// parseSources reads what stands before a verb.
func parseSources(words []string, verb Verb) (e Expectation, err error) {
	e.Verb = verb
	if len(words) == 0 {
		return e, errors.New("before the verb, the source is missing, such as shop/web")
	}
	first := words[0]
	switch {
	case first != "none" && first != "only":
		if e.From, err = parseSubject(words); err != nil {
			return e, errors.Wrap(err, "the source")
		}
		return e, nil
	case verb != Reaches:
		return e, errors.Errorf("%s goes with reaches or can reach alone", first)
	case first == "none" && len(words) == 1:
		e.Verb, e.From = Never, Subject{{Text: "anything", All: true}}
		return e, nil
	case first == "none" && words[1] != "outside":
		return e, errors.Errorf("after none comes outside or reaches, not %q", words[1])
	case first == "none":
		words = words[1:]
	}
	if len(words) == 1 {
		return e, errors.Errorf("after %s, the source is missing, such as shop/web", words[0])
	}
	e.Verb, e.Outside = Never, true
	if e.From, err = parseSubject(words[1:]); err != nil {
		return e, errors.Wrap(err, "the source")
	}
	return e, nil
}

// cutVerb returns what stands before and after the verb.
func cutVerb(words []string) (left []string, verb Verb, right []string, ok bool) {
	for i := range words {
		for _, v := range verbs() {
			of := strings.Fields(v.words)
			if i+len(of) <= len(words) && slices.Equal(words[i:i+len(of)], of) {
				return words[:i], v.verb, words[i+len(of):], true
			}
		}
	}
	return nil, 0, nil, false
}

func noVerb(words []string) error {
	for _, w := range words {
		if near := spelling.DidYouMean(w, slices.Values([]string{"reaches"})); near != "" {
			return errors.Errorf("there is no verb, and %q is none%s", w, near)
		}
	}
	return errors.New("there is no verb: write reaches, never reaches or always reaches, " +
		"as in: shop/web reaches shop/db on tcp/5432")
}

// splitWords returns the words of a sentence. What is in parentheses belongs to its word.
func splitWords(text string) (words []string, err error) {
	depth, word := 0, strings.Builder{}
	for _, c := range text + " " {
		switch {
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return nil, errors.New("a parenthesis is closed that was not opened")
			}
		case depth == 0 && strings.ContainsRune(" \t\r\n", c):
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
			continue
		}
		word.WriteRune(c)
	}
	if depth > 0 {
		return nil, errors.New("a parenthesis is not closed")
	}
	return words, nil
}
