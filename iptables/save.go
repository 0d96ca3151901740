package iptables

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// Seen is what the kernel's filter table holds of interest.
type Seen struct {
	// Chains holds the chains whose name has the prefix that Read was given: name -> rules.
	Chains map[string]SeenChain
	// Hooks holds the builtin chains, and all other chains that refer to one of ours: name -> rules as printed
	// ("-A FORWARD ..."), in order.
	Hooks map[string][]string
	// Policies holds builtin chain -> policy.
	Policies map[string]string
	// Accepting holds the foreign chains that a rule of Hooks leads to and that can accept a packet, by themselves
	// or by a chain that they lead to.
	Accepting map[string]bool
	// Native says that the table holds rules that iptables cannot show, written with nft: of Hooks, only comments and what
	// they lead to is known.
	Native bool
}

// errIncompatible is the error of a table with rules that iptables cannot show.
var errIncompatible = errors.New("the table holds rules that iptables cannot show: something wrote to it with nft")

// Accepts says whether a printed rule of Hooks can accept a packet, by itself or by the foreign chain that it leads to.
func (s Seen) Accepts(printed string) bool {
	r, err := parseRule(printed)
	return err == nil && (r.target == "ACCEPT" || s.Accepting[r.target])
}

// RuleID is the id that a printed rule's comment begins with; empty if there is none or the rule cannot be read.
func RuleID(printed string) string {
	r, err := parseRule(printed)
	if err != nil {
		return ""
	}
	return r.idOr("")
}

// findAccepting fills Accepting.
func (s Seen) findAccepting(foreign map[string][]string) {
	known := map[string]bool{} // chain -> whether it accepts; false also while that is being found out
	var accepts func(chain string) bool
	accepts = func(chain string) bool {
		if answer, ok := known[chain]; ok {
			return answer
		}
		known[chain] = false
		for _, rule := range foreign[chain] {
			if r, err := parseRule(rule); err == nil && (r.target == "ACCEPT" || accepts(r.target)) {
				known[chain] = true
				break
			}
		}
		return known[chain]
	}
	for _, rules := range s.Hooks {
		for _, rule := range rules {
			if r, err := parseRule(rule); err == nil && accepts(r.target) {
				s.Accepting[r.target] = true
			}
		}
	}
}

// SeenChain is a chain of ours as the kernel holds it.
type SeenChain struct {
	// IDs holds each rule's id, in order; for a rule that has none, "?" and its text.
	IDs []string
	// Text holds the rules as printed ("-A CHAIN ..."), in order, without their counters.
	Text []string
	// Packets holds how many packets each rule has matched since it was written, in order; nil if that was not read.
	Packets []uint64
}

// Referrers returns the rules in foreign chains that refer to a chain whose name has the prefix, as jumps that only
// remove: what stands in the way of deleting those chains.
func Referrers(seen Seen, prefix string) []Jump {
	var jumps []Jump
	for chain, rules := range seen.Hooks {
		if strings.HasPrefix(chain, prefix) {
			continue
		}
		var stale []string
		for _, text := range rules {
			if r, err := parseRule(text); err == nil && r.refersTo(prefix) {
				stale = append(stale, text)
			}
		}
		if stale != nil {
			jumps = append(jumps, Jump{Chain: chain, Stale: stale})
		}
	}
	slices.SortFunc(jumps, func(a, b Jump) int { return strings.Compare(a.Chain, b.Chain) })
	return jumps
}

// parseSave reads the output of iptables-save -t filter. It refuses what it does not understand and what lacks its
// end, because a table read by half would be mended by half.
func parseSave(output, prefix string) (Seen, error) {
	seen := Seen{Chains: map[string]SeenChain{}, Hooks: map[string][]string{}, Policies: map[string]string{},
		Accepting: map[string]bool{}}
	foreign := map[string][]string{}
	referrers := map[string]bool{}
	inTable := false
	for number := 1; output != ""; number++ {
		var line string
		line, output = nextLine(output)
		var err error
		switch {
		case strings.HasPrefix(line, "# Table ") && strings.Contains(line, "is incompatible"):
			err = errIncompatible
		case line == "", strings.HasPrefix(line, "#"):
		case line == "*filter" && !inTable:
			inTable = true
		case line == "COMMIT" && inTable:
			inTable = false
		case strings.HasPrefix(line, ":") && inTable:
			err = seen.addChain(line, prefix, foreign)
		case (line[0] == '-' || line[0] == '[') && inTable:
			err = seen.addRule(line, prefix, foreign, referrers)
		default:
			err = errors.New("not understood")
		}
		if err != nil {
			return Seen{}, errors.Wrapf(err, "reading the filter table, entry %d, %.200q", number, line)
		}
	}
	if inTable {
		return Seen{}, errors.New("reading the filter table: it ends without COMMIT")
	}
	seen.findHooks(foreign, referrers)
	return seen, nil
}

// findHooks fills Hooks and Accepting.
func (s Seen) findHooks(foreign map[string][]string, referrers map[string]bool) {
	for chain, rules := range foreign {
		if _, builtin := s.Policies[chain]; builtin || referrers[chain] {
			s.Hooks[chain] = rules
		}
	}
	s.findAccepting(foreign)
}

// addChain takes a chain's declaration, `:NAME POLICY [packets:bytes]`.
func (s Seen) addChain(line, prefix string, foreign map[string][]string) error {
	fields := strings.Fields(line[1:])
	if len(fields) != 3 {
		return errors.New("not a chain")
	}
	name, policy := fields[0], fields[1]
	switch {
	case policy != "-":
		s.Policies[name] = policy
		foreign[name] = nil
	case strings.HasPrefix(name, prefix):
		s.Chains[name] = SeenChain{}
	default:
		foreign[name] = nil
	}
	return nil
}

// addRule takes a rule, `[packets:bytes] -A CHAIN ...`, of a chain that has been declared.
func (s Seen) addRule(line, prefix string, foreign map[string][]string, referrers map[string]bool) error {
	packets, line, err := cutCounters(line)
	if err != nil {
		return err
	}
	r, err := parseRule(line)
	if err != nil {
		return err
	}
	if chain, ours := s.Chains[r.chain]; ours {
		chain.IDs = append(chain.IDs, r.idOr("?"+line))
		chain.Text = append(chain.Text, line)
		chain.Packets = append(chain.Packets, packets)
		s.Chains[r.chain] = chain
		return nil
	}
	if _, declared := foreign[r.chain]; !declared {
		return errors.Errorf("chain %s is not declared", r.chain)
	}
	foreign[r.chain] = append(foreign[r.chain], line)
	if r.refersTo(prefix) {
		referrers[r.chain] = true
	}
	return nil
}

// cutCounters cuts the counters off a rule, which is one that is added.
func cutCounters(line string) (packets uint64, rule string, err error) {
	rule = line
	if counters, rest, ok := strings.Cut(line, "] "); ok && line[0] == '[' {
		count, _, _ := strings.Cut(counters[1:], ":")
		if packets, err = strconv.ParseUint(count, 10, 64); err != nil {
			return 0, "", errors.New("no counters")
		}
		rule = rest
	}
	if !strings.HasPrefix(rule, "-A ") {
		return 0, "", errors.New("not understood")
	}
	return packets, rule, nil
}

// nextLine cuts the first line off text. A line break between quotes is part of its line: a comment may hold one.
func nextLine(text string) (line, rest string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			// Only rules have quotes; a comment line of the tool may hold a single one.
			quoted = !quoted && (text[0] == '-' || text[0] == '[')
		case '\n':
			if !quoted {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// parsed is what is read from one printed rule.
type parsed struct {
	chain   string
	comment string
	target  string // of -j or -g
}

// parseRule reads a rule as iptables-save and iptables -S print it, or as Update writes it.
func parseRule(line string) (parsed, error) {
	words, err := split(line)
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

// idOr returns the id that the rule's comment begins with, or other if it does not begin with one.
func (r parsed) idOr(other string) string {
	if id := commentID(r.comment); id != "" {
		return id
	}
	return other
}

// split cuts a line into words as iptables-restore does: blanks separate, double quotes group, and between them a
// backslash takes the next character as it is.
func split(line string) ([]string, error) {
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
