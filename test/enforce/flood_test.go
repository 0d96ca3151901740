package enforce

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
	"github.com/weave-npc/weave-npc/test/lab"
)

// floodVariable is how long a flood lasts that is measured: of 20,000 new flows a second, without the race detector.
const floodVariable = "WEAVE_NPC_TEST_FLOOD"

// killsVariable is how often ulogd2 is killed.
const killsVariable = "WEAVE_NPC_TEST_ULOGD_KILLS"

// flood is what a pod sends that nothing allows.
type flood struct {
	from, to *lab.Host
	stop     context.CancelFunc
	sent     chan int
}

// startFlood sends UDP to so many ports of a host, so many packets a second, catching up when it is late.
func (w *harness) startFlood(t *testing.T, from, to string, ports, rate int) *flood {
	t.Helper()
	address := w.hosts[to].Addr4().As4()
	return w.startSending(t, from, to, rate, unix.SOCK_DGRAM, 0, func(fd, n int) error {
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 1 + n%ports, Addr: address})
	})
}

// startPings sends one ping after the other.
func (w *harness) startPings(t *testing.T, from, to string, rate int) *flood {
	t.Helper()
	address := w.hosts[to].Addr4().As4()
	return w.startSending(t, from, to, rate, unix.SOCK_RAW, unix.IPPROTO_ICMP, func(fd, _ int) error {
		return unix.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, &unix.SockaddrInet4{Addr: address})
	})
}

// startSending calls send for each packet, with a socket of the host.
func (w *harness) startSending(t *testing.T, from, to string, rate, kind, protocol int, send func(fd, n int) error) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	f := &flood{from: w.hosts[from], to: w.hosts[to], stop: cancel, sent: make(chan int, 1)}
	source := f.from.Addr4().String()
	for _, rule := range []string{"-p icmp --icmp-type echo-request", "-p udp ! --sport 53"} { // what it answers is allowed
		run(t, f.to, "iptables-nft", strings.Fields("-w -I INPUT -s "+source+" "+rule+" -m comment --comment "+floodMark)...)
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
			// An error is a queue that is full.
			for n < int(time.Since(began).Seconds()*float64(rate)) && send(fd, n) == nil {
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

// packets adds up the counters of the rules of a chain whose lines have a text.
func packets(t *testing.T, h *lab.Host, iptables, chain, text string) int {
	t.Helper()
	out := run(t, h, iptables, "-w", "-nvxL", chain)
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

// metric returns the value of one of the metrics.
func (d *daemon) metric(t *testing.T, name string) int {
	t.Helper()
	_, text := d.get("/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

// ulogd returns the process id of the n-th ulogd2 that has come up.
func (d *daemon) ulogd(t *testing.T, n int) int {
	t.Helper()
	runs := regexp.MustCompile(`msg="ulogd2 runs" pid=(\d+)`)
	var found [][]string
	await.Within(t, timeout, func() bool {
		found = runs.FindAllStringSubmatch(d.log.since(d.said), -1)
		return len(found) >= n
	}, func() string { return fmt.Sprintf("ulogd2 has not come up %d times\n%s", n, d.log) })
	pid, err := strconv.Atoi(found[n-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// startRecording starts weave-npc on all nodes, in a state, with a capture file on each.
func (w *harness) startRecording(t *testing.T, state change) (captures []string) {
	t.Helper()
	m := w.fromManifests(t, state)
	dir := t.TempDir()
	for i, n := range w.Nodes() {
		captures = append(captures, filepath.Join(dir, n.Name()+".pcap"))
		w.daemons = append(w.daemons, startDaemon(t, n, w.daemonArgs(i, "--manifests", m.dir, "--ulogd-pcap", captures[i],
			"--ulogd-pcap-size", "1")...))
	}
	for _, d := range w.daemons {
		d.awaitReady(t)
	}
	return captures
}

// usage is what a process has used.
type usage struct {
	cpu time.Duration
	rss int // KiB
}

func usageOf(t *testing.T, pid int) usage {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // from the state on, which is the third (proc(5))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	var u usage
	u.cpu = time.Duration(ticks) * 10 * time.Millisecond
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found != nil {
		u.rss, _ = strconv.Atoi(string(found[1]))
	}
	return u
}

// TestFloodOfBlockedFlows checks that under a flood denied packets are dropped and allowed ones pass, that the log and
// the recording stay small, and that every lost report is counted.
func TestFloodOfBlockedFlows(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		rate, length := 2000, 3*time.Second
		if text := os.Getenv(floodVariable); text != "" {
			var err error
			if length, err = time.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
			rate = 20000
		}
		w := newHarness(t, backend, lab.Config{})
		captures := w.startRecording(t, rich())
		w.expect(t, richWants())
		d := w.daemons[0]
		pid := d.ulogd(t, 1)
		iptables, chain := "iptables-"+string(backend), "WEAVE-NPC-DROP-EGRESS"
		dropped, reported := packets(t, d.node.Host, iptables, chain, "DROP"), packets(t, d.node.Host, iptables, chain, "NFLOG")
		read := d.metric(t, "weavenpc_nflog_packets_total")
		npcBefore, ulogdBefore, said := usageOf(t, d.cmd.Process.Pid), usageOf(t, pid), d.log.len()

		f := w.startFlood(t, "web", "out", 65535, rate)
		end := time.Now().Add(length)
		load := w.load(t, "db>web udp 53", "-mon>web udp 53", "-api>web udp 53", "out>web udp 53")
		time.Sleep(time.Until(end))
		load.stop(t)
		sent := f.end(t)

		if n := packets(t, d.node.Host, iptables, chain, "DROP") - dropped; n < sent {
			t.Errorf("%d packets were sent and %d were dropped by the rule that drops", sent, n)
		}
		reported = packets(t, d.node.Host, iptables, chain, "NFLOG") - reported
		await.Within(t, timeout, func() bool {
			return d.metric(t, "weavenpc_nflog_packets_total")-read+d.metric(t, "weavenpc_nflog_lost_packets_total") >= reported
		}, func() string { return "packets are neither read nor counted as lost" })
		npcAfter, ulogdAfter := usageOf(t, d.cmd.Process.Pid), usageOf(t, pid)
		logged := d.log.len() - said
		t.Logf("%d packets in %s, %d reported, %d lost; weave-npc %s of CPU, %d KiB; ulogd2 %s of CPU, %d KiB; %d bytes of log", sent, length,
			reported, d.metric(t, "weavenpc_nflog_lost_packets_total"), npcAfter.cpu-npcBefore.cpu, npcAfter.rss,
			ulogdAfter.cpu-ulogdBefore.cpu, ulogdAfter.rss, logged)
		if most := 400 * (200 + 20*int(length.Seconds()+1)); logged > most {
			t.Errorf("%d bytes of log, more than %d", logged, most)
		}
		checkCaptures(t, captures[0], 1<<20, f)
		w.expect(t, richWants())
	})
}

// TestALoopIsReportedNowAndThen checks that packets sent again and again have few reports, also those without ports,
// and hide no others.
func TestALoopIsReportedNowAndThen(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		d := w.daemons[0]
		const chain = "WEAVE-NPC-DROP-EGRESS"
		for _, c := range []struct {
			name  string
			start func() *flood
		}{
			{"UDP", func() *flood { return w.startFlood(t, "web", "out", 1, 2000) }},
			{"ICMP", func() *flood { return w.startPings(t, "web", "out", 2000) }},
		} {
			t.Run(c.name, func(t *testing.T) {
				reported, began := packets(t, d.node.Host, "iptables-"+string(backend), chain, "NFLOG"), time.Now()
				f := c.start()
				said := d.log.len()
				w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["out"].Addr4(), Port: 81}, lab.Dropped)
				d.awaitLine(t, said, `protocol=TCP from="shop/web .*:81 `)
				time.Sleep(time.Second)
				sent := f.end(t)
				reported = packets(t, d.node.Host, "iptables-"+string(backend), chain, "NFLOG") - reported
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
		out := run(t, f.to, "tcpdump", "-nr", p)
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
	w := start(t, lab.NFT, rich())
	d := w.daemons[0]
	d.log.expect("ulogd2 ended, starting it again")
	d.log.expect("more blocked packets than can be logged")
	f := w.startFlood(t, "web", "out", 65535, 2000)
	load := w.load(t, "db>web udp 53", "-mon>web udp 53", "-api>web udp 53", "out>web udp 53")
	for n := 1; n <= kills; n++ {
		if err := unix.Kill(d.ulogd(t, n), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	d.ulogd(t, kills+1)
	load.stop(t)
	f.end(t)
	said := d.log.len()
	w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 4711}, lab.Dropped)
	d.awaitLine(t, said, `msg=blocked direction=ingress protocol=TCP from="ops/mon .* to="shop/web .*:4711\)"`)
	if n := d.metric(t, "weavenpc_ulogd_restarts_total"); n != kills {
		t.Errorf("%d restarts are counted, not %d", n, kills)
	}
	w.expect(t, richWants())
}
