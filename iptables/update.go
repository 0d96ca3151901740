package iptables

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

const (
	// maxChainName is XT_EXTENSION_MAXNAMELEN without its end and the byte that iptables keeps for itself.
	maxChainName = 28
	// maxLine keeps a line within iptables-restore's buffer of 10240 bytes, past which it would be split.
	maxLine = 8192
)

// Chain is a chain of ours with all its rules.
type Chain struct {
	Name string
	// Rules are those whose order means nothing, because they only allow. They come first.
	Rules []Rule
	// Tail are the rules after them, in order.
	Tail []Rule
}

// All returns the rules in the order in which Update writes them.
func (c Chain) All() []Rule {
	return slices.Concat(sorted(c.Rules), c.Tail)
}

// IDs returns the ids of the rules in the order in which Update writes them, as SeenChain.IDs has them when the
// kernel holds nothing else.
func (c Chain) IDs() []string {
	ids := make([]string, 0, len(c.Rules)+len(c.Tail))
	for _, r := range c.All() {
		ids = append(ids, r.ID())
	}
	return ids
}

// Jump is our rule in a chain that is not ours.
type Jump struct {
	Chain string
	// Rule becomes the first rule of the chain; the zero Rule only removes what is stale.
	Rule Rule
	// Stale are rules of that chain to delete before, each exactly as it was printed ("-A FORWARD ..."). One
	// that is not there fails the whole update.
	Stale []string
}

// Update is what one transaction does to the filter table. Its parts are rendered in the only order that works,
// whatever the order they were added in.
type Update struct {
	// Replace are chains that are made, or emptied, and filled.
	Replace []Chain
	// Insert holds chain -> rules that go to the head of an existing chain. Under nft an update that inserts
	// and neither flushes nor deletes is about nine times faster than one that does.
	Insert map[string][]Rule
	// Jumps are moved to the first place of their chains; of several in one chain the first stays first.
	Jumps []Jump
	// Delete are chains to empty and remove, after everything that refers to them has gone.
	Delete []string
}

// Empty reports whether the update does nothing.
func (u Update) Empty() bool {
	return len(u.lines()) == 0
}

// hasStale says whether the update deletes rules from chains that are not ours.
func (u Update) hasStale() bool {
	return slices.ContainsFunc(u.Jumps, func(j Jump) bool { return len(j.Stale) > 0 })
}

// String is the update as input of iptables-restore --noflush. It is the same for equal updates: what has no order
// is sorted.
func (u Update) String() string {
	return restoreInput(u.lines())
}

// restoreInput frames lines as a transaction on the filter table: line i is number i+2 of the input.
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

// lines renders the update: chains are declared before any rule names them; a stale jump is deleted before the new
// one is inserted, since the same text would delete the new one; a chain is deleted when nothing refers to it.
func (u Update) lines() []string {
	var lines []string
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }

	replace := slices.SortedFunc(slices.Values(u.Replace), func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, chain := range replace {
		add(":"+chain.Name, "-", "[0:0]")
	}
	for _, jump := range u.Jumps {
		for _, stale := range jump.Stale {
			add(deletion(jump.Chain, stale))
		}
	}
	for _, chain := range replace {
		for _, rule := range chain.All() {
			add("-A", chain.Name, rule.String())
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(u.Insert)) {
		for _, rule := range slices.Backward(sorted(u.Insert[chain])) {
			add("-I", chain, "1", rule.String())
		}
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
	for _, chain := range gone {
		add("-X", chain)
	}
	return lines
}

// deletion turns a printed rule of a chain into the line that deletes it. Anything else becomes a comment, which
// String shows and checkLine refuses.
func deletion(chain, printed string) string {
	if rest, ok := strings.CutPrefix(printed, "-A "+chain+" "); ok {
		return "-D " + chain + " " + rest
	}
	return "# not in " + chain + ": " + printed
}

// sorted returns rules by their Order, and then in the order of their text.
func sorted(rules []Rule) []Rule {
	type line struct {
		text string
		rule Rule
	}
	lines := make([]line, 0, len(rules))
	for _, rule := range rules {
		lines = append(lines, line{rule.String(), rule})
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Or(a.rule.Order-b.rule.Order, strings.Compare(a.text, b.text)) })
	ordered := make([]Rule, 0, len(rules))
	for _, l := range lines {
		ordered = append(ordered, l.rule)
	}
	return ordered
}

// checkLine refuses what would not reach the kernel as the one command that it was meant to be.
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
	words, err := split(line)
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

// checkChainName accepts the names that mean the same to both backends and need no quoting.
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
