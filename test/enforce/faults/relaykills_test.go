package faults

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

const (
	// relayKillsVariable is how many kills TestS63_S93_RelaysAndAgentsAreKilled makes, on both backends together.
	relayKillsVariable = "WEAVE_NPC_TEST_RELAY_KILLS"
	// relayKillsFew is how many it makes without the variable, on one of them.
	relayKillsFew = 8
	// relayStreamRate is how many connections a second are evaluated meanwhile.
	relayStreamRate = 500
)

// TestS63_S93_RelaysAndAgentsAreKilled kills replicas of the relay, and weave-npc that reads through them, at random
// moments while policies and pods change to and fro. New connections all the time get no verdict that neither of the
// two states has, and what arrives after each round is what the reference model says.
func TestS63_S93_RelaysAndAgentsAreKilled(t *testing.T) {
	t.Parallel()
	text := os.Getenv(relayKillsVariable)
	if text == "" {
		relayKillsOn(t, lab.NFT, relayKillsFew)
		return
	}
	kills, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("$%s: %v", relayKillsVariable, err)
	}
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) { relayKillsOn(t, backend, kills/2) })
	}
}

func relayKillsOn(t *testing.T, backend lab.Backend, kills int) {
	t.Helper()
	k := &relayKilling{relayed: startRelayed(t, backend, e2e.Base()), down: map[*e2e.Daemon]bool{},
		known: map[*e2e.End]reading{}}
	for _, d := range k.Daemons {
		d.Log.Expect("cannot serve, trying again")                                    // one that was killed may hold its port for a moment
		d.Log.Expect("watch is broken, will be retried indefinitely.*stream ended")   // the way to the API server takes up to two seconds
		d.Log.Expect("Unexpected error when reading response body.*context canceled") // client-go, of a request that is given up
	}
	for _, d := range k.replicas {
		d.Log.Expect("very short watch.*Unexpected watch close") // of the cache of one that is asked to end before it has begun
	}
	t.Cleanup(func() { k.reportFailure(t) })
	g, seed, _ := random.New(t, k.Cluster, 0)
	if k.g = g; seed%2 == 0 {
		g.DrawTiers()
	}
	k.reconcile(t)
	// A few kills more, if those drawn show nothing: both agents may have been killed before they read on elsewhere.
	shown := func() bool { return k.count.serving > 0 && k.count.moves > 0 }
	for ; k.count.kills() < kills || !shown() && k.count.kills() < 4*kills; k.count.rounds++ {
		k.round(t, max(1, min(1+g.IntN(8), kills-k.count.kills())))
		if t.Failed() {
			text, _ := g.Objects.Manifest()
			t.Fatalf("seed %d:\n%s\n%s", seed, strings.Join(g.Did, "\n"), text)
		}
		if k.count.rounds%10 == 9 {
			t.Log(k.count)
		}
	}
	t.Log(k.count)
	if !shown() {
		t.Error("no replica was killed that an agent read from, or no agent read on elsewhere")
	}
	if k.count.lists > 0 { // every version is there to go on from
		t.Errorf("%d repeated lists", k.count.lists)
	}
}

// reportFailure logs what was done and what daemons say if the test has failed.
func (k *relayKilling) reportFailure(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	t.Logf("%s\n%s", k.count, strings.Join(k.events.lines, "\n"))
	for _, d := range slices.Concat(k.Daemons, k.replicas) {
		t.Logf("%s on %s:\n%s", filepath.Base(d.Cmd.Path), d.Node, d.Log)
	}
}

// relayTally counts what was done, and the results.
type relayTally struct {
	rounds int
	// replicas that were killed; those of them that agents read from, and that were the last one; agents that were
	// killed; by SIGTERM of all.
	replicas, serving, last, agents, asked int
	moves, lists                           int // of agents that lived, after their first lists
	reconciled, relayed                    int // agents after rounds, and those that read through the relay alone
	packets                                int // evaluated after rounds
	stream                                 lab.StreamResult
}

func (c relayTally) kills() int { return c.replicas + c.agents }

// String sums it up.
func (c relayTally) String() string {
	return fmt.Sprintf("%d rounds, %d kills (%d by SIGTERM): %d of replicas (%d served agents, %d were the last one), %d of agents; "+
		"%d moves and %d repeated lists by agents that lived; after rounds %d of %d agents read through the relay; "+
		"%d connections and %d packets evaluated: %d wrong accepts, %d wrong drops", c.rounds, c.kills(), c.asked,
		c.replicas, c.serving, c.last, c.agents,
		c.moves, c.lists, c.relayed, c.reconciled, c.stream.Opened, c.packets, c.stream.WrongAccepts, c.stream.WrongDrops)
}

// relayKilling is a run of kills.
type relayKilling struct {
	*relayed
	g      *random.Generator
	count  relayTally
	events events
	down   map[*e2e.Daemon]bool // that were killed, and are not started again
	alone  bool                 // whether the last replica may be killed, too
	// known is what agents reported last, since their last start.
	known map[*e2e.End]reading
}

// round changes to a state and back, again and again, with a number of kills, and reconciles.
func (k *relayKilling) round(t *testing.T, kills int) {
	t.Helper()
	k.g.Begin()
	k.events.lines = nil
	k.renewToken(t)
	k.g.Edit()
	k.g.Edit()
	k.g.Crowd(k.count.rounds)
	k.Apply(t, k.g.Objects)
	before := k.g.Objects.Clone()
	between, allowed := k.turn()
	if flows := k.flows(t, before, between, allowed); len(flows) > 0 {
		k.strikes(t, kills, before, flows)
	}
	if !t.Failed() {
		k.g.Change(t)
		k.reconcile(t)
	}
}

// strikes kills and starts, while the state changes from the one before to the present one and back.
func (k *relayKilling) strikes(t *testing.T, kills int, before *e2e.Objects, flows []lab.StreamFlow) {
	t.Helper()
	stream, err := lab.NewStream(relayStreamRate, flows)
	if err != nil {
		t.Fatal(err)
	}
	states := []*e2e.Objects{k.g.Objects, before}
	k.alone = k.g.IntN(3) == 0 // seldom, or agents would hardly ever read through the relay
	k.killRandom(t, k.servant())
	for i, until := 1, k.count.kills()+kills-1; k.count.kills() < until; i++ {
		if k.g.IntN(3) > 0 {
			k.events.add("state %d", i%2)
			k.Source.Write(t, states[i%2])
		}
		time.Sleep(k.moment())
		k.killRandom(t, k.anybody())
	}
	for _, d := range slices.Concat(k.Daemons, k.replicas) {
		if k.down[d] {
			k.raise(t, d)
		}
	}
	k.Source.Write(t, k.g.Objects)
	for _, d := range k.Daemons {
		d.AwaitReady(t)
	}
	k.events.add("all agents are ready")
	stream.Round(t.Context())
	result, err := stream.Close()
	if err != nil {
		t.Fatal(err)
	}
	k.count.stream.Add(result)
	if result.WrongAccepts+result.WrongDrops > 0 {
		t.Errorf("wrong:\n%s\n%s", strings.Join(result.Wrong, "\n"), k.State())
	}
}

// moment returns how long nothing is killed: mostly too short for anybody to notice, and now and then long enough to
// move.
func (k *relayKilling) moment() time.Duration {
	most := []time.Duration{20 * time.Millisecond, 400 * time.Millisecond, 400 * time.Millisecond,
		2500 * time.Millisecond}[k.g.IntN(4)]
	return time.Duration(k.g.Int64N(int64(most)))
}

// servant returns a replica that agents read from, or any if there is none.
func (k *relayKilling) servant() *e2e.Daemon {
	for _, d := range k.replicas {
		if !k.down[d] && served(d) > 0 {
			return d
		}
	}
	return k.replicas[0]
}

// anybody returns a replica or an agent.
func (k *relayKilling) anybody() *e2e.Daemon {
	if k.g.IntN(5) < 2 {
		return k.Daemons[k.g.IntN(len(k.Daemons))]
	}
	i := k.g.IntN(len(k.replicas))
	if other := k.replicas[1-i]; k.down[other] && !k.alone {
		return other
	}
	return k.replicas[i]
}

// killRandom kills a daemon, by either signal, or starts one that was killed.
func (k *relayKilling) killRandom(t *testing.T, d *e2e.Daemon) {
	t.Helper()
	if k.down[d] {
		k.raise(t, d)
		return
	}
	what := "the agent"
	if i := slices.Index(k.replicas, d); i >= 0 {
		what = "the replica"
		k.count.replicas++
		if served(d) > 0 {
			k.count.serving++
			what += " that serves"
		}
		if k.down[k.replicas[1-i]] {
			k.count.last++
		}
	} else {
		k.count.agents++
		k.read(d)
	}
	k.down[d] = true
	s := syscall.SIGKILL
	if k.g.IntN(3) == 0 {
		s = syscall.SIGTERM
		k.count.asked++
	}
	k.events.add("%s on %s: %s", what, d.Node, s)
	if err := d.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v\n%s", err, d.Log)
	}
}

// raise starts a daemon that was killed.
func (k *relayKilling) raise(t *testing.T, d *e2e.Daemon) {
	t.Helper()
	k.events.add("a new one on %s: replica %t", d.Node, slices.Contains(k.replicas, d))
	d.Restart(t)
	delete(k.down, d)
}

// reconcile compares what arrives with the reference model's verdicts once all agents follow.
func (k *relayKilling) reconcile(t *testing.T) {
	t.Helper()
	k.events.add("reconciles")
	k.Apply(t, k.g.Objects)
	k.count.packets += random.Compare(t, k.Cluster, k.g.Objects)
	for _, d := range k.Daemons {
		if now, ok := k.read(d); ok {
			k.known[d.End] = now
			k.count.reconciled++
			if now.direct == 0 && now.relayed > 0 {
				k.count.relayed++
			}
		}
	}
}

// read counts what an agent has done since it was read last, unless that was in another life.
func (k *relayKilling) read(d *e2e.Daemon) (now reading, ok bool) {
	if now, ok = reads(d); !ok {
		return now, false
	}
	if before, same := k.known[d.End]; same {
		k.count.moves += now.moves - before.moves
		k.count.lists += now.lists - before.lists
		k.known[d.End] = now
	}
	return now, true
}

// turn makes one change that is made again and again, and taken back. It returns the state for a moment on the way, if
// that is a state of its own, and whether what both states allow passes meanwhile, too.
func (k *relayKilling) turn() (between *e2e.Objects, allowed bool) {
	name := k.g.OnePod()
	for strings.HasPrefix(name, random.CrowdPrefix) {
		name = k.g.OnePod()
	}
	switch k.g.IntN(5) {
	case 0, 1:
		return nil, k.editOne()
	case 2:
		k.g.Relabel(name)
		return nil, false
	}
	between = k.g.Objects.Clone()
	e2e.Without(name)(k.Cluster, between)
	k.g.Renewed[name] = true
	if k.g.IntN(2) == 0 {
		l := k.g.Labels()
		k.g.Do("another "+name+" with "+l, e2e.Pod(name, e2e.UID(k.g.UID()), e2e.Phase(corev1.PodRunning),
			e2e.Labelled(l)))
		return between, false
	}
	host, id, l := hostOf(k.Cluster, k.g.Objects.Pods[name]), k.g.UID(), k.g.Labels()
	heir := k.g.Pick("shop", "ops") + "/heir-" + id
	k.g.Renewed[heir] = true
	k.g.Do(heir+" with "+l+" has the addresses of "+name, e2e.Do(e2e.Without(name), e2e.Pod(heir, e2e.At(host),
		e2e.UID(id), e2e.Labelled(l))))
	return between, false
}

// editOne adds, changes or removes one policy, and reports whether that is a NetworkPolicy: one that goes to another
// tier may drop for a moment what both states allow. All of a tier go one after the other, and what is between is
// neither state.
func (k *relayKilling) editOne() (ofNamespace bool) {
	for {
		before := k.g.Objects.Clone()
		k.g.Edit()
		if len(e2e.Removed(before.Tiers, k.g.Objects.Tiers)) < 2 {
			return maps.Equal(before.Tiers, k.g.Objects.Tiers)
		}
		k.g.Objects = before
	}
}

// hostOf returns the host that has a pod's address.
func hostOf(w *e2e.Cluster, p *corev1.Pod) string {
	for _, name := range slices.Sorted(maps.Keys(w.Hosts)) {
		if w.Hosts[name].Addrs()[0].String() == p.Status.PodIP {
			return name
		}
	}
	panic("no host has the address of " + p.Name)
}

// flows returns flows that are denied in the same direction before and after, and between the two, and if they are
// asked for those that are allowed by both.
func (k *relayKilling) flows(t *testing.T, before, between *e2e.Objects, allowed bool) []lab.StreamFlow {
	t.Helper()
	was, is := before.Evaluated(t, k.Cluster), k.g.Objects.Evaluated(t, k.Cluster)
	flows := k.Streamed(was, is, allowed)
	var passing refmodel.State
	if between != nil {
		passing = between.Evaluated(t, k.Cluster)
	}
	return slices.DeleteFunc(flows, func(f lab.StreamFlow) bool {
		if !f.Denied {
			return !k.lives(f.From, before) || !k.lives(f.To, before)
		}
		return between != nil && !k.deniedThroughout(f, was, is, passing, between)
	})
}

// lives reports whether a host is no pod's, or that of the same pod before and after.
func (k *relayKilling) lives(h *lab.Host, before *e2e.Objects) bool {
	owner := ownerOf(before, h)
	return k.NodeOf(h) == nil || owner != "" && owner == ownerOf(k.g.Objects, h)
}

// deniedThroughout reports whether a flow is denied in a direction by all three states. A pod that is gone stays closed
// until another one has its address.
func (k *relayKilling) deniedThroughout(f lab.StreamFlow, was, is, passing refmodel.State, between *e2e.Objects) bool {
	p := e2e.PacketOf(f.From.Addr(f.Family), f.To.Addr(f.Family), f.Proto, f.Port)
	out1, in1 := was.Evaluate(refmodel.Everywhere, p)
	out2, in2 := is.Evaluate(refmodel.Everywhere, p)
	out, in := passing.Evaluate(refmodel.Everywhere, p)
	gone := func(h *lab.Host) bool { return k.NodeOf(h) != nil && ownerOf(between, h) == "" }
	return !out1 && !out2 && (!out || gone(f.From)) || !in1 && !in2 && (!in || gone(f.To))
}
