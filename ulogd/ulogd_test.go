package ulogd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

// helperVariable makes the test binary a process that runs ulogd2 until it is killed.
const helperVariable = "ULOGD_TEST_HELPER"

func TestRunDeliversPackets(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	s.awaitRunning(t, 1)

	lo4, lo4b, lo6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.IPv6Loopback()
	cases := []struct {
		name           string
		kind, protocol int
		address        string
		port           int
		payload        []byte
		want           Packet
	}{
		{"UDP", unix.SOCK_DGRAM, 0, "127.0.0.1", 53, make([]byte, 100),
			Packet{Group: "ingress", Dst: lo4, Protocol: 17, DstPort: 53, Length: 128}},
		{"UDP egress", unix.SOCK_DGRAM, 0, "127.0.0.2", 54, nil,
			Packet{Group: "egress", Dst: lo4b, Protocol: 17, DstPort: 54, Length: 28}},
		{"UDP IPv6", unix.SOCK_DGRAM, 0, "::1", 53, []byte("x"),
			Packet{Group: "egress", Dst: lo6, Protocol: 17, DstPort: 53, Length: 49}},
		{"TCP", unix.SOCK_STREAM, 0, "127.0.0.2", 5432, nil,
			Packet{Group: "egress", Dst: lo4b, Protocol: 6, DstPort: 5432, TCPFlags: 2, Length: 60}},
		{"TCP IPv6", unix.SOCK_STREAM, 0, "::1", 443, nil,
			Packet{Group: "ingress", Dst: lo6, Protocol: 6, DstPort: 443, TCPFlags: 2, Length: 80}},
		{"ICMP", unix.SOCK_RAW, unix.IPPROTO_ICMP, "127.0.0.1", 0, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0},
			Packet{Group: "ingress", Dst: lo4, Protocol: 1, ICMPType: 8, Length: 28}},
		{"ICMPv6", unix.SOCK_RAW, unix.IPPROTO_ICMPV6, "::1", 0, []byte{128, 0, 0, 0, 0, 0, 0, 0},
			Packet{Group: "ingress", Dst: lo6, Protocol: 58, ICMPType: 128, Length: 48}},
		{"SCTP", unix.SOCK_RAW, 132, "127.0.0.2", 0, []byte{0x10, 0x01, 0x0f, 0xa1, 0, 0, 0, 0, 0, 0, 0, 0},
			Packet{Group: "egress", Dst: lo4b, Protocol: 132, SrcPort: 4097, DstPort: 4001, Length: 32}},
		{"another protocol", unix.SOCK_RAW, 253, "127.0.0.2", 0, []byte{1},
			Packet{Group: "egress", Dst: lo4b, Protocol: 253, Length: 21}},
		{"jumbo", unix.SOCK_DGRAM, 0, "127.0.0.2", 55, make([]byte, 60000),
			Packet{Group: "egress", Dst: lo4b, Protocol: 17, DstPort: 55, Length: 60028}},
	}
	for _, c := range cases {
		send(t, c.kind, c.protocol, c.address, c.port, c.payload)
		await.That(t, c.name, func() bool {
			return slices.ContainsFunc(s.seen(), func(p Packet) bool { return sameButSource(p, c.want) })
		})
	}
	for _, p := range s.seen() {
		if !p.Src.IsLoopback() || p.Time.IsZero() || p.Truncated {
			t.Errorf("packet %+v", p)
		}
	}
	if n := s.stats.Undecodable.Load() + s.stats.Lost.Load() + s.stats.Restarts.Load(); n != 0 {
		t.Errorf("%d packets undecodable, lost, or restarts", n)
	}
	if w := warnings(s); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	s.end(t)
}

// TestRunPassesOverWhatIsNotMarked: what others report to our groups.
func TestRunPassesOverWhatIsNotMarked(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	s.awaitRunning(t, 1)
	for port := range 10 {
		send(t, unix.SOCK_DGRAM, 0, "127.0.0.3", 1000+port, nil)
		send(t, unix.SOCK_DGRAM, 0, "127.0.0.1", 2000+port, nil)
	}
	s.awaitPort(t, 2009)
	for _, p := range s.seen() {
		if p.Protocol == unix.IPPROTO_UDP && p.DstPort < 2000 {
			t.Errorf("not ours: %+v", p)
		}
	}
	s.end(t)
}

// sameButSource compares what the test can predict.
func sameButSource(got, want Packet) bool {
	got.Time, got.Src = want.Time, want.Src
	if want.SrcPort == 0 {
		got.SrcPort = 0
	}
	return got == want
}

func warnings(s *session) []string {
	var texts []string
	for _, r := range s.log.find("") {
		if r.level >= slog.LevelWarn {
			texts = append(texts, r.text)
		}
	}
	return texts
}

func TestRunLeavesNothing(t *testing.T) {
	inNamespace(t)
	warm := startRun(t, Config{Groups: testGroups()}, testTiming())
	warm.awaitRunning(t, 1)
	warm.end(t)
	before := openPipes(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	pid := s.awaitRunning(t, 1)
	s.end(t)
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if after := openPipes(t); after != before {
		t.Errorf("%d pipes and memory files before, %d after", before, after)
	}
}

// openPipes counts this process's pipes and memory files.
func openPipes(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		link, _ := os.Readlink("/proc/self/fd/" + e.Name()) // the directory's own is gone by now
		if strings.HasPrefix(link, "pipe:") || strings.Contains(link, "memfd:") {
			n++
		}
	}
	return n
}

func TestRunRestartsKilledChild(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	for n := 1; n <= 5; n++ {
		pid := s.awaitRunning(t, n)
		send(t, unix.SOCK_DGRAM, 0, "127.0.0.1", 1000+n, nil)
		s.awaitPort(t, 1000+n)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitRunning(t, 6)
	if n := s.stats.Restarts.Load(); n != 5 {
		t.Errorf("%d restarts, want 5", n)
	}
	s.end(t)
}

// On the signal to reopen its files, as after a log rotation on the node, ulogd2 begins the capture again in the same
// pipe.
func TestRunReopenedCapture(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	pid := s.awaitRunning(t, 1)
	send(t, unix.SOCK_DGRAM, 0, "127.0.0.1", 1001, nil)
	s.awaitPort(t, 1001)
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await.That(t, "signal", func() bool { return len(s.log.find("reopening capture file")) == 2 })
	send(t, unix.SOCK_DGRAM, 0, "127.0.0.1", 1002, nil)
	s.awaitPort(t, 1002)
	if n := s.stats.Restarts.Load(); n != 0 {
		t.Errorf("%d restarts", n)
	}
	s.end(t)
}

func TestRunWaitsForAbsentBinary(t *testing.T) {
	inNamespace(t)
	binary := filepath.Join(t.TempDir(), "ulogd")
	s := startRun(t, Config{Groups: testGroups(), Binary: binary}, testTiming())
	await.That(t, "warning", func() bool { return len(s.log.find("ulogd2 is absent")) == 1 })
	target, err := findBinary("", "/")
	if err != nil {
		t.Fatalf("this test needs ulogd2: %v", err)
	}
	if err := os.Symlink(target, binary); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, 1)
	if w := warnings(s); len(w) != 1 {
		t.Errorf("warnings: %v", w)
	}
	s.end(t)
}

func TestRunReportsMissingPlugins(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups(), PluginDir: t.TempDir()}, testTiming())
	await.That(t, "warning", func() bool { return len(s.log.find("ulogd_inppkt_NFLOG.so")) == 1 })
	s.end(t)
	if w := warnings(s); len(w) != 1 || !strings.Contains(w[0], "install ulogd2") {
		t.Errorf("warnings: %v", w)
	}
}

func TestRunFailingBinary(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups(), Binary: "/bin/false"}, testTiming())
	await.That(t, "restarts", func() bool { return s.stats.Restarts.Load() >= 3 })
	s.end(t)
}

// ulogd2 itself runs on without the group that another process holds.
func TestRunGroupTakenByAnother(t *testing.T) {
	inNamespace(t)
	first := startRun(t, Config{Groups: testGroups()[:1]}, testTiming())
	first.awaitRunning(t, 1)
	p := testTiming()
	p.startup = p.lossPeriod
	second := startRun(t, Config{Groups: testGroups()}, p)
	await.That(t, "report", func() bool { return len(second.log.find("opened 1 of 2 NFLOG groups")) > 0 })
	await.That(t, "reason", func() bool { return len(second.log.find("unable to bind to log group 86")) > 0 })
	first.end(t)
	second.awaitRunning(t, 1)
	second.end(t)
}

func TestRunCountsLoss(t *testing.T) {
	const sent = 25000
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	pid := s.awaitRunning(t, 1)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Port: 9009, Addr: [4]byte{127, 0, 0, 2}}
	if err := unix.Bind(fd, to); err != nil { // else every packet is answered by an ICMP error, which is logged too
		t.Fatal(err)
	}
	payload := make([]byte, 1400)
	for range sent {
		if err := unix.Sendto(fd, payload, 0, to); err != nil {
			t.Fatal(err)
		}
	}
	await.That(t, "loss", func() bool { return s.stats.Lost.Load() > 0 })
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.That(t, "every packet delivered or counted as lost", func() bool {
		return s.stats.Lost.Load()+s.stats.Packets.Load() == sent
	})
	if n := len(s.log.find("more blocked packets than can be logged")); n != 1 {
		t.Errorf("%d reports of loss, want 1", n)
	}
	t.Logf("%d of %d lost", s.stats.Lost.Load(), sent)
	s.end(t)
}

func TestChildIsUnprivileged(t *testing.T) {
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	pid := s.awaitRunning(t, 1)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534", "CapPrm:\t0000000000001000", "Groups:\t \n"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in:\n%s", want, b)
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	if policy := strings.Fields(string(stat))[40]; policy != "0" { // proc(5): field 41
		t.Errorf("scheduling policy %s, want that of an ordinary process", policy)
	}
	s.end(t)
}

func TestChildDiesWithUs(t *testing.T) {
	if os.Getenv(helperVariable) != "" {
		sandbox.Thread(t)
		log := slog.New(slog.NewTextHandler(os.Stdout, nil))
		t.Fatal(Run(context.Background(), Config{Groups: testGroups(), Log: log}, func(Packet) {}))
	}
	helper := exec.Command(os.Args[0], "-test.run=^TestChildDiesWithUs$")
	helper.Env = append(os.Environ(), helperVariable+"=1")
	helper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if _, text, ok := strings.Cut(lines.Text(), `msg="ulogd2 runs" pid=`); ok {
			if _, err := fmt.Sscan(text, &pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // killed
	if pid == 0 {
		t.Fatal("the helper did not start ulogd2")
	}
	await.That(t, "end of ulogd2", func() bool { return !alive(pid) })
}

// alive reports whether process pid runs; one that is dead but not yet waited for does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestConfigErrors(t *testing.T) {
	for name, groups := range map[string][]Group{
		"no group":   nil,
		"group zero": {{Number: 0, Name: "ingress"}},
		"twice":      {{Number: 86, Name: "ingress"}, {Number: 86, Name: "egress"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := Run(ctx, Config{Groups: groups}, nil); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestRunRecords has what was logged in a file as well.
func TestRunRecords(t *testing.T) {
	inNamespace(t)
	path := filepath.Join(t.TempDir(), "blocked.pcap")
	s := startRun(t, Config{Groups: testGroups(), Recording: path, RecordingSize: minRecordingSize}, testTiming())
	s.awaitRunning(t, 1)
	const packets = 50
	for port := range packets {
		send(t, unix.SOCK_DGRAM, 0, "127.0.0.2", 1000+port, []byte("x"))
		s.awaitPort(t, 1000+port)
	}
	s.end(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := records(text)
	if err != io.EOF {
		t.Fatal(err)
	}
	ports := map[uint16]bool{}
	for _, b := range all {
		if p, err := decode([]byte(b)); err != nil {
			t.Error(err)
		} else if p.Dst == netip.MustParseAddr("127.0.0.2") {
			ports[p.DstPort] = true
		}
	}
	if len(ports) != packets {
		t.Errorf("%d ports recorded, not %d", len(ports), packets)
	}
}

// TestRunKilledAgainAndAgain: ulogd2 is killed under load, the packets go on coming. WEAVE_NPC_TEST_ULOGD_KILLS sets
// how often.
func TestRunKilledAgainAndAgain(t *testing.T) {
	kills := 10
	if text := os.Getenv("WEAVE_NPC_TEST_ULOGD_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	inNamespace(t)
	s := startRun(t, Config{Groups: testGroups()}, testTiming())
	if out, err := exec.Command("iptables", "-w", "-A", "OUTPUT", "-d", "127.0.0.2", "-j", "DROP").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	load, stop := context.WithCancel(t.Context())
	sent := make(chan int, 1)
	go flood(load, fd, 5000, sent)
	for n := 1; n <= kills; n++ {
		pid := s.awaitRunning(t, n)
		before := s.stats.Packets.Load()
		await.That(t, fmt.Sprintf("packets from start %d", n), func() bool { return s.stats.Packets.Load() > before })
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await.That(t, "end of ulogd2", func() bool { return !s.stats.Running.Load() })
	}
	s.awaitRunning(t, kills+1)
	stop()
	t.Logf("%d packets sent, %d read, %d known to be lost, the others while no process listened", <-sent, s.stats.Packets.Load(), s.stats.Lost.Load())
	if n := s.stats.Restarts.Load(); int(n) != kills {
		t.Errorf("%d restarts, not %d", n, kills)
	}
	s.end(t)
}

// flood sends so many UDP packets a second to as many ports of 127.0.0.2, catching up when it is late, until ctx ends,
// and returns how many.
func flood(ctx context.Context, fd, perSecond int, sent chan<- int) {
	n := 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ctx.Err() == nil; <-tick.C {
		for ; n < int(time.Since(began).Seconds()*float64(perSecond)); n++ {
			// What a rule drops is an error to the sender.
			_ = unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 1 + n%65535, Addr: [4]byte{127, 0, 0, 2}})
		}
	}
	sent <- n
}
