package iptables

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

const (
	// maxChainName is XT_EXTENSION_MAXNAMELEN without the terminating NUL and the byte that iptables reserves.
	maxChainName = 28
	// maxLine is below the buffer of iptables-restore, 10240 bytes: the program splits longer lines.
	maxLine = 8192
)

// Chain is a chain of this program with all its rules.
type Chain struct {
	Name string
	// Rules are the first rules. Their order has no meaning because they only allow.
	Rules []Rule
	// Tail are the rules after Rules, in order.
	Tail []Rule
}

// all returns the rules in the order that Update writes.
func (c Chain) all() []Rule {
	return slices.Concat(sorted(c.Rules), c.Tail)
}

// IDs returns the ids of the rules in the order that Update writes. They equal SeenChain.IDs if the kernel has the same
// rules.
func (c Chain) IDs() []string {
	ids := make([]string, 0, len(c.Rules)+len(c.Tail))
	for _, r := range c.all() {
		ids = append(ids, r.ID())
	}
	return ids
}

// Jump is a rule of this program in a foreign chain.
type Jump struct {
	Chain string
	// Rule becomes the first rule of the chain. With the zero Rule the update only deletes Stale.
	Rule Rule
	// Stale are rules of the chain to delete first, each exactly as it was printed ("-A FORWARD ..."). If one does not
	// exist, the whole update fails.
	Stale []string
}

// Referrers returns jumps that delete the rules of foreign chains which refer to chains with the prefix. Those chains
// cannot be deleted before.
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

// Update is one transaction on the filter table. The order of its steps is fixed, whatever the order of the calls that
// added them.
type Update struct {
	// Replace are chains to create, or to empty, and to fill.
	Replace []Chain
	// Insert holds rules to insert at the head of existing chains: chain -> rules. Under nft an update that only
	// inserts is about nine times faster than one that flushes or deletes.
	Insert map[string][]Rule
	// Edits change rules of existing chains at their places.
	Edits []Edit
	// Jumps become the first rules of their chains. Several jumps of one chain keep their order.
	Jumps []Jump
	// Delete are chains to empty and delete, after all rules that refer to them.
	Delete []string
}

// Empty reports whether the update does nothing.
func (u Update) Empty() bool {
	return len(u.lines()) == 0
}

// Without returns the update without those rules of its chains that drop reports, or with the rules that replace them.
// Tails and jumps stay.
func (u Update) Without(drop func(Rule) bool) Update {
	out := Update{Jumps: u.Jumps, Delete: u.Delete, Insert: map[string][]Rule{}}
	for _, c := range u.Replace {
		c.Rules = without(c.Rules, drop)
		out.Replace = append(out.Replace, c)
	}
	for chain, rules := range u.Insert {
		if rules = without(rules, drop); len(rules) > 0 {
			out.Insert[chain] = rules
		}
	}
	for _, e := range u.Edits {
		out.Edits = append(out.Edits, e.without(drop))
	}
	return out
}

func without(rules []Rule, drop func(Rule) bool) []Rule {
	var left []Rule
	for _, r := range rules {
		for drop(r) && r.Instead != nil {
			r = *r.Instead
		}
		if !drop(r) {
			left = append(left, r)
		}
	}
	return left
}

// String returns the update as input of iptables-restore --noflush. Equal updates have equal texts: everything without
// an order is sorted.
func (u Update) String() string {
	return restoreInput(u.lines())
}

// restoreInput returns lines as a transaction on the filter table. lines[i] is line i+2 of the input.
func restoreInput(lines []string) string {
	var b strings.Builder
	b.WriteString("*filter\n")
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// lines returns the lines of the update. Chains are declared before rules refer to them; a stale jump is deleted before
// the new one is inserted, because the same text would delete the new one; chains are deleted when no rule refers to
// them.
func (u Update) lines() []string {
	var lines []string
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }

	replace := slices.SortedFunc(slices.Values(u.Replace),
		func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, chain := range replace {
		add(":"+chain.Name, "-", "[0:0]")
	}
	edits, probes := u.edits()
	for _, probe := range probes {
		add(":"+probe, "-", "[0:0]")
	}
	for _, jump := range u.Jumps {
		for _, stale := range jump.Stale {
			add(deletion(jump.Chain, stale))
		}
	}
	for _, chain := range replace {
		for _, rule := range chain.all() {
			add("-A", chain.Name, rule.String())
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(u.Insert)) {
		for _, rule := range slices.Backward(sorted(u.Insert[chain])) {
			add("-I", chain, "1", rule.String())
		}
	}
	for _, edit := range edits {
		lines = append(lines, edit.lines()...)
	}
	for _, jump := range slices.Backward(u.Jumps) {
		if jump.Rule != (Rule{}) {
			add("-I", jump.Chain, "1", jump.Rule.String())
		}
	}
	gone := slices.Sorted(slices.Values(u.Delete))
	for _, chain := range gone {
		add("-F", chain)
	}
	for _, chain := range append(gone, probes...) {
		add("-X", chain)
	}
	return lines
}

// deletion returns the line that deletes a printed rule of a chain. For any other text it returns a comment, which
// String shows and checkLine rejects.
func deletion(chain, printed string) string {
	if rest, ok := strings.CutPrefix(printed, "-A "+chain+" "); ok {
		return "-D " + chain + " " + rest
	}
	return "# not in " + chain + ": " + printed
}

// sorted returns rules sorted by their Order and then by their text.
func sorted(rules []Rule) []Rule {
	type line struct {
		text string
		rule Rule
	}
	lines := make([]line, 0, len(rules))
	for _, rule := range rules {
		lines = append(lines, line{rule.String(), rule})
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(a.rule.Order-b.rule.Order, strings.Compare(a.text, b.text))
	})
	ordered := make([]Rule, 0, len(rules))
	for _, l := range lines {
		ordered = append(ordered, l.rule)
	}
	return ordered
}

// checkLine returns an error for a line that iptables-restore would not read as exactly one command.
func checkLine(line string) error {
	if strings.HasPrefix(line, "#") {
		return errors.New("a stale rule must be one of its chain, as printed")
	}
	if len(line) > maxLine {
		return errors.Errorf("longer than %d bytes", maxLine)
	}
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("control character")
	}
	words, err := Words(line)
	if err != nil {
		return err
	}
	var chain string
	switch {
	case strings.HasPrefix(line, ":"):
		chain = strings.TrimPrefix(words[0], ":")
	case len(words) >= 2 && slices.Contains([]string{"-A", "-I", "-D", "-F", "-X"}, words[0]):
		chain = words[1]
	default:
		return errors.New("not a command")
	}
	return checkChainName(chain)
}

// checkChainName returns an error unless both backends take the name as it is and it needs no quotes.
func checkChainName(name string) error {
	if name == "" || len(name) > maxChainName {
		return errors.Errorf("chain name %q has not 1 to %d characters", name, maxChainName)
	}
	plain := func(r rune) bool {
		return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:", r)
	}
	if name[0] == '-' || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return errors.Errorf("chain name %q has a character that it may not have", name)
	}
	return nil
}
