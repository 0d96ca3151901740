package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Detect returns the backend that the node's other rules are in, and the reason for the choice, for the log. A
// non-empty override, "legacy" or "nft", decides. Otherwise Detect prefers the backend with the kubelet's hint, then
// the one with more rules, then the one of the plain iptables command. It ignores backends whose programs are not
// installed. It creates no table in either backend.
func Detect(ctx context.Context, override string) (backend Backend, reason string, err error) {
	return searchPath().detect(ctx, override)
}

// detect is Detect for the programs in the given directories.
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

// hinted looks for the chains that the kubelet keeps in the mangle table of the backend that it uses, as a hint for
// others (KEP-3178).
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

// byRules returns the backend that holds more rules. A backend that cannot be read at all loses.
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

// countRules returns the number of a backend's rules in all tables of both families. It fails if no family can be read.
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

// look returns the rules of one table, or of all if table is empty, as iptables-save prints them. It creates no table.
// If the program fails after it has printed something, look returns that without an error.
func (d programDirs) look(ctx context.Context, family Family, backend Backend, table string) (string, error) {
	if backend == Legacy {
		tables, err := legacyTables(family)
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
