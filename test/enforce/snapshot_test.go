package enforce

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// eachBackend runs a test with both backends side by side.
func eachBackend(t *testing.T, test func(t *testing.T, backend lab.Backend)) {
	t.Parallel()
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

// snapshot returns everything in a node's iptables, of both backends and families, in nftables' tables of bridges, and
// ipsets, without counters.
func snapshot(t *testing.T, n *lab.Node) string {
	t.Helper()
	var b strings.Builder
	for _, command := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save",
		"ip6tables-legacy-save"} {
		fmt.Fprintf(&b, "# %s\n", command)
		for line := range strings.Lines(saved(t, n, command)) {
			if !strings.HasPrefix(line, "#") {
				b.WriteString(counters.ReplaceAllString(line, ""))
			}
		}
	}
	lines := strings.SplitAfter(saved(t, n, "ipset", "save"), "\n")
	slices.Sort(lines)
	fmt.Fprintf(&b, "# ipset save, sorted\n%s", strings.Join(lines, ""))
	fmt.Fprintf(&b, "# nft list ruleset bridge\n%s", saved(t, n, "nft", "--stateless", "list", "ruleset", "bridge"))
	return b.String()
}

// saved returns a command's standard output. It does not create legacy tables that do not exist yet.
func saved(t *testing.T, n *lab.Node, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	output, err := n.Command(ctx, name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

var counters = regexp.MustCompile(` ?\[\d+:\d+\]`)

// unchanged fails the test if a node is not as it was.
func unchanged(t *testing.T, n *lab.Node, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(snapshot(t, n), "\n")); diff != "" {
		t.Errorf("%s is not as it was (-before +now):\n%s", n, diff)
	}
}

// awaitSnapshot waits until a node is as it was.
func awaitSnapshot(t *testing.T, n *lab.Node, before string) {
	t.Helper()
	var now string
	await.Within(t, timeout, func() bool {
		now = snapshot(t, n)
		return now == before
	}, func() string {
		return fmt.Sprintf("%s is not as it was (-before +now):\n%s", n,
			cmp.Diff(strings.Split(before, "\n"), strings.Split(now, "\n")))
	})
}

// canonical returns a snapshot with sorted chains. Rules that only allow are sorted too: those of a namespace's chain,
// or of the chains that jump to it, before the first that drops.
func canonical(snapshot string) string {
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

// execute runs weave-npc on a node until it ends.
func execute(t *testing.T, n *lab.Node, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return executeBinary(t, command(), n, env, args...)
}

// executeBinary runs a weave-npc of a given path, as execute does.
func executeBinary(t *testing.T, binary string, n *lab.Node, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	var out, errs output
	cmd := n.Command(ctx, binary, args...)
	cmd.Args[0] = "weave-npc"
	cmd.Env = append(append(os.Environ(), "HOSTNAME="), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("weave-npc %v does not end\n%s", args, errs.String())
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.all(), errs.all(), cmd.ProcessState.ExitCode()
}

// rich makes a state of the cluster that needs sets of every type.
func rich() change {
	return do(base(), pod("shop/web", port("http", 80, "")), pod("shop/api", port("http", 81, "")),
		richPolicies(`{port: http}, {port: 53, protocol: UDP}`, `{port: http}`))
}

// richPolicies makes policies with peers of every kind. Some of their rules are for the given ports.
func richPolicies(ingress, egress string) change {
	return do(policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]
  ports: [`+ingress+`]
- from:
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8:1::/48"]}
egress:
- to: [{namespaceSelector: {matchLabels: {team: b}}}]
- to: [{podSelector: {}}]
  ports: [`+egress+`]`), policy("ops/p", `
podSelector: {}
ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}]`))
}

// richWants returns what arrives in that state.
func richWants() wants {
	const ops = " -*>ops +web,copy>ops"
	return wants{
		"tcp 80": "-*>web +db,out>web -web>*" + ops + " +web>ops",
		"tcp 81": "-*>web +out>web -web>*" + ops + " +web>ops,api",
		"udp 53": "-*>web +db,out>web -web>*" + ops + " +web>ops",
		"icmp":   "-*>web +out>web -web>*" + ops + " +web>ops",
	}
}

// start makes a harness with daemons and manifests in a state.
func start(t *testing.T, backend lab.Backend, state change, args ...string) *harness {
	t.Helper()
	w := newHarness(t, backend, lab.Config{})
	w.begin(t, state, args...)
	return w
}

// begin starts the daemons of a harness.
func (w *harness) begin(t *testing.T, state change, args ...string) {
	t.Helper()
	m := w.fromManifests(t, state)
	w.startDaemons(t, append([]string{"--manifests", m.dir}, args...)...)
}

// objects returns what a change makes of an empty cluster.
func (w *harness) objects(state change) *objects {
	o := (&objects{}).clone()
	state(w, o)
	return o
}
