package random

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// soakVariable is how long TestSoak goes on.
const soakVariable = "WEAVE_NPC_TEST_SOAK"

// gauges are what one weave-npc and its node hold.
type gauges struct {
	at                                      time.Duration
	memory, goroutines, files, sets, chains int
}

func (g gauges) String() string {
	return fmt.Sprintf("%8s  %6.1f MB  %4d goroutines  %4d descriptors  %4d sets  %4d chains", g.at.Round(time.Second),
		float64(g.memory)/(1<<20), g.goroutines, g.files, g.sets, g.chains)
}

// TestSoak changes the cluster at random, breaks what the kernel holds and kills one of two weave-npc, and compares
// what arrives with the reference model. In the end the weave-npc that lived through all of it has to hold what it held
// in the beginning.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := 30 * time.Second
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("$%s: %v", soakVariable, err)
		}
	}
	w := e2e.Start(t, lab.NFT, e2e.Base())
	for _, d := range w.Daemons {
		// A transaction fails, and is tried again, if something is broken while it is applied.
		d.Log.Expect("drift found|cannot look for drift|cannot bring the kernel up to date, trying again")
	}
	lives, dies := w.Daemons[0], w.Daemons[1]
	g, seed, _ := New(t, w, 0)
	g.DrawTiers()
	w.Apply(t, g.Objects)
	w.AwaitBare(t)
	begin := time.Now()
	first := gaugesOf(t, lives, begin)
	t.Logf("first %s", first)
	var peak gauges
	cells, rounds, lastLog, lastBreak := 0, 0, begin, begin
	for ; time.Since(begin) < length; rounds++ {
		g.Begin()
		for range 1 + g.IntN(4) {
			g.Change(t)
		}
		g.Crowd(rounds)
		switch g.IntN(4) {
		case 0:
			dies.Kill(t)
			dies.Start(t)
		case 1:
			// What is broken more often is repaired less often.
			if time.Since(lastBreak) > min(length/3, 30*time.Second) {
				lastBreak = time.Now()
				breakSomething(t, w, g, lives.Node)
			}
		}
		w.Apply(t, g.Objects)
		if cells += Compare(t, w, g.Objects); t.Failed() {
			t.Fatalf("seed %d, round %d: %q", seed, rounds, g.Did)
		}
		now := gaugesOf(t, lives, begin)
		peak = gauges{now.at, max(peak.memory, now.memory), max(peak.goroutines, now.goroutines),
			max(peak.files, now.files),
			max(peak.sets, now.sets), max(peak.chains, now.chains)}
		time.Sleep(min(length/1000, time.Second)) // a long one leaves the machine to others as well
		if time.Since(lastLog) > max(length/20, 10*time.Second) {
			t.Log(now)
			lastLog = time.Now()
		}
	}
	t.Logf("most  %s", peak)
	w.Apply(t, w.Objects(e2e.Do(e2e.Base(), finished)))
	w.Apply(t, w.Objects(e2e.Base()))
	w.AwaitBare(t)
	var last gauges
	await.Within(t, e2e.Timeout, func() bool { // a program may run just now
		last = gaugesOf(t, lives, begin)
		// The chain in which connections end stays once one had to end, and so do the sockets and the file of the queue
		// of DNS answers and their copies once a policy had domain names.
		return last.sets == first.sets && last.chains <= first.chains+1 && last.goroutines <= first.goroutines+3 &&
			last.files <= first.files+3+4
	}, func() string {
		return fmt.Sprintf("more is left than there was in the beginning:\n%s\n%s", first, last)
	})
	t.Logf("last  %s", last)
	t.Logf("%d rounds, %d packets", rounds, cells)
	if limit := first.memory + 32<<20; last.memory > limit {
		t.Errorf("%d bytes are resident in the end, %d were in the beginning", last.memory, first.memory)
	}
}

// breakSomething does what others do to a node.
func breakSomething(t *testing.T, w *e2e.Cluster, g *Generator, n *lab.Node) {
	t.Helper()
	iptables := g.Pick("iptables-", "ip6tables-") + string(w.Backend)
	command := g.Pick(iptables+" -w -F WEAVE-NPC-INGRESS", iptables+" -w -D FORWARD 1", iptables+" -w -F",
		"ipset flush weave-local-pods", "ipset flush", iptables+" -w -F WEAVE-NPC-EGRESS-DEFAULT", "nft flush ruleset")
	g.Note("another program runs %s", command)
	words := strings.Fields(command)
	e2e.Run(t, n.Host, words[0], words[1:]...)
	time.Sleep(3 * time.Second) // until it is repaired, what should not pass may pass
}

// gaugesOf reads what a weave-npc and its node hold.
func gaugesOf(t *testing.T, d *e2e.Daemon, begin time.Time) gauges {
	t.Helper()
	_, metrics := d.Get("/metrics")
	value := func(name string) int {
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(metrics)
		if m == nil {
			t.Fatalf("there is no %s in\n%s", name, metrics)
		}
		f, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(f)
	}
	return gauges{
		at:         time.Since(begin),
		memory:     value("process_resident_memory_bytes"),
		goroutines: value("go_goroutines"),
		files:      value("process_open_fds"),
		sets:       strings.Count(e2e.Run(t, d.Node.Host, "ipset", "list", "-n"), "weave-"),
		chains:     strings.Count(e2e.Saved(t, d.Node, "iptables-nft-save", "-t", "filter"), ":WEAVE-NPC"),
	}
}
