// Package iptables renders chains and rules, restores them in one transaction and reads them back.
package iptables

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"
	"github.com/pkg/errors"
)

// lockWait is how long a legacy program waits for the lock that all of them share, in seconds.
const lockWait = 5

// Table is the filter table of one family in one backend. It may be used by several goroutines.
type Table struct {
	family   Family
	backend  Backend
	programs programs
	// waitArgs make iptables-restore wait for the lock.
	waitArgs []string
	// single does what concerns one chain only.
	single *goiptables.IPTables
}

// New finds the programs for the filter table of a family in a backend, and makes sure that they may be used.
func New(family Family, backend Backend) (*Table, error) {
	return searchPath().open(family, backend)
}

// open is New with the programs found in the given directories.
func (d programDirs) open(family Family, backend Backend) (*Table, error) {
	// Nothing that runs here waits for anything.
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
		return nil, errors.Errorf("%s is version %d.%d.%d: its restore does not wait for the lock; 1.6.2 is the least, "+
			"1.8.7 or later is better", programs.iptables, major, minor, patch)
	}
	t.waitArgs = waitArgs(version)
	if err := probe(family, backend); err != nil {
		return nil, err
	}
	return t, nil
}

// waitArgs are the arguments for waiting. Up to 1.8.7 the lock was polled once a second unless told otherwise; later
// the interval is deprecated. The nft programs take the arguments and have no lock.
func waitArgs(version []int) []string {
	args := []string{"--wait=" + strconv.Itoa(lockWait)}
	if slices.Compare(version, []int{1, 8, 8}) < 0 {
		args = append(args, "--wait-interval=50000")
	}
	return args
}

// Family is the family of the table.
func (t *Table) Family() Family { return t.family }

// Backend is the backend of the table.
func (t *Table) Backend() Backend { return t.backend }

// String names the table for logs, for example "IPv6 nft".
func (t *Table) String() string { return fmt.Sprintf("%s %s", t.family, t.backend) }

// Read reads the whole filter table. Chains whose names have the prefix are ours. A table that does not exist reads
// as an empty one and is not made. The cost grows with the table (10,000 foreign rules: a third of a second under
// nft), so ask Fingerprint first.
func (t *Table) Read(ctx context.Context, prefix string) (Seen, error) {
	if t.backend == Legacy {
		tables, err := t.family.legacyTables()
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
			return t.readNative(prefix, err)
		}
		return Seen{}, err
	}
	seen, err := parseSave(stdout, prefix)
	if errors.Is(err, errIncompatible) && t.backend == NFT {
		return t.readNative(prefix, err)
	}
	return seen, err
}

// Chain reads one chain of any name, without the rest of the table. It is much cheaper than Read beside many foreign
// rules under nft.
func (t *Table) Chain(name string) (chain SeenChain, exists bool, err error) {
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

// Apply carries out the update in one transaction. If it fails with a *RestoreError, nothing has changed. If the
// context ends first, the program is killed, and only the kernel knows whether the update took place.
func (t *Table) Apply(ctx context.Context, u Update) error {
	lines := u.lines()
	if len(lines) == 0 {
		return nil
	}
	for i, line := range lines {
		if err := checkLine(line); err != nil {
			return newRestoreError(lines, i+firstLine, "", err)
		}
	}
	args := append([]string{"--noflush"}, t.waitArgs...)
	_, stderr, err := run(ctx, restoreInput(lines), t.programs.restore, args...)
	if err == nil {
		return nil
	}
	if unparsable(stderr) && u.hasStale() {
		return t.applyBesideNative(ctx, u)
	}
	failure := explain(err, "", "running %s", t.programs.restore)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Exited() {
		return failure // not started, or killed
	}
	return newRestoreError(lines, failedLine(lines, stderr), stderr, failure)
}

// Try runs iptables-restore as Apply does, lock and all, with an update that changes nothing. An error says that Apply would fail.
func (t *Table) Try(ctx context.Context) error {
	args := append([]string{"--noflush", "--test"}, t.waitArgs...)
	_, stderr, err := run(ctx, restoreInput(nil), t.programs.restore, args...)
	if err != nil {
		return explain(err, stderr, "running %s", t.programs.restore)
	}
	return nil
}

// listed reads the rules from a listing of one chain (iptables -S): text -> rule, in order. Rules that cannot be
// read pass as rules without an id.
func listed(lines []string) func(yield func(string, parsed) bool) {
	return func(yield func(string, parsed) bool) {
		for text := strings.Join(lines, "\n"); text != ""; {
			var line string
			line, text = nextLine(text)
			if !strings.HasPrefix(line, "-A ") {
				continue
			}
			// An error leaves r without an id, which is how it must appear.
			r, _ := parseRule(line)
			if !yield(line, r) {
				return
			}
		}
	}
}
