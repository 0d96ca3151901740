package iptables

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Family is an IP version: it decides which of the two filter tables is meant.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String is "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// command is the name that the family's programs begin with.
func (f Family) command() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// legacyTables lists the tables that exist in the legacy backend, without making any come into being.
func (f Family) legacyTables() ([]string, error) {
	name := "ip_tables_names"
	if f == IPv6 {
		name = "ip6_tables_names"
	}
	// thread-self, because /proc/net shows the network namespace of the main thread.
	text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Wrapf(err, "listing the legacy tables of %s", f)
	}
	return strings.Fields(string(text)), nil
}

// Backend is where the kernel keeps iptables rules. A packet passes both, but a rule of one cannot refer to a chain
// of the other.
type Backend string

// The two backends.
const (
	Legacy Backend = "legacy"
	NFT    Backend = "nft"
)

// Detect chooses the backend that the node's other rules are in. override, "legacy" or "nft", decides if it is not
// empty. Else: the backend where the kubelet has left its hint; else the one that holds more rules; else the one
// of the plain iptables command. A backend whose programs are not installed is out of the question. The
// reason is for the log. Looking makes no table of either backend come into being.
func Detect(ctx context.Context, override string) (backend Backend, reason string, err error) {
	return searchPath().detect(ctx, override)
}

// detect is Detect with the programs found in the given directories.
func (d programDirs) detect(ctx context.Context, override string) (Backend, string, error) {
	if override != "" {
		backend := Backend(override)
		if backend != Legacy && backend != NFT {
			return "", "", errors.Errorf("iptables backend %q is neither %q nor %q", override, Legacy, NFT)
		}
		_, err := d.programs(ctx, IPv4, backend)
		return backend, "asked for", err
	}
	var installed []Backend
	for _, backend := range []Backend{NFT, Legacy} {
		if _, err := d.programs(ctx, IPv4, backend); err == nil {
			installed = append(installed, backend)
		}
	}
	switch len(installed) {
	case 0:
		return "", "", d.missing(IPv4, "")
	case 1:
		return installed[0], "only its programs are installed", nil
	}
	if backend, reason, found, err := d.hinted(ctx); found || err != nil {
		return backend, reason, err
	}
	return d.byRules(ctx)
}

// hinted looks for the chains that the kubelet keeps in the mangle table, of the backend that it uses, for others to
// find (KEP-3178).
func (d programDirs) hinted(ctx context.Context) (backend Backend, reason string, found bool, err error) {
	for _, backend := range []Backend{NFT, Legacy} {
		for _, family := range []Family{IPv4, IPv6} {
			text, err := d.look(ctx, family, backend, "mangle")
			if isDenied(err) {
				return "", "", false, err
			}
			for _, chain := range []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"} {
				if strings.Contains("\n"+text, "\n:"+chain+" ") {
					reason := fmt.Sprintf("the kubelet keeps chain %s there (%s)", chain, family)
					return backend, reason, true, nil
				}
			}
		}
	}
	return "", "", false, nil
}

// byRules compares how many rules either backend holds. A backend that cannot be read at all loses.
func (d programDirs) byRules(ctx context.Context) (Backend, string, error) {
	nft, nftErr := d.countRules(ctx, NFT)
	legacy, legacyErr := d.countRules(ctx, Legacy)
	switch {
	case isDenied(nftErr) || nftErr != nil && legacyErr != nil:
		return "", "", nftErr
	case isDenied(legacyErr):
		return "", "", legacyErr
	case nftErr != nil:
		return Legacy, fmt.Sprintf("nft cannot be read (%v)", nftErr), nil
	case legacyErr != nil:
		return NFT, fmt.Sprintf("legacy cannot be read (%v)", legacyErr), nil
	case legacy > nft:
		return Legacy, fmt.Sprintf("it holds %d rules, nft %d", legacy, nft), nil
	case nft > legacy:
		return NFT, fmt.Sprintf("it holds %d rules, legacy %d", nft, legacy), nil
	}
	plain, ok := d.find(IPv4.command())
	if !ok {
		return NFT, fmt.Sprintf("both backends hold %d rules", nft), nil
	}
	mode, err := programMode(ctx, plain)
	return mode, fmt.Sprintf("both backends hold %d rules, and the plain iptables is of this one", nft), err
}

// countRules counts the rules of a backend in all tables of both families. It fails if no family can be read.
func (d programDirs) countRules(ctx context.Context, backend Backend) (int, error) {
	count, readable := 0, false
	var firstErr error
	for _, family := range []Family{IPv4, IPv6} {
		text, err := d.look(ctx, family, backend, "")
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		readable = true
		count += strings.Count("\n"+text, "\n-A ")
	}
	if readable {
		return count, nil
	}
	return 0, firstErr
}

// look saves one table, or all if table is empty, and has no effect on what tables there are. Of output that ends
// with an error it returns what there is.
func (d programDirs) look(ctx context.Context, family Family, backend Backend, table string) (string, error) {
	if backend == Legacy {
		tables, err := family.legacyTables()
		if err != nil || len(tables) == 0 || table != "" && !slices.Contains(tables, table) {
			return "", err
		}
	}
	programs, err := d.programs(ctx, family, backend)
	if err != nil {
		return "", err
	}
	var args []string
	if table != "" {
		args = []string{"-t", table}
	}
	stdout, stderr, err := run(ctx, "", programs.save, args...)
	if err != nil && stdout == "" {
		return "", explain(err, stderr, "running %s", programs.save)
	}
	return stdout, nil
}
