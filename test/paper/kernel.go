// Package paper simulates a kernel in memory: it applies transactions to sets and chains as strictly as the real one,
// and evaluates packets by them, as package simulate does.
package paper

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// Kernel is one family's sets and filter table.
type Kernel struct {
	Family npc.Family
	simulate.Table
	// Forgotten are the addresses whose flows were deleted from conntrack.
	Forgotten []netip.Addr
	// other is the other family's, with which the sets are shared.
	other *Kernel
	// references has what rules refer to, by their texts, because each restore checks all rules.
	references map[string]reference
	// Learned, if not nil, returns what a set gets by others as soon as it is made.
	Learned func(set string) []ipset.Element
	// AfterStep, if not nil, is called whenever a set was changed, or another step of a transaction is done.
	AfterStep func()
}

// reference is what a rule refers to: a chain, or none, and sets.
type reference struct {
	chain string
	sets  []string
}

// newTable returns a table with empty builtin chains.
func newTable(sets map[string]*simulate.Set) simulate.Table {
	return simulate.Table{Sets: sets, Chains: map[string][]string{"FORWARD": nil, "INPUT": nil, "OUTPUT": nil}}
}

// New returns the kernel of a fresh network namespace, by families. Sets are shared by both.
func New() [2]*Kernel {
	sets := map[string]*simulate.Set{}
	references := map[string]reference{}
	v4 := &Kernel{Family: npc.IPv4, Table: newTable(sets), references: references}
	v6 := &Kernel{Family: npc.IPv6, Table: newTable(sets), references: references, other: v4}
	v4.other = v6
	return [2]*Kernel{v4, v6}
}

// Apply carries out a transaction. It fails where the kernel would.
func (k *Kernel) Apply(tx dataplane.Transaction) error {
	steps := []func() error{
		func() error { return k.sets(tx.DeleteStale) },
		func() error { return k.sets(tx.Close) },
		func() error {
			for _, r := range tx.FlushConntrack {
				k.Forgotten = append(k.Forgotten, r.Addr)
			}
			return nil
		},
		func() error { return k.sets(tx.AddMembers) },
		func() error { return k.restores(tx) },
		func() error { return k.sets(tx.AddAfterRestore) },
		func() error { return k.sets(tx.DeleteDispatch) },
		func() error { return k.sets(tx.DeleteAndDestroy) },
		func() error { return k.sets(tx.Open) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Wrapf(err, "applying\n%s", tx)
		}
		k.done()
	}
	return nil
}

// restores carries out the rules in as many parts as they may be cut into.
func (k *Kernel) restores(tx dataplane.Transaction) error {
	for _, part := range tx.Restores(0) {
		if err := k.restore(part.String()); err != nil {
			return err
		}
		k.done()
	}
	return nil
}

func (k *Kernel) done() {
	if k.AfterStep != nil {
		k.AfterStep()
	}
}

func (k *Kernel) sets(ops []ipset.Op) error {
	for _, op := range ops {
		if err := k.set(op); err != nil {
			return errors.Wrap(err, op.String())
		}
		k.done()
	}
	return nil
}

func (k *Kernel) set(op ipset.Op) error {
	s := k.Sets[op.Set.Name]
	switch op.Kind {
	case ipset.Create:
		if s != nil {
			return errors.New("exists")
		}
		k.Sets[op.Set.Name] = &simulate.Set{Set: op.Set, Members: map[ipset.Entry]ipset.Attr{}}
		elements := op.Elements
		if k.Learned != nil {
			elements = slices.Concat(elements, k.Learned(op.Set.Name))
		}
		return k.add(k.Sets[op.Set.Name], elements)
	case ipset.Destroy:
		if s != nil && k.inUse(op.Set.Name) {
			return errors.New("in use")
		}
		delete(k.Sets, op.Set.Name)
		return nil
	}
	if s == nil {
		return errors.New("does not exist")
	}
	switch op.Kind {
	case ipset.Add:
		return k.add(s, op.Elements)
	case ipset.Delete:
		for _, e := range op.Elements {
			delete(s.Members, e.Entry)
		}
	case ipset.Flush:
		clear(s.Members)
	}
	return nil
}

func (k *Kernel) add(s *simulate.Set, elements []ipset.Element) error {
	for _, e := range elements {
		switch {
		case s.Type == ipset.ListSet && k.Sets[e.Set] == nil:
			return errors.Errorf("member %s does not exist", e.Set)
		case s.Type != ipset.ListSet && e.Prefix.Addr().Is4() != (s.Family == ipset.IPv4):
			return errors.Errorf("%s is of the other family", e)
		case s.Type == ipset.HashNet && e.Prefix.Bits() == 0:
			return errors.New("a hash:net set takes no /0")
		}
		s.Members[e.Entry] = e.Attr
	}
	return nil
}

// inUse reports whether a rule or a set refers to a set.
func (k *Kernel) inUse(name string) bool {
	for _, s := range k.Sets {
		if _, ok := s.Members[ipset.Member(name)]; ok {
			return true
		}
	}
	refers := func(rule string) bool { return strings.Contains(rule+" ", "--match-set "+name+" ") }
	for _, rules := range [][]string{slices.Concat(slices.Collect(maps.Values(k.Chains))...),
		slices.Concat(slices.Collect(maps.Values(k.other.Chains))...)} {
		if slices.ContainsFunc(rules, refers) {
			return true
		}
	}
	return false
}

// restore carries out the input of iptables-restore --noflush: all of it, or nothing.
func (k *Kernel) restore(input string) error {
	chains := map[string][]string{}
	for name, rules := range k.Chains {
		chains[name] = slices.Clone(rules)
	}
	for _, line := range strings.Split(input, "\n") {
		if err := restoreLine(chains, line); err != nil {
			return errors.Wrap(err, line)
		}
	}
	for name, rules := range chains {
		for _, r := range rules {
			if err := k.check(chains, r); err != nil {
				return errors.Wrapf(err, "%s %s", name, r)
			}
		}
	}
	k.Chains = chains
	return nil
}

func restoreLine(chains map[string][]string, line string) error {
	command, rest, _ := strings.Cut(line, " ")
	if name, ok := strings.CutPrefix(command, ":"); ok {
		chains[name] = nil
		return nil
	}
	chain, rule, _ := strings.Cut(rest, " ")
	if _, ok := chains[chain]; !ok && strings.HasPrefix(command, "-") {
		return errors.New("no such chain")
	}
	switch command {
	case "-A":
		chains[chain] = append(chains[chain], rule)
	case "-I":
		number, rule, _ := strings.Cut(rule, " ")
		i, err := strconv.Atoi(number)
		if err != nil || i < 1 || i > len(chains[chain])+1 {
			return errors.New("no such number")
		}
		chains[chain] = slices.Insert(chains[chain], i-1, rule)
	case "-D":
		i := slices.Index(chains[chain], rule)
		if number, err := strconv.Atoi(rule); err == nil {
			i = number - 1
		}
		if i < 0 || i >= len(chains[chain]) {
			return errors.New("no such rule")
		}
		chains[chain] = slices.Delete(chains[chain], i, i+1)
	case "-F":
		chains[chain] = nil
	case "-X":
		if len(chains[chain]) > 0 {
			return errors.New("not empty")
		}
		delete(chains, chain)
	}
	return nil
}

// Refers returns the chain that a rule leads to, if any, and the sets that it matches. A rule that walk cannot evaluate
// is an error.
func (k *Kernel) Refers(text string) (chain string, sets []string, err error) {
	if r, known := k.references[text]; known {
		return r.chain, r.sets, nil
	}
	alone := simulate.Table{Chains: map[string][]string{"FORWARD": {text}}}
	if _, err := alone.Simulate(simulate.Packet{}); err != nil {
		return "", nil, err
	}
	words, err := iptables.Words(text)
	if err != nil {
		return "", nil, errors.Wrap(err, text)
	}
	for i, word := range words[:max(len(words)-1, 0)] {
		switch word {
		case "--match-set":
			sets = append(sets, words[i+1])
		case "-j", "-g":
			if !slices.Contains([]string{"ACCEPT", "DROP", "RETURN", "NFLOG", "MARK", "REJECT", "NFQUEUE"}, words[i+1]) {
				chain = words[i+1]
			}
		}
	}
	k.references[text] = reference{chain, sets}
	return chain, sets, nil
}

// check refuses a rule that refers to what is not there.
func (k *Kernel) check(chains map[string][]string, text string) error {
	chain, sets, err := k.Refers(text)
	if err != nil {
		return err
	}
	if _, ok := chains[chain]; chain != "" && !ok {
		return errors.Errorf("no chain %s", chain)
	}
	for _, name := range sets {
		if k.Sets[name] == nil {
			return errors.Errorf("no set %s", name)
		}
	}
	return nil
}

// Read returns what LoadSets and LoadChains of the controller take from a kernel.
func (k *Kernel) Read() ([]ipset.Listing, iptables.Seen) {
	var listings []ipset.Listing
	users := k.users()
	for _, s := range k.Sets {
		l := ipset.Listing{Header: ipset.Header{Set: s.Set, Elements: uint32(len(s.Members)), References: users[s.Name]}}
		for e, a := range s.Members {
			l.Members = append(l.Members, ipset.Element{Entry: e, Attr: a})
		}
		listings = append(listings, l)
	}
	seen := iptables.Seen{Chains: map[string]iptables.SeenChain{}, Hooks: map[string][]string{}}
	for name, rules := range k.Chains {
		if !strings.HasPrefix(name, "WEAVE-NPC") {
			for _, r := range rules {
				seen.Hooks[name] = append(seen.Hooks[name], "-A "+name+" "+r)
			}
			continue
		}
		var c iptables.SeenChain
		for _, r := range rules {
			c.Text = append(c.Text, "-A "+name+" "+r)
			c.IDs = append(c.IDs, iptables.RuleID("-A "+name+" "+r))
		}
		seen.Chains[name] = c
	}
	return listings, seen
}

// users returns how many rules and lists refer to each set.
func (k *Kernel) users() map[string]uint32 {
	users := map[string]uint32{}
	for _, table := range []*Kernel{k, k.other} {
		for _, rules := range table.Chains {
			for _, text := range rules {
				if _, sets, err := k.Refers(text); err == nil { // another program's rules name none of these sets
					for _, name := range sets {
						users[name]++
					}
				}
			}
		}
	}
	for _, s := range k.Sets {
		for e := range s.Members {
			if e.Set != "" {
				users[e.Set]++
			}
		}
	}
	return users
}

// Lines returns all that the kernel holds, sorted: the chains, the sets of the family, and the lists of sets that rules
// of the chains name.
func (k *Kernel) Lines() []string {
	var lines []string
	asked := strings.Join(slices.Concat(slices.Collect(maps.Values(k.Chains))...), " ")
	for _, s := range k.Sets {
		if s.Type != ipset.ListSet && (s.Family == ipset.IPv4) != (k.Family == npc.IPv4) ||
			s.Type == ipset.ListSet && !strings.Contains(asked, " "+s.Name+" ") {
			continue
		}
		lines = append(lines, fmt.Sprintf("set %s %s", s.Name, s.Type))
		for e, a := range s.Members {
			lines = append(lines, fmt.Sprintf("set %s %s", s.Name, ipset.Element{Entry: e, Attr: a}))
		}
	}
	for name, rules := range k.Chains {
		lines = append(lines, "chain "+name)
		for _, r := range rules {
			lines = append(lines, "chain "+name+" "+r)
		}
	}
	slices.Sort(lines)
	return lines
}
