package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// Snapshot returns everything in a node's iptables, of both backends and families, in nftables' tables of bridges, and
// ipsets, without counters.
func Snapshot(t *testing.T, n *lab.Node) string {
	t.Helper()
	var b strings.Builder
	for _, command := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save",
		"ip6tables-legacy-save"} {
		fmt.Fprintf(&b, "# %s\n", command)
		for line := range strings.Lines(Saved(t, n, command)) {
			if !strings.HasPrefix(line, "#") {
				b.WriteString(counters.ReplaceAllString(line, ""))
			}
		}
	}
	lines := strings.SplitAfter(Saved(t, n, "ipset", "save"), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "add weave-alive") }) // which expires
	slices.Sort(lines)
	fmt.Fprintf(&b, "# ipset save, sorted\n%s", strings.Join(lines, ""))
	// A port keeps its pod, whatever object has the address later: tests give addresses to other objects.
	fmt.Fprintf(&b, "# nft list ruleset bridge\n%s",
		podComments.ReplaceAllString(Saved(t, n, "nft", "--stateless", "list", "ruleset", "bridge"), ""))
	return b.String()
}

// Saved returns a command's standard output. It does not create legacy tables that do not exist yet.
func Saved(t *testing.T, n *lab.Node, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	output, err := n.Command(ctx, name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

var (
	counters    = regexp.MustCompile(` ?\[\d+:\d+\]`)
	podComments = regexp.MustCompile(` comment "[^" ]*/[^" ]*"`)
)

// Unchanged fails the test if a node is not as it was.
func Unchanged(t *testing.T, n *lab.Node, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(Snapshot(t, n), "\n")); diff != "" {
		t.Errorf("%s is not as it was (-before +now):\n%s", n, diff)
	}
}

// AwaitSnapshot waits until a node is as it was.
func AwaitSnapshot(t *testing.T, n *lab.Node, before string) {
	t.Helper()
	var now string
	await.Within(t, Timeout, func() bool {
		now = Snapshot(t, n)
		return now == before
	}, func() string {
		return fmt.Sprintf("%s is not as it was (-before +now):\n%s", n,
			cmp.Diff(strings.Split(before, "\n"), strings.Split(now, "\n")))
	})
}

// AwaitSteady waits until a node has not changed for five seconds, and returns what it is then: sets and chains that do
// no harm are removed later than others.
func AwaitSteady(t *testing.T, n *lab.Node) string {
	t.Helper()
	last, since := Snapshot(t, n), time.Now()
	await.Within(t, 2*Timeout, func() bool {
		if now := Snapshot(t, n); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 5*time.Second
	}, func() string { return fmt.Sprintf("%s changes again and again:\n%s", n, last) })
	return last
}

// Canonical returns a snapshot with sorted chains. Rules that only allow are sorted too: those of a namespace's chain,
// or of the chains that jump to it, before the first that drops.
func Canonical(snapshot string) string {
	var out, chains, rules, allow []string
	endChain := func() {
		slices.Sort(allow)
		if all := slices.Concat(allow, rules); len(all) > 0 {
			chains = append(chains, strings.Join(all, ""))
		}
		allow, rules = nil, nil
	}
	endTable := func() {
		endChain()
		slices.Sort(chains)
		out, chains = append(out, chains...), nil
	}
	last := ""
	for line := range strings.Lines(hashSize.ReplaceAllString(snapshot, "")) {
		rest, ok := strings.CutPrefix(line, "-A ")
		chain, _, _ := strings.Cut(rest, " ")
		switch {
		case strings.HasPrefix(line, ":"):
			chains = append(chains, line)
			continue
		case !ok:
			endTable()
			out = append(out, line)
			continue
		case chain != last:
			endChain()
			last = chain
		}
		if lazyChain.MatchString(chain) && len(rules) == 0 && !strings.Contains(line, "-g WEAVE-NPC-DROP-") {
			allow = append(allow, line)
		} else {
			rules = append(rules, line)
		}
	}
	endTable()
	return strings.Join(out, "")
}

// lazyChain are chains with rules that have no order; hashSize is how large a set once was.
var (
	lazyChain = regexp.MustCompile(`^WEAVE-NPC-([IE]-.*|INGRESS|EGRESS-CUSTOM)$`)
	hashSize  = regexp.MustCompile(` hashsize \d+`)
)

// ofPolicies matches the names of chains that are there for policies alone.
var ofPolicies = regexp.MustCompile(`WEAVE-NPC-([IEAB]-|ADMIN|BASELINE)`)

// AwaitBare waits until the nodes have only the sets and chains that they have without any policy.
func (w *Cluster) AwaitBare(t *testing.T) {
	t.Helper()
	for _, n := range w.Nodes() {
		var left []string
		await.Within(t, Timeout, func() bool {
			left = nil
			for _, s := range w.ListSets(t, n) {
				if len(s.Name) == len("weave-")+25 {
					left = append(left, s.Name)
				}
			}
			for _, iptables := range []string{"iptables-", "ip6tables-"} {
				rules, err := n.Command(t.Context(), iptables+string(w.Backend)+"-save", "-t", "filter").Output()
				if err != nil { // a set went after its rule was read
					left = append(left, err.Error())
				}
				for line := range strings.Lines(string(rules)) {
					if ofPolicies.MatchString(line) {
						left = append(left, line)
					}
				}
			}
			return len(left) == 0
		}, func() string { return n.Name() + " still has " + strings.Join(left, ", ") })
	}
}
