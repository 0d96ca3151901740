package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
)

// begin lets happen what weave-npc has to follow, with a point for each daemon.
func (k *killing) begin(t *testing.T, state int, at []int) {
	t.Helper()
	k.current = state
	k.read = k.reads()
	if k.reset != nil {
		k.startAll(t, at)
		return
	}
	for i, f := range k.faults {
		f.choose(pointOf(at, i))
	}
	if k.disturb != nil {
		k.disturb(t, k.w)
		return
	}
	k.w.Source.Write(t, k.objects[state])
}

// pointOf returns the point of a daemon, if points were selected.
func pointOf(at []int, i int) int {
	if at == nil {
		return 0
	}
	return at[i]
}

// startAll starts weave-npc on all nodes. Every time, it will be killed in another manner.
func (k *killing) startAll(t *testing.T, at []int) {
	t.Helper()
	k.faults = nil
	for i, d := range k.w.Daemons {
		k.faults = append(k.faults, startFaulty(t, d, manner(k.started%int(manners)), pointOf(at, i)))
	}
	k.started++
}

// reconcile waits until every node has its final state, garbage removed, and returns how many calls each daemon made
// until then. The first time in a state, that takes until nothing changes any more after the manifests were read.
func (k *killing) reconcile(t *testing.T) []int {
	t.Helper()
	calls := make([]int, len(k.faults))
	if len(k.right[k.current]) > 0 {
		for i := range k.faults {
			calls[i] = k.reconcileOne(t, i)
		}
		return calls
	}
	if k.disturb == nil {
		await.Within(t, e2e.Timeout, func() bool {
			return slices.EqualFunc(k.read, k.reads(), func(before, now int) bool { return now > before })
		}, k.state)
	}
	last := map[string]string{}
	for changed := time.Now(); time.Since(changed) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		for i, d := range k.w.Daemons {
			if now := left(t, d.Node); now != last[d.Node.Name()] {
				last[d.Node.Name()], calls[i], changed = now, k.faults[i].count(), time.Now()
			}
		}
	}
	k.right[k.current] = last
	k.compare(t)
	return calls
}

// left returns what a node has, canonical, without the chain that ends connections: it exists once one had to end.
func left(t *testing.T, node *lab.Node) string {
	t.Helper()
	lines := slices.DeleteFunc(strings.SplitAfter(e2e.Canonical(e2e.Snapshot(t, node)), "\n"),
		func(line string) bool { return strings.Contains(line, "WEAVE-NPC-TERMINATE") })
	return strings.Join(lines, "")
}

func (k *killing) reconcileOne(t *testing.T, i int) (calls int) {
	t.Helper()
	d := k.w.Daemons[i]
	await.Within(t, e2e.Timeout, func() bool {
		k.lives(t, i)
		reconciled := k.isReconciled(t, i)
		calls = k.faults[i].count() // not before: a change of few calls may be made while the node is looked at
		return reconciled
	}, func() string {
		return fmt.Sprintf("%s is not as it is without a kill (-without +with):\n%s\n%s", d.Node,
			cmp.Diff(strings.Split(k.right[k.current][d.Node.Name()], "\n"),
				strings.Split(left(t, d.Node), "\n")), quiet(d.Log))
	})
	return calls
}

func (k *killing) isReconciled(t *testing.T, i int) bool {
	t.Helper()
	d := k.w.Daemons[i]
	return enforces(d) && left(t, d.Node) == k.right[k.current][d.Node.Name()]
}

// lives fails the test if weave-npc has ended by itself.
func (k *killing) lives(t *testing.T, i int) {
	t.Helper()
	if d := k.w.Daemons[i]; !d.Running() && !k.faults[i].isDead() {
		t.Fatalf("weave-npc on %s has ended: %v\n%s", d.Node, d.End.Err, quiet(d.Log))
	}
}

// cycle changes to a state with a kill of each daemon, kills the next ones while they start, and expects that no
// verdict shows it.
func (k *killing) cycle(t *testing.T, state int, at, again []int) {
	t.Helper()
	if k.prepare != nil {
		k.prepare(t, k.w, k.current)
	}
	k.bare(t)
	flows := k.flows(k.before(t), k.verdicts(t, state), k.current, state)
	k.w.Includes(t, flows, k.includes)
	stream, err := lab.NewStream(e2e.StreamRate, flows)
	if err != nil {
		t.Fatal(err)
	}
	e := &events{}
	e.add("to state %d", state)
	k.begin(t, state, at)
	dead := k.awaitDeaths(t, e)
	stream.Round(t.Context())
	e.add("the next start")
	k.startAll(t, again)
	dead = append(dead, k.awaitDeaths(t, e)...)
	stream.Round(t.Context())
	e.add("the last start")
	k.startAll(t, nil)
	k.awaitEnforced(dead)
	e.add("enforced")
	k.reconcile(t)
	e.add("reconciled")
	stream.Round(t.Context())
	k.conclude(t, stream, e)
	if k.check != nil {
		k.check(t, k.w, state)
	}
	k.matrix(t)
}

// events are what happened during a cycle, with the times.
type events struct{ lines []string }

func (e *events) add(format string, args ...any) {
	e.lines = append(e.lines, time.Now().UTC().Format("15:04:05.000000 ")+fmt.Sprintf(format, args...))
}

// awaitDeaths waits until all daemons were killed; those that have nothing more to do are killed now.
func (k *killing) awaitDeaths(t *testing.T, e *events) []*fault {
	t.Helper()
	for i, f := range k.faults {
		n := k.w.Daemons[i].Node
		await.Within(t, e2e.Timeout, func() bool {
			k.lives(t, i)
			if !f.isDead() && k.isReconciled(t, i) {
				f.killNow()
			}
			return f.isDead()
		}, func() string {
			return fmt.Sprintf("weave-npc on %s is not killed at call %d: %d were made\n%s", n, f.at, f.count(),
				k.state())
		})
		k.result.kills++
		k.result.points[fmt.Sprint(k.current, n, f.starting, f.count())] = true
		e.add("%s was killed, %s, before call %d: %s", n, f.manner, f.count(), f.point())
	}
	return k.faults
}

// awaitEnforced waits until all daemons report that they enforce, and lets processes go on that killed daemons had
// started. It does not wait for long: that may hold a lock.
func (k *killing) awaitEnforced(dead []*fault) {
	enforced := func() bool {
		return !slices.ContainsFunc(k.w.Daemons, func(d *e2e.Daemon) bool { return !enforces(d) })
	}
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end) &&
		!enforced(); time.Sleep(5 * time.Millisecond) {
	}
	for _, f := range dead {
		f.goOn()
	}
}

// conclude ends a stream and expects that no verdict was wrong.
func (k *killing) conclude(t *testing.T, s *lab.Stream, e *events) {
	t.Helper()
	r, err := s.Close()
	if err != nil {
		t.Fatal(err)
	}
	k.result.Add(r)
	if r.WrongAccepts+r.WrongDrops > 0 {
		t.Errorf("%d wrong accepts, %d wrong drops\n%s\n%s\n%s", r.WrongAccepts, r.WrongDrops,
			strings.Join(r.Wrong, "\n"),
			strings.Join(e.lines, "\n"), k.state())
	}
}

// state returns the rules and sets of the nodes, and the logs of their daemons.
func (k *killing) state() string {
	var b strings.Builder
	for _, d := range k.w.Daemons {
		fmt.Fprintf(&b, "=== %s\n%s\n%s\n", d.Node, lab.DumpFilter(d.Node), quiet(d.Log))
	}
	return b.String()
}

// quiet returns the end of a log without what was blocked.
func quiet(o *e2e.Output) string {
	var lines []string
	for line := range strings.Lines(o.All()) {
		if !strings.Contains(line, "msg=blocked") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-100):], "")
}

// matrix expects the verdicts of the present state.
func (k *killing) matrix(t *testing.T) {
	t.Helper()
	present := k.verdicts(t, k.current)
	stream, err := lab.NewStream(2*e2e.StreamRate, k.flows(present, present, k.current, k.current))
	if err != nil {
		t.Fatal(err)
	}
	stream.Round(t.Context())
	k.conclude(t, stream, &events{[]string{"in the end"}})
}

// compare expects them too, for more protocols, and waits for them.
func (k *killing) compare(t *testing.T) {
	t.Helper()
	random.Compare(t, k.w, k.evaluatedAs(k.current))
}
