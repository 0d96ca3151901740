package enforce

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	w := start(t, lab.NFT, base())
	for _, d := range w.daemons {
		// A transaction fails, and is tried again, if something is broken while it is applied.
		d.log.expect("drift found|cannot look for drift|cannot bring the kernel up to date, trying again")
	}
	lives, dies := w.daemons[0], w.daemons[1]
	g, seed, _ := newGenerator(t, w, 0)
	g.drawTiers()
	w.apply(t, g.objects)
	w.awaitBare(t)
	begin := time.Now()
	first := lives.gauges(t, begin)
	t.Logf("first %s", first)
	var peak gauges
	cells, rounds, lastLog, lastBreak := 0, 0, begin, begin
	for ; time.Since(begin) < length; rounds++ {
		g.begin()
		for range 1 + g.IntN(4) {
			g.change(t)
		}
		g.crowd(rounds)
		switch g.IntN(4) {
		case 0:
			dies.kill(t)
			dies.start(t)
		case 1:
			// What is broken more often is repaired less often.
			if time.Since(lastBreak) > min(length/3, 30*time.Second) {
				lastBreak = time.Now()
				w.breakSomething(t, g, lives.node)
			}
		}
		w.apply(t, g.objects)
		if cells += w.compare(t, g.objects); t.Failed() {
			t.Fatalf("seed %d, round %d: %q", seed, rounds, g.did)
		}
		now := lives.gauges(t, begin)
		peak = gauges{now.at, max(peak.memory, now.memory), max(peak.goroutines, now.goroutines), max(peak.files, now.files),
			max(peak.sets, now.sets), max(peak.chains, now.chains)}
		time.Sleep(min(length/1000, time.Second)) // a long one leaves the machine to others as well
		if time.Since(lastLog) > max(length/20, 10*time.Second) {
			t.Log(now)
			lastLog = time.Now()
		}
	}
	t.Logf("most  %s", peak)
	w.apply(t, w.objects(do(base(), finished)))
	w.apply(t, w.objects(base()))
	w.awaitBare(t)
	time.Sleep(3 * time.Second)
	last := lives.gauges(t, begin)
	t.Logf("last  %s", last)
	t.Logf("%d rounds, %d packets", rounds, cells)
	if last.sets != first.sets || last.chains != first.chains || last.goroutines > first.goroutines+3 || last.files > first.files+3 {
		t.Errorf("more is left than there was in the beginning:\n%s\n%s", first, last)
	}
	if limit := first.memory + 32<<20; last.memory > limit {
		t.Errorf("%d bytes are resident in the end, %d were in the beginning", last.memory, first.memory)
	}
}

// crowdPrefix begins the names of namespaces that go with all that is in them.
const crowdPrefix = "crowd-"

// crowd makes a namespace with pods and a policy, and removes an earlier one.
func (g *generator) crowd(round int) {
	name := func(n int) string { return crowdPrefix + strconv.Itoa(n) }
	changes := []change{namespace(name(round), g.pick("team=a", "team=b", "zone=z")), without(name(round - 3))}
	for i := range 10 {
		addr := fmt.Sprintf("10.99.%d.%d", round%250, i+1)
		changes = append(changes, pod(fmt.Sprintf("%s/pod-%d", name(round), i), labelled(g.labels()), func(_ *harness, p *corev1.Pod) {
			p.Spec.NodeName = "elsewhere"
			p.Status.PodIPs = []corev1.PodIP{{IP: addr}}
			p.Status.PodIP = addr
		}))
	}
	do(append(changes, policy(name(round)+"/p", g.policy()))...)(g.harness, g.objects)
}

// breakSomething does what others do to a node.
func (w *harness) breakSomething(t *testing.T, g *generator, n *lab.Node) {
	t.Helper()
	iptables := g.pick("iptables-", "ip6tables-") + string(w.backend)
	command := g.pick(iptables+" -w -F WEAVE-NPC-INGRESS", iptables+" -w -D FORWARD 1", iptables+" -w -F",
		"ipset flush weave-local-pods", "ipset flush", iptables+" -w -F WEAVE-NPC-EGRESS-DEFAULT", "nft flush ruleset")
	g.note("another program runs %s", command)
	words := strings.Fields(command)
	run(t, n.Host, words[0], words[1:]...)
	time.Sleep(3 * time.Second) // until it is repaired, what should not pass may pass
}

// gauges reads what a weave-npc and its node hold.
func (d *daemon) gauges(t *testing.T, begin time.Time) gauges {
	t.Helper()
	_, metrics := d.get("/metrics")
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
		sets:       strings.Count(run(t, d.node.Host, "ipset", "list", "-n"), "weave-"),
		chains:     strings.Count(saved(t, d.node, "iptables-nft-save", "-t", "filter"), ":WEAVE-NPC"),
	}
}
