package observe

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// floodVariable is how long a flood lasts that is measured: of 20,000 new flows a second, without the race detector.
const floodVariable = "WEAVE_NPC_TEST_FLOOD"

// killsVariable is how often ulogd2 is killed.
const killsVariable = "WEAVE_NPC_TEST_ULOGD_KILLS"

// flood is what a pod sends that nothing allows.
type flood struct {
	from, to *lab.Host
	node     *lab.Node // of from
	iptables string    // the program of the node
	stop     context.CancelFunc
	sent     chan int
}

// reached returns how many packets have reached the node. On a machine that is late with its soft interrupts, the queue
// before it may have been full.
func (f *flood) reached(t *testing.T) int {
	t.Helper()
	return packets(t, f.node.Host, f.iptables, "PREROUTING -t mangle", floodMark)
}

// startFlood sends UDP to so many ports of a host, so many packets a second, catching up when it is late.
func startFlood(t *testing.T, w *e2e.Cluster, from, to string, ports, rate int) *flood {
	t.Helper()
	address := w.Hosts[to].Addr4().As4()
	return startSending(t, w, from, to, rate, unix.SOCK_DGRAM, 0, func(fd, n int) error {
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 1 + n%ports, Addr: address})
	})
}

// startPings sends one ping after the other.
func startPings(t *testing.T, w *e2e.Cluster, from, to string, rate int) *flood {
	t.Helper()
	address := w.Hosts[to].Addr4().As4()
	return startSending(t, w, from, to, rate, unix.SOCK_RAW, unix.IPPROTO_ICMP, func(fd, _ int) error {
		return unix.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, &unix.SockaddrInet4{Addr: address})
	})
}

// startSending calls send for each packet, with a socket of the host.
func startSending(t *testing.T, w *e2e.Cluster, from, to string, rate, kind, protocol int,
	send func(fd, n int) error) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	f := &flood{from: w.Hosts[from], to: w.Hosts[to], node: w.NodeOf(w.Hosts[from]),
		iptables: "iptables-" + string(w.Backend), stop: cancel, sent: make(chan int, 1)}
	source := f.from.Addr4().String()
	for _, rule := range []string{"-p icmp --icmp-type echo-request", "-p udp ! --sport 53"} { // what it answers is allowed
		rule = " -s " + source + " " + rule + " -m comment --comment " + floodMark
		e2e.Run(t, f.to, "iptables-nft", strings.Fields("-w -I INPUT"+rule)...)
		e2e.Run(t, f.node.Host, f.iptables, strings.Fields("-w -t mangle -I PREROUTING"+rule)...)
	}
	var fd int
	if err := f.from.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer unix.Close(fd)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		n, began := 0, time.Now()
		for ; ctx.Err() == nil; <-tick.C {
			// An error is a queue that is full. A machine that is too slow for the rate is behind at the end, too.
			for ctx.Err() == nil && n < int(time.Since(began).Seconds()*float64(rate)) && send(fd, n) == nil {
				n++
			}
		}
		f.sent <- n
	}()
	return f
}

// floodMark marks the rules that count what has arrived.
const floodMark = "flood"

// end ends it, and checks that nothing of it has arrived. It returns how many packets were sent.
func (f *flood) end(t *testing.T) int {
	t.Helper()
	f.stop()
	sent := <-f.sent
	if n := packets(t, f.to, "iptables-nft", "INPUT", floodMark); n != 0 {
		t.Errorf("%d of %d packets have arrived that nothing allows", n, sent)
	}
	return sent
}

// packets adds up the counters of the rules of a chain, "INPUT" or "PREROUTING -t mangle", whose lines have a text.
func packets(t *testing.T, h *lab.Host, iptables, chain, text string) int {
	t.Helper()
	out := e2e.Run(t, h, iptables, strings.Fields("-w -nvxL "+chain)...)
	sum, found := 0, false
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); strings.Contains(line, text) && len(fields) > 2 {
			if n, err := strconv.Atoi(fields[0]); err == nil {
				sum, found = sum+n, true
			}
		}
	}
	if !found {
		t.Fatalf("chain %s has no rule with %q:\n%s", chain, text, out)
	}
	return sum
}

// ulogd returns the process id of the n-th ulogd2 that has come up.
func ulogd(t *testing.T, d *e2e.Daemon, n int) int {
	t.Helper()
	runs := regexp.MustCompile(`msg="ulogd2 runs" pid=(\d+)`)
	var found [][]string
	await.Within(t, e2e.Timeout, func() bool {
		found = runs.FindAllStringSubmatch(d.Log.Since(d.Said), -1)
		return len(found) >= n
	}, func() string { return fmt.Sprintf("ulogd2 has not come up %d times\n%s", n, d.Log) })
	pid, err := strconv.Atoi(found[n-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// startCaptures starts weave-npc on all nodes, in a state, with a capture file on each.
func startCaptures(t *testing.T, w *e2e.Cluster, state e2e.Change) (captures []string) {
	t.Helper()
	m := w.FromManifests(t, state)
	dir := t.TempDir()
	for i, n := range w.Nodes() {
		captures = append(captures, filepath.Join(dir, n.Name()+".pcap"))
		w.Daemons = append(w.Daemons, e2e.StartDaemon(t, n, w.DaemonArgs(i, "--manifests", m.Dir, "--ulogd-pcap",
			captures[i],
			"--ulogd-pcap-size", "1")...))
	}
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
	return captures
}

// TestFloodOfBlockedFlows checks that under a flood denied packets are dropped and allowed ones pass, that the log and
// the recording stay small, and that every lost report is counted.
func TestFloodOfBlockedFlows(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		rate, length := 2000, 3*time.Second
		if text := os.Getenv(floodVariable); text != "" {
			var err error
			if length, err = time.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
			rate = 20000
		}
		w := e2e.New(t, backend, lab.Config{})
		captures := startCaptures(t, w, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		d := w.Daemons[0]
		pid := ulogd(t, d, 1)
		iptables, chain := "iptables-"+string(backend), "WEAVE-NPC-DROP-EGRESS"
		dropped, reported := packets(t, d.Node.Host, iptables, chain, "DROP"), packets(t, d.Node.Host, iptables, chain,
			"NFLOG")
		read := d.Metric(t, "weavenpc_nflog_packets_total")
		npcBefore, ulogdBefore, said := e2e.UsageOf(t, d.Cmd.Process.Pid), e2e.UsageOf(t, pid), d.Log.Len()

		began := time.Now()
		f := startFlood(t, w, "web", "out", 65535, rate)
		end := time.Now().Add(length)
		load := w.Load(t, "db>web udp 53", "-mon>web udp 53", "-api>web udp 53", "out>web udp 53")
		time.Sleep(time.Until(end))
		load.Stop(t)
		sent, reached := f.end(t), f.reached(t)
		if reached < sent/4 {
			t.Errorf("of %d packets only %d have reached the node", sent, reached)
		}
		if n := packets(t, d.Node.Host, iptables, chain, "DROP") - dropped; n < reached {
			t.Errorf("%d packets have reached the node and %d were dropped by the rule that drops", reached, n)
		}
		reported = packets(t, d.Node.Host, iptables, chain, "NFLOG") - reported
		await.Within(t, e2e.Timeout, func() bool {
			return d.Metric(t, "weavenpc_nflog_packets_total")-read+d.Metric(t,
				"weavenpc_nflog_lost_packets_total") >= reported
		}, func() string { return "packets are neither read nor counted as lost" })
		npcAfter, ulogdAfter := e2e.UsageOf(t, d.Cmd.Process.Pid), e2e.UsageOf(t, pid)
		logged, seconds := d.Log.Len()-said, int(time.Since(began).Seconds()) // more than length on a busy machine
		t.Logf("%d packets in %s, %d reported, %d lost; weave-npc %s of CPU, %d KiB; ulogd2 %s of CPU, %d KiB; %d bytes of log", sent, length,
			reported, d.Metric(t, "weavenpc_nflog_lost_packets_total"), npcAfter.CPU-npcBefore.CPU, npcAfter.RSS,
			ulogdAfter.CPU-ulogdBefore.CPU, ulogdAfter.RSS, logged)
		if most := 400 * (200 + 20*(seconds+1)); logged > most {
			t.Errorf("%d bytes of log, more than %d", logged, most)
		}
		checkCaptures(t, captures[0], 1<<20, f)
		w.Expect(t, e2e.RichWants())
	})
}

// TestALoopIsReportedNowAndThen checks that packets sent again and again have few reports, also those without ports,
// and hide no others.
func TestALoopIsReportedNowAndThen(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		d := w.Daemons[0]
		const chain = "WEAVE-NPC-DROP-EGRESS"
		for _, c := range []struct {
			name  string
			start func() *flood
		}{
			{"UDP", func() *flood { return startFlood(t, w, "web", "out", 1, 2000) }},
			{"ICMP", func() *flood { return startPings(t, w, "web", "out", 2000) }},
		} {
			t.Run(c.name, func(t *testing.T) {
				reported, began := packets(t, d.Node.Host, "iptables-"+string(backend), chain, "NFLOG"), time.Now()
				f := c.start()
				said := d.Log.Len()
				w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["out"].Addr4(), Port: 81}, lab.Dropped)
				d.AwaitLine(t, said, `protocol=TCP from="shop/web .*:81 `)
				time.Sleep(time.Second)
				sent := f.end(t)
				reported = packets(t, d.Node.Host, "iptables-"+string(backend), chain, "NFLOG") - reported
				if most := 12 + 2*int(time.Since(began).Seconds()); reported < 5 || reported > most || sent < 5*most {
					t.Errorf("%d of %d packets are reported, not 5 to %d", reported, sent, most)
				}
			})
		}
	})
}

// checkCaptures reads the capture files with tcpdump: they have packets of the flood, and are small.
func checkCaptures(t *testing.T, path string, size int64, f *flood) {
	t.Helper()
	from := netip.AddrPortFrom(f.from.Addr4(), 0).Addr().String()
	sum := int64(0)
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
		out := e2e.Run(t, f.to, "tcpdump", "-nr", p)
		if !strings.Contains(out, "IP "+from+".") {
			t.Errorf("%s has nothing from %s", p, from)
		}
	}
	if sum == 0 || sum > size {
		t.Errorf("the captures have %d bytes, not up to %d", sum, size)
	}
}

// TestUlogdIsKilledUnderLoad again and again: nothing passes that must not, and afterwards blocked packets are reported
// as before.
func TestUlogdIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	kills := 5
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := e2e.Start(t, lab.NFT, e2e.Rich())
	d := w.Daemons[0]
	d.Log.Expect("ulogd2 ended, starting it again")
	d.Log.Expect("more blocked packets than can be logged")
	f := startFlood(t, w, "web", "out", 65535, 2000)
	load := w.Load(t, "db>web udp 53", "-mon>web udp 53", "-api>web udp 53", "out>web udp 53")
	for n := 1; n <= kills; n++ {
		if err := unix.Kill(ulogd(t, d, n), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	ulogd(t, d, kills+1)
	load.Stop(t)
	f.end(t)
	said := d.Log.Len()
	w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 4711}, lab.Dropped)
	d.AwaitLine(t, said, `msg=blocked direction=ingress protocol=TCP from="ops/mon .* to="shop/web .*:4711\)"`)
	if n := d.Metric(t, "weavenpc_ulogd_restarts_total"); n != kills {
		t.Errorf("%d restarts are counted, not %d", n, kills)
	}
	w.Expect(t, e2e.RichWants())
}
