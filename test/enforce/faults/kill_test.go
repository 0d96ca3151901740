package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// killScenario is what happens when weave-npc is killed.
type killScenario struct {
	name string
	// states are those of the cluster: weave-npc follows the transition from the first to the second, and back. If
	// there is only the first, it follows what reset or disturb does.
	states []e2e.Change
	// reset makes nodes, on which weave-npc does not run, what they are before it starts.
	reset func(t *testing.T, w *e2e.Cluster)
	// arrives is the matrix before weave-npc starts, in the grammar of type e2e.Wants, unless the state is enforced
	// already.
	arrives string
	stands  bool
	// disturb changes what weave-npc has on nodes.
	disturb func(t *testing.T, w *e2e.Cluster)
	// evaluated are the states for the reference model, where they differ.
	evaluated []e2e.Change
	// dropped are hosts whose flows S93 lets be dropped for the one transaction, though both states allow them: that
	// may last until the next start. They are checked for wrong accepts alone.
	dropped []string
	// includes are flows, as e2e.Wants has them, that must be among those that are opened: + if both states allow them, -
	// if both deny them in one direction.
	includes string
	// nodes is set where flows from pods to nodes are evaluated too, those to a pod's own node among them.
	nodes bool
	// families that are asked; nil for both.
	families []int
	// args are flags.
	args []string
	// prepare and check are called before and after each transition, with the number of the state before and after it.
	prepare, check func(t *testing.T, w *e2e.Cluster, state int)
	// says matches what weave-npc may log as a warning or an error.
	says string
}

// killing is a scenario that runs.
type killing struct {
	killScenario
	w       *e2e.Cluster
	current int // number of the state: from the beginning of a transition, the one after it
	objects []*e2e.Objects
	faults  []*fault            // of each daemon
	right   []map[string]string // what each state leaves on each node, canonical
	started int                 // how often all were started
	read    []int               // how often each daemon had read the manifests before the transition
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
	return fmt.Sprintf("%d kills at %d points; %d connections, %.0f a second, %d wrong accepts, %d wrong drops",
		r.kills, len(r.points),
		r.Opened, float64(r.Opened)/r.Took.Seconds(), r.WrongAccepts, r.WrongDrops)
}

func (r *killResult) add(about string, other killResult) {
	r.Add(other.StreamResult)
	r.kills += other.kills
	for point := range other.points {
		r.points[about+point] = true
	}
}

// aSlice is how long new scenarios are begun if $WEAVE_NPC_TEST_KILLS does not ask for all of them.
const aSlice = 35 * time.Second

// TestS63_KilledAtEveryStep kills weave-npc before system calls that it, and the programs that it runs, make while it
// follows a change, and those that it makes while it starts again, and starts it once more. New flows are opened all
// the time. Some of them are allowed before and after, and others are denied.
func TestS63_KilledAtEveryStep(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
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

// killPlan returns the source of random points, which $WEAVE_NPC_TEST_SEED repeats, and how many times each transition
// of each scenario is followed, from $WEAVE_NPC_TEST_KILLS; 0 stands for a few scenarios within a minute.
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

// newKilling makes the scenario's network, with two hosts more that no object has at first.
func newKilling(t *testing.T, backend lab.Backend, s killScenario) *killing {
	t.Helper()
	w := e2e.New(t, backend, lab.Config{IPv4: s.asks(4), IPv6: s.asks(6)})
	e2e.Serve(t, w.AddPod(t, "node1", "late", lab.PodConfig{}).Host)
	e2e.Serve(t, w.AddPod(t, "node2", "later", lab.PodConfig{}).Host)
	k := &killing{killScenario: s, w: w, result: killResult{points: map[string]bool{}}}
	for _, state := range s.states {
		k.objects = append(k.objects, w.Objects(state))
		k.right = append(k.right, map[string]string{})
	}
	m := e2e.NewManifests(t, w)
	w.Source = m
	m.Write(t, k.objects[0])
	for i, n := range w.Nodes() {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			// kube-proxy has rules of this kind: conntrack knows the flows from before weave-npc's first start.
			e2e.Run(t, n.Host, program+string(backend), "-w", "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID")
		}
		w.Daemons = append(w.Daemons, killable(t, n, w.DaemonArgs(i, append([]string{"--manifests", m.Dir},
			s.args...)...)...))
		w.Daemons[i].Log.Expect("cannot serve, trying again") // one that was killed may hold its port for a moment
		if s.says != "" {
			w.Daemons[i].Log.Expect(s.says)
		}
	}
	return k
}

// killable prepares a daemon that is not started yet.
func killable(t *testing.T, node *lab.Node, args ...string) *e2e.Daemon {
	t.Helper()
	d := &e2e.Daemon{Node: node, Log: &e2e.Output{}, Args: append(e2e.CommonArgs(node), args...)}
	t.Cleanup(func() {
		if d.Cmd != nil {
			d.Kill(t)
		}
		d.CheckLog(t)
	})
	return d
}

func (s *killScenario) asks(family int) bool {
	return s.families == nil || slices.Contains(s.families, family)
}

// run makes each transition once without a kill, to see how many points there are and what is left in the end, and then
// so many times with.
func (k *killing) run(t *testing.T, random *rand.Rand, turns int) {
	if k.reset == nil || k.stands {
		k.read = k.reads()
		k.startAll(t, nil)
		k.reconcile(t)
	}
	if k.disturb != nil {
		k.disturb(t, k.w) // what others have as well is part of what is right
		clear(k.right[0])
		k.reconcile(t)
	}
	steps, starts := make([][]int, len(k.states)), make([][]int, len(k.states))
	for range k.states {
		state := k.next()
		steps[state], starts[state] = k.learn(t, state)
	}
	for turn := range turns {
		for range k.states {
			state := k.next()
			k.cycle(t, state, spread(random, steps[state], turn, turns), spread(random, starts[state], turn, turns))
			if t.Failed() {
				return
			}
		}
	}
	k.compare(t)
	t.Logf("%s; %v calls on each node, %v while starting", k.result, steps, starts)
}

// next returns the state after the current one.
func (k *killing) next() int { return (k.current + 1) % len(k.states) }

// spread selects one of so many points for each daemon, such that all turns together cover them evenly.
func spread(random *rand.Rand, points []int, turn, turns int) []int {
	var at []int
	for _, n := range points {
		from, to := turn*n/turns, (turn+1)*n/turns
		at = append(at, 1+from+random.IntN(max(1, to-from)))
	}
	return at
}

// learn changes to a state without a kill, and starts once more. It counts the calls.
func (k *killing) learn(t *testing.T, state int) (steps, starts []int) {
	t.Helper()
	k.bare(t)
	k.begin(t, state, nil)
	steps = k.reconcile(t)
	for _, f := range k.faults {
		f.killNow()
	}
	k.startAll(t, nil)
	return steps, k.reconcile(t)
}

// bare makes the nodes what they are before weave-npc starts, if the transition begins there.
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

// reads returns how often each daemon has logged that it read the manifests.
func (k *killing) reads() []int {
	counts := make([]int, len(k.w.Daemons))
	for i, d := range k.w.Daemons {
		counts[i] = strings.Count(d.Log.All(), "manifests read")
	}
	return counts
}
