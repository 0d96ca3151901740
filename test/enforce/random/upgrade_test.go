package random

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

const (
	// upgradeVariable is the number of random states for the comparison of weave-npc with that of another commit.
	upgradeVariable = "WEAVE_NPC_TEST_UPGRADE"
	// baseVariable names that commit, in any way that git understands.
	baseVariable = "WEAVE_NPC_TEST_BASE"
	// defaultBase is the last commit before package npc was divided.
	defaultBase = "9617437"
	// setsOfAll is more than the sets that a node ever has at once, those without a use among them.
	setsOfAll = 4096
	// runsPerRestart is how many states are compared by dry runs for each one that is also handed over between running
	// programs, which takes longer.
	runsPerRestart = 10
)

// TestUpgradeKeepsTheKernel compares this weave-npc with the one of an earlier commit: both want the same sets,
// members, chains and rules in each of many random states, and the later one changes nothing but comments where the
// earlier one ran.
//
// It is kept for one release. A commit that changes what the kernel holds becomes the new base.
func TestUpgradeKeepsTheKernel(t *testing.T) {
	states := upgradeStates(t)
	base := buildBase(t)
	t.Run("dry_runs", func(t *testing.T) { compareDryRuns(t, base, states) })
	t.Run("restarts", func(t *testing.T) {
		e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
			compareRestarts(t, backend, base, max(1, states/runsPerRestart))
		})
	})
}

func upgradeStates(t *testing.T) int {
	t.Helper()
	text := os.Getenv(upgradeVariable)
	if text == "" {
		t.Skipf("needs the history of the repository and takes minutes: runs only with $%s (make upgrade)",
			upgradeVariable)
	}
	states, err := strconv.Atoi(text)
	if err != nil || states < 1 {
		t.Fatalf("$%s: %q is no number of states", upgradeVariable, text)
	}
	return states
}

// buildBase builds weave-npc as it was in another commit, from the history of this repository, and returns the path of
// the command.
func buildBase(t *testing.T) string {
	t.Helper()
	commit := os.Getenv(baseVariable)
	if commit == "" {
		commit = defaultBase
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "base.tar")
	source, command := filepath.Join(dir, "source"), filepath.Join(dir, "weave-npc")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		in    string
		words []string
		hint  string
	}{
		{"../../..", []string{"git", "archive", "--format=tar", "--output", archive, commit + "^{commit}"},
			"This needs the history of the repository: a shallow clone gets it by git fetch --unshallow. $" +
				baseVariable + " names another commit."},
		{source, []string{"tar", "-xf", archive}, ""},
		{source, []string{"go", "build", "-o", command, "./cmd/weave-npc"}, ""},
	} {
		cmd := exec.CommandContext(t.Context(), step.words[0], step.words[1:]...)
		cmd.Dir = step.in
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building weave-npc of commit %s: %v: %v\n%s%s", commit, step.words, err, output, step.hint)
		}
	}
	return command
}

// compareDryRuns compares, state by state, what both versions would write to a node that has nothing yet.
func compareDryRuns(t *testing.T, base string, states int) {
	w := e2e.New(t, lab.NFT, lab.Config{})
	m := e2e.NewManifests(t, w)
	g, seed, _ := New(t, w, 0)
	lines := 0
	for i := range states {
		g.nextState(t, i)
		m.Write(t, g.Objects)
		on := g.IntN(2)
		args := append(w.DaemonArgs(on, "--node-name", w.Nodes()[on].Name(), "--manifests", m.Dir), g.flags()...)
		before, after := dryRun(t, base, w.Nodes()[on], args), dryRun(t, e2e.Command(), w.Nodes()[on], args)
		if before == "" {
			t.Fatalf("weave-npc of the base would write nothing: %v", args)
		}
		want := kernelText(before)
		if diff := cmp.Diff(want, kernelText(after)); diff != "" {
			t.Fatalf("seed %d, state %d, %v: the kernel would hold something else (-base +now):\n%s\n%s", seed, i,
				args, diff, strings.Join(g.Did, "\n"))
		}
		lines += len(want)
	}
	t.Logf("%d states, %d sets, members, chains and rules", states, lines)
}

// compareRestarts starts this weave-npc on nodes where the base has enforced a random state, and expects that it writes
// nothing but comments. The base then starts again where this one ran, with the next state, as it would after a
// downgrade.
func compareRestarts(t *testing.T, backend lab.Backend, base string, states int) {
	w := e2e.New(t, backend, lab.Config{})
	m := e2e.NewManifests(t, w)
	w.Source = m
	g, seed, _ := New(t, w, 0)
	for i := range w.Nodes() {
		makeRoomForSets(t, w.Nodes()[i])
		d := e2e.NewDaemon(w.Nodes()[i], w.DaemonArgs(i, "--manifests", m.Dir)...)
		d.EndWith(t)
		w.Daemons = append(w.Daemons, d)
	}
	commented := 0
	for i := range states {
		g.nextState(t, i)
		m.Write(t, g.Objects)
		for _, d := range w.Daemons {
			d.Binary = base
			d.Start(t)
		}
		for _, d := range w.Daemons {
			commented += handOver(t, d, base)
		}
		if t.Failed() {
			t.Fatalf("seed %d, state %d:\n%s", seed, i, strings.Join(g.Did, "\n"))
		}
	}
	t.Logf("%d states on %d nodes, %d comments written", states, len(w.Daemons), commented)
}

// makeRoomForSets has the kernel of a node make room for more sets than there will be. It makes room for 256, and for
// 64 more whenever that is too little. When the last place is taken, it leaves lists of sets out of its listings, and
// the base takes these for gone.
func makeRoomForSets(t *testing.T, n *lab.Node) {
	t.Helper()
	var create, destroy strings.Builder
	for i := range setsOfAll {
		fmt.Fprintf(&create, "create room-%d hash:ip\n", i)
		fmt.Fprintf(&destroy, "destroy room-%d\n", i)
	}
	e2e.Feed(t, n, create.String()+destroy.String(), "ipset", "restore")
}

// handOver stops a weave-npc of the base when it has nothing left to do, starts this one in its place, and stops it
// again. It returns how many members and chains got other comments. As every start, this one closes the fail-closed
// filter until all objects are known. What counts is what the node has before and after.
func handOver(t *testing.T, d *e2e.Daemon, base string) int {
	t.Helper()
	d.AwaitReady(t)
	var left string
	await.Within(t, e2e.Timeout, func() bool {
		left = dryRun(t, base, d.Node, d.Args)
		return left == ""
	}, func() string { return "the base does not come to an end:\n" + left })
	d.Signal(t, syscall.SIGTERM)

	planned := dryRun(t, e2e.Command(), d.Node, d.Args)
	for line := range strings.Lines(planned) {
		if more.MatchString(line) {
			t.Errorf("%s: this weave-npc would do more than write comments:\n%s", d.Node, planned)
			break
		}
	}
	before := e2e.Snapshot(t, d.Node)
	d.Binary = ""
	d.Start(t)
	d.AwaitReady(t)
	var after string
	differs := func() string { return cmp.Diff(kernelText(before), kernelText(after)) }
	await.Within(t, e2e.Timeout, func() bool {
		after = e2e.Snapshot(t, d.Node)
		return differs() == ""
	}, func() string {
		return fmt.Sprintf("%s is not as the base left it (-base +now):\n%s", d.Node, differs())
	})
	if planned == "" && before != after {
		t.Errorf("%s: this weave-npc wrote what it did not plan (-base +now):\n%s", d.Node,
			cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
	}
	d.Signal(t, syscall.SIGTERM)
	return strings.Count(planned, "\nadd ") + strings.Count(planned, "\n:")
}

// dryRun returns what a weave-npc would write to a node.
func dryRun(t *testing.T, binary string, n *lab.Node, args []string) string {
	t.Helper()
	stdout, stderr, status := e2e.ExecuteBinary(t, binary, n, nil, append(slices.Clone(args), "--dry-run")...)
	if status != 0 {
		t.Fatalf("%s: exit status %d\n%s", binary, status, stderr)
	}
	return stdout
}

// more matches the lines of a dry run that do more than give comments to members and rules: adding a member again gives
// it another comment, and a chain is written as a whole.
var more = regexp.MustCompile(`^(create|del|destroy|flush|conntrack|-X) `)

// comments are those of rules and members, with the ids that rules begin theirs with. They stand in dry runs and in
// what is saved.
var comments = regexp.MustCompile(` -m comment --comment ("[^"]*"|\S+)| comment "[^"]*"`)

// kernelText returns the lines of a dry run or of a snapshot without comments, and without the order that means
// nothing.
func kernelText(text string) []string {
	var sets []string
	var rest strings.Builder
	for line := range strings.Lines(comments.ReplaceAllString(text, "")) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "create", "add":
			sets = append(sets, line)
		case "#":
		default:
			rest.WriteString(line)
		}
	}
	slices.Sort(sets)
	return strings.Split(e2e.Canonical(strings.Join(sets, "")+rest.String()), "\n")
}

// nextState makes changes, and a tenant of one of the nodes.
func (g *Generator) nextState(t *testing.T, i int) {
	t.Helper()
	g.Begin()
	g.Changes(t)
	g.tenant(i, g.Cluster.Nodes()[g.IntN(2)])
}

// flags returns random flags, in addition to those that every daemon of a cluster has.
func (g *Generator) flags() []string {
	return strings.Fields(g.Pick("", "", "", "--fail-closed=always", "--fail-closed=never", "--allow-mcast=false",
		"--forward-jump=false", "--allow-action=RETURN",
		"--max-list-size=0", "--max-list-size=1", "--use-legacy-netpol", "--nflog-group=100",
		"--max-sets=policy=2,namespace=6,node=12",
		"--max-rules=policy=3", "--max-entries=policy=1", "--bridge-port-name="))
}

const (
	// tenants is how many namespaces of tenants there are at a time.
	tenants = 8
	// tenantPods is the most pods that each has.
	tenantPods = 8
)

// tenant makes a namespace with pods of a node, some without an address yet, and with up to as many policies as need
// several chains. It removes the namespace of an earlier round.
func (g *Generator) tenant(round int, n *lab.Node) {
	name := CrowdPrefix + strconv.Itoa(round)
	changes := []e2e.Change{e2e.Namespace(name, g.Pick("team=a", "team=b", "zone=z")),
		e2e.Without(CrowdPrefix + strconv.Itoa(round-tenants))}
	roles := 1 + g.IntN(14)
	role := func(i int) string { return "r" + strconv.Itoa(i) }
	for i := range 1 + g.IntN(tenantPods) {
		edits := []func(*e2e.Cluster, *corev1.Pod){e2e.UID(g.UID()),
			e2e.Labelled(strings.Trim(g.Labels()+",role="+role(g.IntN(roles)), ",")),
			e2e.Port("web", 80, ""), e2e.On(n.Name())}
		if g.IntN(8) > 0 {
			edits = append(edits, e2e.Running(byte(100+round%tenants*tenantPods+i), n.PodRanges()...))
		}
		changes = append(changes, e2e.Pod(name+"/pod-"+strconv.Itoa(i), edits...))
	}
	for i := range g.IntN(roles + 1) {
		changes = append(changes, e2e.Policy(name+"/p"+strconv.Itoa(i),
			g.policyFor("{matchLabels: {role: "+role(i)+"}}")))
	}
	g.Do("tenant "+name, e2e.Do(changes...))
}
