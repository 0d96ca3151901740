package iptables

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// onEveryTable runs the test on both backends and both families, each in a fresh network namespace.
func onEveryTable(t *testing.T, test func(t *testing.T, table *Table)) {
	t.Helper()
	for _, backend := range []Backend{NFT, Legacy} {
		for _, family := range []Family{IPv4, IPv6} {
			t.Run(fmt.Sprintf("%s %s", family, backend), func(t *testing.T) {
				sandbox.Thread(t)
				table, err := New(family, backend)
				if err != nil {
					t.Fatal(err)
				}
				test(t, table)
			})
		}
	}
}

// restore feeds iptables-restore --noflush with rules that are not ours, of any table.
func (t *Table) restore(tb testing.TB, input string) {
	tb.Helper()
	if _, stderr, err := run(tb.Context(), input, t.programs.restore, "--noflush"); err != nil {
		tb.Fatalf("restoring: %v: %s\n%s", err, stderr, input)
	}
}

// apply applies an update that must succeed.
func (t *Table) apply(tb testing.TB, u Update) {
	tb.Helper()
	if err := t.Apply(tb.Context(), u); err != nil {
		tb.Fatalf("%v\nin:\n%s", err, u)
	}
}

// read reads the table, with our prefix.
func (t *Table) read(tb testing.TB) Seen {
	tb.Helper()
	seen, err := t.Read(tb.Context(), "WEAVE-NPC")
	if err != nil {
		tb.Fatal(err)
	}
	return seen
}

// saved is the text of all tables, without counters and dates.
func (t *Table) saved(tb testing.TB) string {
	tb.Helper()
	text, stderr, err := run(tb.Context(), "", t.programs.save)
	if err != nil {
		tb.Fatalf("saving: %v: %s", err, stderr)
	}
	return regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`).ReplaceAllString(text, "")
}

// foreign is saved without the chains and rules that name our chains.
func (t *Table) foreign(tb testing.TB) string {
	tb.Helper()
	return regexp.MustCompile(`(?m)^.*WEAVE-NPC.*\n`).ReplaceAllString(t.saved(tb), "")
}

// command runs a program that the test needs.
func command(tb testing.TB, name string, args ...string) {
	tb.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
