package iptables

import (
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// Seen is the state of the kernel's filter table.
type Seen struct {
	// Chains holds the chains whose names have the prefix that was passed to Read: name -> rules.
	Chains map[string]SeenChain
	// Hooks holds the builtin chains and all other chains that refer to one of Chains: name -> rules as printed
	// ("-A FORWARD ..."), in order.
	Hooks map[string][]string
	// Policies holds builtin chain -> policy.
	Policies map[string]string
	// Accepting holds the foreign chains that a rule of Hooks leads to and that can accept a packet, by themselves or
	// through other chains.
	Accepting map[string]bool
	// Native is set if the table has rules that iptables cannot show because they were written with nft. The rules of
	// Hooks have only their comments and targets then.
	Native bool
}

// errIncompatible is the error of a table with rules that iptables cannot show.
var errIncompatible = errors.New("the table holds rules that iptables cannot show: something wrote to it with nft")

// Accepts reports whether a printed rule of Hooks can accept a packet, by itself or through the foreign chain that it
// leads to.
func (s Seen) Accepts(printed string) bool {
	r, err := parseRule(printed)
	return err == nil && (r.target == "ACCEPT" || s.Accepting[r.target])
}

// findAccepting fills Accepting.
func (s Seen) findAccepting(foreign map[string][]string) {
	known := map[string]bool{} // chain -> whether it accepts; false for a chain that is being visited
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

// SeenChain is the state of one chain in the kernel.
type SeenChain struct {
	// IDs holds the id of each rule, in order, or "?" and its text if it has no id.
	IDs []string
	// Text holds the rules as printed ("-A CHAIN ..."), in order, without their counters.
	Text []string
	// Packets holds the number of packets that each rule has matched since it was written, in order; nil if the
	// counters were not read.
	Packets []uint64
}

// parseSave parses the output of iptables-save -t filter. It returns an error for unknown lines and for a missing end:
// otherwise the caller would repair a table that was only partly read.
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

// addChain adds a chain from its declaration, `:NAME POLICY [packets:bytes]`.
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

// addRule adds a rule, `[packets:bytes] -A CHAIN ...`, of a chain that has been declared.
func (s Seen) addRule(line, prefix string, foreign map[string][]string, referrers map[string]bool) error {
	packets, line, err := cutCounters(line)
	if err != nil {
		return err
	}
	r, err := parseRule(line)
	if err != nil {
		return err
	}
	if chain, own := s.Chains[r.chain]; own {
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

// cutCounters splits the counters off a printed rule.
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
