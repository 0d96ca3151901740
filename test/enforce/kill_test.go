package enforce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/test/lab"
)

const (
	// streamPort is the UDP port of the flows that are opened while weave-npc is killed.
	streamPort = 7
	// streamRate is how many of them are opened a second.
	streamRate = 1000
	// aSlice is how long new scenarios are begun when nobody asks for all of them.
	aSlice = 35 * time.Second
)

// killScenario is what happens when weave-npc is killed.
type killScenario struct {
	name string
	// states are those of the cluster: weave-npc follows the way from the first to the second, and back. If there is but
	// the first, it follows what reset or disturb does.
	states []change
	// reset makes nodes, on which weave-npc does not run, what they are before it starts.
	reset func(t *testing.T, w *world)
	// arrives says what does before it starts, as wants does, unless the state stands by then already.
	arrives string
	stands  bool
	// disturb changes what weave-npc has on nodes.
	disturb func(t *testing.T, w *world)
	// judged are states as the judge has to know them, where that is not the same.
	judged []change
	// families that are asked; nil for both.
	families []int
	// prepare and check are called before and after each way, with the number of the state that was and that is.
	prepare, check func(t *testing.T, w *world, state int)
	// says is what weave-npc may complain of.
	says string
}

// killing is a scenario under way.
type killing struct {
	killScenario
	w       *world
	way     int // number of the way, and of the state that it ends in
	objects []*objects
	faults  []*fault            // of each daemon
	right   []map[string]string // what each state leaves on each node, canonical
	started int                 // how often all were started
	read    []int               // how often each daemon had read the manifests before the way
	result  killResult
}

// killResult is what came of kills.
type killResult struct {
	lab.StreamResult
	kills  int
	points map[string]bool // where weave-npc was killed
}

// String sums it up.
func (r killResult) String() string {
	return fmt.Sprintf("%d kills at %d points; %d connections, %.0f a second, %d wrong accepts, %d wrong drops", r.kills, len(r.points),
		r.Opened, float64(r.Opened)/r.Took.Seconds(), r.WrongAccepts, r.WrongDrops)
}

func (r *killResult) add(about string, other killResult) {
	r.Add(other.StreamResult)
	r.kills += other.kills
	for point := range other.points {
		r.points[about+point] = true
	}
}

// TestS63_KilledAtEveryStep kills weave-npc before system calls that it, and the programs that it runs, make while it follows a
// change, and those that it makes while it starts again, and starts it once more, all while new flows are opened, of
// which some are allowed before and after, and others are denied.
func TestS63_KilledAtEveryStep(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		random, each := killPlan(t)
		scenarios := killScenarios()
		total := killResult{points: map[string]bool{}}
		start := time.Now()
		for _, i := range random.Perm(len(scenarios)) {
			if each == 0 && time.Since(start) > aSlice {
				break
			}
			s := scenarios[i]
			t.Run(s.name, func(t *testing.T) {
				k := newKilling(t, backend, s)
				k.run(t, random, max(each, 2))
				total.add(s.name, k.result)
			})
		}
		t.Logf("%s, within %s", total, time.Since(start).Round(time.Second))
	})
}

// killPlan says by what chance points are chosen ($WEAVE_NPC_TEST_SEED repeats it), and how many times each way is gone in
// each scenario ($WEAVE_NPC_TEST_KILLS); 0 for a few scenarios within a minute.
func killPlan(t *testing.T) (*rand.Rand, int) {
	t.Helper()
	number := func(variable string, otherwise uint64) uint64 {
		text := os.Getenv(variable)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("$%s: %v", variable, err)
		}
		return n
	}
	seed := number("WEAVE_NPC_TEST_SEED", uint64(time.Now().UnixNano()))
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0)), int(number("WEAVE_NPC_TEST_KILLS", 0))
}

// newKilling makes the scenario's world, with two hosts more that no object knows at first.
func newKilling(t *testing.T, backend lab.Backend, s killScenario) *killing {
	t.Helper()
	w := newWorld(t, backend, lab.Config{IPv4: s.asks(4), IPv6: s.asks(6)})
	serve(t, w.addPod(t, "node1", "late", lab.PodConfig{}).Host)
	serve(t, w.addPod(t, "node2", "later", lab.PodConfig{}).Host)
	k := &killing{killScenario: s, w: w, result: killResult{points: map[string]bool{}}}
	for _, state := range s.states {
		k.objects = append(k.objects, w.objects(state))
		k.right = append(k.right, map[string]string{})
	}
	m := newManifests(t, w)
	w.source = m
	m.write(t, k.objects[0])
	for i, n := range w.Nodes() {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			// kube-proxy has rules of this kind: conntrack knows the flows from before weave-npc's first start.
			run(t, n.Host, program+string(backend), "-w", "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID")
		}
		w.daemons = append(w.daemons, killable(t, n, w.daemonArgs(i, "--manifests", m.dir)...))
		if s.says != "" {
			w.daemons[i].log.expect(s.says)
		}
	}
	return k
}

// killable prepares a daemon that is not started yet.
func killable(t *testing.T, node *lab.Node, args ...string) *daemon {
	t.Helper()
	d := &daemon{node: node, log: &output{}, args: append([]string{"--node-name", node.Name()}, args...)}
	t.Cleanup(func() {
		if d.cmd != nil {
			d.kill(t)
		}
		d.checkLog(t)
	})
	return d
}

func (s *killScenario) asks(family int) bool {
	return s.families == nil || slices.Contains(s.families, family)
}

// run goes each way once without a kill, to see how many points there are and what is left in the end, and then so many times
// with.
func (k *killing) run(t *testing.T, random *rand.Rand, turns int) {
	if k.reset == nil || k.stands {
		k.read = k.reads()
		k.startAll(t, nil)
		k.settle(t)
	}
	if k.disturb != nil {
		k.disturb(t, k.w) // what others have as well is part of what is right
		clear(k.right[0])
		k.settle(t)
	}
	steps, starts := make([][]int, len(k.states)), make([][]int, len(k.states))
	for range k.states {
		way := k.next()
		steps[way], starts[way] = k.learn(t, way)
	}
	for turn := range turns {
		for range k.states {
			way := k.next()
			k.cycle(t, way, spread(random, steps[way], turn, turns), spread(random, starts[way], turn, turns))
			if t.Failed() {
				return
			}
		}
	}
	k.compare(t)
	t.Logf("%s; %v calls on each node, %v while starting", k.result, steps, starts)
}

// next is the way that follows.
func (k *killing) next() int { return (k.way + 1) % len(k.states) }

// spread chooses one of so many points for each daemon, such that all turns together go evenly over them.
func spread(random *rand.Rand, points []int, turn, turns int) []int {
	var at []int
	for _, n := range points {
		from, to := turn*n/turns, (turn+1)*n/turns
		at = append(at, 1+from+random.IntN(max(1, to-from)))
	}
	return at
}

// learn goes a way without a kill, and starts once more. It counts the calls.
func (k *killing) learn(t *testing.T, way int) (steps, starts []int) {
	t.Helper()
	k.bare(t)
	k.begin(t, way, nil)
	steps = k.settle(t)
	for _, f := range k.faults {
		f.killNow()
	}
	k.startAll(t, nil)
	return steps, k.settle(t)
}

// bare makes the nodes what they are before weave-npc starts, if that is where the way begins.
func (k *killing) bare(t *testing.T) {
	t.Helper()
	if k.reset == nil {
		return
	}
	for _, f := range k.faults {
		f.killNow()
	}
	k.reset(t, k.w)
}

// reads is how often each daemon has said that it has read the manifests.
func (k *killing) reads() []int {
	counts := make([]int, len(k.w.daemons))
	for i, d := range k.w.daemons {
		counts[i] = strings.Count(d.log.all(), "manifests read")
	}
	return counts
}

// begin lets happen what weave-npc has to follow, with a point for each daemon.
func (k *killing) begin(t *testing.T, way int, at []int) {
	t.Helper()
	k.way = way
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
	k.w.source.write(t, k.objects[way])
}

// pointOf is that of one of the daemons, if points were chosen at all.
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
	for i, d := range k.w.daemons {
		k.faults = append(k.faults, d.startFaulty(t, manner(k.started%int(manners)), pointOf(at, i)))
	}
	k.started++
}

// settle waits until everything is as it is to be, and tidied up, and says how many calls each daemon made until then. The
// first time in a state, that takes until nothing changes any more after the manifests were read.
func (k *killing) settle(t *testing.T) []int {
	t.Helper()
	calls := make([]int, len(k.faults))
	if len(k.right[k.way]) > 0 {
		for i := range k.faults {
			calls[i] = k.settleOne(t, i)
		}
		return calls
	}
	if k.disturb == nil {
		eventually(t, patience, func() bool {
			return slices.EqualFunc(k.read, k.reads(), func(before, now int) bool { return now > before })
		}, k.state)
	}
	last := map[string]string{}
	for changed := time.Now(); time.Since(changed) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		for i, d := range k.w.daemons {
			if now := canonical(snapshot(t, d.node)); now != last[d.node.Name()] {
				last[d.node.Name()], calls[i], changed = now, k.faults[i].count(), time.Now()
			}
		}
	}
	k.right[k.way] = last
	k.compare(t)
	return calls
}

func (k *killing) settleOne(t *testing.T, i int) (calls int) {
	t.Helper()
	d := k.w.daemons[i]
	eventually(t, patience, func() bool {
		k.lives(t, i)
		calls = k.faults[i].count()
		return k.isSettled(t, i)
	}, func() string {
		return fmt.Sprintf("%s is not as it is without a kill (-without +with):\n%s\n%s", d.node,
			cmp.Diff(strings.Split(k.right[k.way][d.node.Name()], "\n"), strings.Split(canonical(snapshot(t, d.node)), "\n")), quiet(d.log))
	})
	return calls
}

func (k *killing) isSettled(t *testing.T, i int) bool {
	t.Helper()
	d := k.w.daemons[i]
	return d.enforces() && canonical(snapshot(t, d.node)) == k.right[k.way][d.node.Name()]
}

// lives fails the test if weave-npc has ended by itself.
func (k *killing) lives(t *testing.T, i int) {
	t.Helper()
	if d := k.w.daemons[i]; !d.running() && !k.faults[i].isDead() {
		t.Fatalf("weave-npc on %s has ended: %v\n%s", d.node, d.end.err, quiet(d.log))
	}
}

// cycle goes a way with a kill of each daemon, kills the next ones while they start, and expects that nothing shows of it.
func (k *killing) cycle(t *testing.T, way int, at, again []int) {
	t.Helper()
	if k.prepare != nil {
		k.prepare(t, k.w, k.way)
	}
	k.bare(t)
	stream, err := lab.NewStream(streamRate, k.flows(k.before(t), k.verdicts(t, way), k.way, way))
	if err != nil {
		t.Fatal(err)
	}
	e := &events{}
	e.add("way %d", way)
	k.begin(t, way, at)
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
	k.settle(t)
	e.add("settled")
	stream.Round(t.Context())
	k.conclude(t, stream, e)
	if k.check != nil {
		k.check(t, k.w, way)
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
		n := k.w.daemons[i].node
		eventually(t, patience, func() bool {
			k.lives(t, i)
			if !f.isDead() && k.isSettled(t, i) {
				f.killNow()
			}
			return f.isDead()
		}, func() string {
			return fmt.Sprintf("weave-npc on %s is not killed at call %d: %d were made\n%s", n, f.at, f.count(), k.state())
		})
		k.result.kills++
		k.result.points[fmt.Sprint(k.way, n, f.starting, f.count())] = true
		e.add("%s was killed, %s, before call %d: %s", n, f.manner, f.count(), f.point())
	}
	return k.faults
}

// awaitEnforced waits until all daemons say that they enforce, and lets then run on what the dead had started. It does
// not wait for long: that may hold a lock.
func (k *killing) awaitEnforced(dead []*fault) {
	enforced := func() bool {
		return !slices.ContainsFunc(k.w.daemons, func(d *daemon) bool { return !d.enforces() })
	}
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end) && !enforced(); time.Sleep(5 * time.Millisecond) {
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
		t.Errorf("%d wrong accepts, %d wrong drops\n%s\n%s\n%s", r.WrongAccepts, r.WrongDrops, strings.Join(r.Wrong, "\n"),
			strings.Join(e.lines, "\n"), k.state())
	}
}

// state is what the nodes have and what their daemons say.
func (k *killing) state() string {
	var b strings.Builder
	for _, d := range k.w.daemons {
		fmt.Fprintf(&b, "=== %s\n%s\n%s\n", d.node, lab.DumpFilter(d.node), quiet(d.log))
	}
	return b.String()
}

// quiet is the end of a log without what was blocked.
func quiet(o *output) string {
	var lines []string
	for line := range strings.Lines(o.all()) {
		if !strings.Contains(line, "msg=blocked") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-100):], "")
}

// matrix expects the verdicts of the present state.
func (k *killing) matrix(t *testing.T) {
	t.Helper()
	present := k.verdicts(t, k.way)
	stream, err := lab.NewStream(2*streamRate, k.flows(present, present, k.way, k.way))
	if err != nil {
		t.Fatal(err)
	}
	stream.Round(t.Context())
	k.conclude(t, stream, &events{[]string{"in the end"}})
}

// compare expects them too, for more protocols, and waits for them.
func (k *killing) compare(t *testing.T) {
	t.Helper()
	k.w.compare(t, k.judgedAs(k.way))
}
