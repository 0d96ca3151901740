// Package iptables renders chains and rules, restores them in one transaction and reads them back.
//
//	Rule, Chain, Jump ─▶ Update (update, edit) ─▶ Table.Apply ─▶ iptables-restore
//	                                              ApplyWithout leaves out rules that the kernel rejects (bisect)
//	iptables-save ─▶ Table.Read (save, parse) ─▶ Seen
//	Table.Fingerprint    whether the table has changed since, without reading it
//	Detect               the backend, legacy or nft, that the node's other rules are in
//	nft                  netlink, where iptables' programs cannot parse the rules of another program
//
// It knows nothing about policies, pods or the names of chains, and imports no other package of this module.
//
//	table, err := iptables.New(iptables.IPv4, iptables.NFT)
//	allow := iptables.Rule{Match: "-p tcp -m tcp --dport 80", Target: "-j ACCEPT", Comment: "web"}
//	chain := iptables.Chain{Name: "WEAVE-NPC", Rules: []iptables.Rule{allow}}
//	err = table.Apply(ctx, iptables.Update{Replace: []iptables.Chain{chain}})
//	state, err := table.Read(ctx, "WEAVE-NPC")
package iptables

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"
	"github.com/pkg/errors"
)

// lockWait is how long a legacy program waits for the lock that all of them share, in seconds. Callers that ask for the
// lock first (Locked) rarely meet it.
const lockWait = 1

// Table is the filter table of one family in one backend. It may be used by several goroutines.
type Table struct {
	family   Family
	backend  Backend
	programs programs
	// waitArgs are the arguments that make iptables-restore wait for the lock.
	waitArgs []string
	// single reads single chains.
	single *goiptables.IPTables
}

// New returns the filter table of a family in a backend. It fails if there are no programs for it, or if this process
// may not use them.
func New(family Family, backend Backend) (*Table, error) {
	return searchPath().open(family, backend)
}

// open is New for the programs in the given directories.
func (d programDirs) open(family Family, backend Backend) (*Table, error) {
	// None of the programs that run here waits for anything.
	programs, err := d.programs(context.Background(), family, backend)
	if err != nil {
		return nil, err
	}
	protocol := goiptables.ProtocolIPv4
	if family == IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	single, err := goiptables.New(goiptables.Path(programs.iptables), goiptables.IPFamily(protocol),
		goiptables.Timeout(lockWait))
	if err != nil {
		return nil, errors.Wrapf(err, "using %s", programs.iptables)
	}
	t := &Table{family: family, backend: backend, programs: programs, single: single}
	major, minor, patch := single.GetIptablesVersion()
	version := []int{major, minor, patch}
	if slices.Compare(version, []int{1, 6, 2}) < 0 {
		return nil, errors.Errorf("%s is version %d.%d.%d: its restore does not wait for the lock; "+
			"1.6.2 is the least, "+
			"1.8.7 or later is better", programs.iptables, major, minor, patch)
	}
	t.waitArgs = waitArgs(version)
	if err := probe(family, backend); err != nil {
		return nil, err
	}
	return t, nil
}

// waitArgs returns the arguments that make a version of iptables-restore wait for the lock. Versions up to 1.8.7 poll
// the lock once a second by default; later ones deprecate the interval. The nft programs accept the arguments and have
// no lock.
func waitArgs(version []int) []string {
	args := []string{"--wait=" + strconv.Itoa(lockWait)}
	if slices.Compare(version, []int{1, 8, 8}) < 0 {
		args = append(args, "--wait-interval=50000")
	}
	return args
}

// Family returns the table's family.
func (t *Table) Family() Family { return t.family }

// Backend returns the backend of the table.
func (t *Table) Backend() Backend { return t.backend }

// String returns a name for logs, such as "IPv6 nft".
func (t *Table) String() string { return fmt.Sprintf("%s %s", t.family, t.backend) }

// Read reads the whole filter table. The chains of this program are those whose names have the prefix. A table that
// does not exist reads as an empty one, and Read does not create it. The cost grows with the table (10,000 foreign
// rules: a third of a second under nft), so compare the Fingerprint first.
func (t *Table) Read(ctx context.Context, prefix string) (Seen, error) {
	if t.backend == Legacy {
		tables, err := legacyTables(t.family)
		if err != nil {
			return Seen{}, err
		}
		if !slices.Contains(tables, "filter") {
			return parseSave("", prefix)
		}
	}
	stdout, stderr, err := run(ctx, "", t.programs.save, "-c", "-t", "filter")
	if err != nil {
		err = explain(err, stderr, "reading the filter table of %s", t)
		if unparsable(stderr) {
			return t.readNFT(prefix, err)
		}
		return Seen{}, err
	}
	seen, err := parseSave(stdout, prefix)
	if errors.Is(err, errIncompatible) && t.backend == NFT {
		return t.readNFT(prefix, err)
	}
	return seen, err
}

// chain reads one chain of any name. With many foreign rules under nft this is much cheaper than Read.
func (t *Table) chain(name string) (chain SeenChain, exists bool, err error) {
	if err := checkChainName(name); err != nil {
		return SeenChain{}, false, err
	}
	exists, err = t.single.ChainExists("filter", name)
	if err != nil || !exists {
		return SeenChain{}, false, errors.Wrapf(err, "looking for chain %s in %s", name, t)
	}
	lines, err := t.single.List("filter", name)
	if err != nil {
		return SeenChain{}, false, errors.Wrapf(err, "listing chain %s in %s", name, t)
	}
	for text, r := range listed(lines) {
		chain.IDs = append(chain.IDs, r.idOr("?"+text))
		chain.Text = append(chain.Text, text)
	}
	return chain, true, nil
}

// listed iterates over the rules in a listing of one chain (iptables -S): text, rule. A rule that cannot be read counts
// as a rule without an id.
func listed(lines []string) func(yield func(string, parsed) bool) {
	return func(yield func(string, parsed) bool) {
		for text := strings.Join(lines, "\n"); text != ""; {
			var line string
			line, text = nextLine(text)
			if !strings.HasPrefix(line, "-A ") {
				continue
			}
			// An error leaves r without an id.
			r, _ := parseRule(line)
			if !yield(line, r) {
				return
			}
		}
	}
}

// readNFT reads a table with rules that iptables cannot show: chains of this program one by one with iptables, and the
// jumps to them from nft. why is the error of iptables.
func (t *Table) readNFT(prefix string, why error) (Seen, error) {
	seen := Seen{Chains: map[string]SeenChain{}, Hooks: map[string][]string{}, Policies: map[string]string{},
		Accepting: map[string]bool{}, Native: true}
	filter := nftFilter{t.family}
	chains, err := filter.chains()
	if err != nil {
		return Seen{}, errors.Wrapf(err, "after: %v", why)
	}
	rules, err := filter.rules()
	if err != nil {
		return Seen{}, errors.Wrapf(err, "after: %v", why)
	}
	foreign := map[string][]string{}
	referrers := map[string]bool{}
	for _, name := range chains {
		switch {
		case slices.Contains([]string{"INPUT", "FORWARD", "OUTPUT"}, name):
			seen.Policies[name] = ""
			foreign[name] = nil
		case strings.HasPrefix(name, prefix):
			if seen.Chains[name], err = t.chainAlongsideNFT(name); err != nil {
				return Seen{}, errors.Wrapf(err, "after: %v", why)
			}
		}
	}
	for _, r := range rules {
		if _, own := seen.Chains[r.chain]; own {
			continue
		}
		foreign[r.chain] = append(foreign[r.chain], r.text())
		referrers[r.chain] = referrers[r.chain] || strings.HasPrefix(r.target, prefix)
	}
	seen.findHooks(foreign, referrers)
	return seen, nil
}

// chainAlongsideNFT reads a chain of this program. If iptables cannot show it, another program has added a rule: the
// result is one unknown rule.
func (t *Table) chainAlongsideNFT(name string) (SeenChain, error) {
	c, _, err := t.chain(name)
	if err == nil || !unparsable(err.Error()) && !strings.Contains(err.Error(), "incompatible") {
		return c, err
	}
	const text = "a rule that iptables cannot show"
	return SeenChain{IDs: []string{"?" + text}, Text: []string{text}}, nil
}

// Fingerprint reads the fingerprint of the table, which takes microseconds. Under legacy a table that does not exist
// has the zero fingerprint: asking the kernel about it would create it.
func (t *Table) Fingerprint() (Fingerprint, error) {
	if t.backend == NFT {
		generation, err := Generation()
		return Fingerprint{Generation: generation}, errors.Wrap(err, "asking for the generation of the nft ruleset")
	}
	if tables, err := legacyTables(t.family); err != nil || !slices.Contains(tables, "filter") {
		return Fingerprint{}, err
	}
	f, err := legacyInfo(t.family)
	return f, errors.Wrapf(err, "asking for the size of the legacy filter table of %s", t.family)
}
