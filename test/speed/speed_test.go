package speed

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

const (
	// readyWords are what a process prints when it has caught up.
	readyWords = "policies are enforced"
	// quiescence is how long a process is left alone before its memory is looked at.
	quiescence = 3 * time.Second
)

// process is one that is measured.
type process struct {
	cmd   *exec.Cmd
	by    starter
	ready time.Duration // from its start until it has caught up
}

// start starts a command and waits until it has caught up. It ends with the thread.
func start(b *testing.B, cmd *exec.Cmd) *process {
	b.Helper()
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return await(b, cmd, cmd)
}

// starter starts a process, here or on a host of a lab.
type starter interface {
	Start() error
	Wait() error
}

// await starts a command by a starter of it and waits until it has caught up.
func await(b *testing.B, cmd *exec.Cmd, by starter) *process {
	b.Helper()
	pipe, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	before := time.Now()
	if err := by.Start(); err != nil {
		b.Fatal(err)
	}
	p := &process{cmd: cmd, by: by}
	var said strings.Builder
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if strings.Contains(lines.Text(), readyWords) {
			p.ready = time.Since(before)
			go func() {
				for lines.Scan() {
				}
			}()
			return p
		}
		fmt.Fprintln(&said, lines.Text())
	}
	b.Fatalf("%s ended: %v\n%s", cmd, by.Wait(), said.String())
	return nil
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.by.Wait()
}

// resident returns the memory that the process has, in bytes.
func (p *process) resident(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(n) * 1024
}

// cpu returns the time that the process has had processors for.
func (p *process) cpu(b *testing.B) (total time.Duration) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		b.Fatal("no threads: ", err)
	}
	for _, thread := range threads {
		if text, err := os.ReadFile(thread); err == nil {
			n, _ := strconv.Atoi(strings.Fields(string(text))[0])
			total += time.Duration(n)
		}
	}
	return total
}

func startFloor(b *testing.B, s *server) *process {
	b.Helper()
	cmd := exec.Command("/proc/self/exe", s.url)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleFloor)
	return start(b, cmd)
}

func startOurs(b *testing.B, binary string, s *server) *process {
	b.Helper()
	return start(b, exec.Command(binary, "--kubeconfig", s.kubeconfig(b), "--node-name", synthetic.Node, "--pod-interface", "cni0",
		"--metrics-addr", "127.0.0.1:0", "--fail-closed", "never"))
}

// clean leaves nothing in the kernel.
func clean(b *testing.B, binary string) {
	b.Helper()
	if output, err := exec.Command(binary, "cleanup").CombinedOutput(); err != nil {
		b.Fatalf("cleanup: %v\n%s", err, output)
	}
	k := open(b)
	defer k.Close()
	_ = k.Apply([]ipset.Op{{Kind: ipset.Destroy, Set: ipset.Set{Name: floorSet, Type: ipset.HashIP, Family: ipset.IPv4}}})
}

func open(b *testing.B) *ipset.Conn {
	b.Helper()
	k, err := ipset.Open()
	if err != nil {
		b.Fatal(err)
	}
	return k
}

// BenchmarkStart starts weave-npc on a node without rules, until policies are enforced, and compares it with informers
// until they are synced. The memory is the resident memory later; "B/pod" is the difference to a cluster without pods,
// per pod.
func BenchmarkStart(b *testing.B) {
	binary := build(b)
	none := math.NaN()
	for _, c := range append([]synthetic.Cluster{{Namespaces: 1}}, synthetic.Sizes()[1:]...) {
		b.Run(c.String(), func(b *testing.B) {
			s := serve(b, objects(b, c))
			var floor, ours struct{ time, memory []float64 }
			measure := func(p *process) (ready, memory float64) {
				defer p.end()
				time.Sleep(quiescence)
				return p.ready.Seconds(), p.resident(b)
			}
			for b.Loop() {
				clean(b, binary)
				ready, memory := measure(startFloor(b, s))
				floor.time, floor.memory = append(floor.time, ready), append(floor.memory, memory)
				clean(b, binary)
				ready, memory = measure(startOurs(b, binary, s))
				ours.time, ours.memory = append(ours.time, ready), append(ours.memory, memory)
			}
			clean(b, binary)
			if c.Pods == 0 {
				none = median(ours.memory)
			} else if !math.IsNaN(none) {
				b.ReportMetric((median(ours.memory)-none)/float64(c.Pods+c.Local), "B/pod")
			}
			b.ReportMetric(median(ours.time)*1e3, "start-ms")
			b.ReportMetric(median(ours.time)/median(floor.time), "x/floor-start")
			b.ReportMetric(median(ours.memory)/1e6, "resident-MB")
			b.ReportMetric(median(ours.memory)/median(floor.memory), "x/floor-resident")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkFollow changes the label that a policy selects, and measures the time from the event until the kernel's set
// has changed. It compares it with informers that send one message to the kernel. It also counts the CPU time of an
// event: "cpu" is all CPU time of the process, from the socket on, and "own" is "cpu" without the floor's. An event
// changes labels that no policy selects, or, if it is related, that of the probe.
func BenchmarkFollow(b *testing.B) {
	binary := build(b)
	for _, c := range synthetic.Sizes()[1:] {
		b.Run(c.String(), func(b *testing.B) {
			s := serve(b, objects(b, c))
			var floor, ours rounds
			for b.Loop() {
				clean(b, binary)
				f := startFloor(b, s)
				floor.add(follow(b, s, f, c, floorSet))
				f.end()
				p := startOurs(b, binary, s)
				ours.add(follow(b, s, p, c, ""))
				p.end()
			}
			clean(b, binary)
			p50, cpu, related := median(ours.p50), median(ours.cpu), median(ours.related)
			floorCPU, floorRelated := median(floor.cpu), median(floor.related)
			b.ReportMetric(p50, "p50-us")
			b.ReportMetric(median(ours.p99), "p99-us")
			b.ReportMetric(p50/median(floor.p50), "x/floor-p50")
			b.ReportMetric(cpu, "cpu-us")
			b.ReportMetric(cpu-floorCPU, "own-cpu-us")
			b.ReportMetric(cpu/floorCPU, "x/floor-cpu")
			b.ReportMetric(related, "related-cpu-us")
			b.ReportMetric(related-floorRelated, "own-related-cpu-us")
			b.ReportMetric(related/floorRelated, "x/floor-related-cpu")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// rounds are how a process follows, round by round, in µs.
type rounds struct{ p50, p99, cpu, related []float64 }

func (r *rounds) add(f followed) {
	r.p50, r.p99 = append(r.p50, f.p50), append(r.p99, f.p99)
	r.cpu, r.related = append(r.cpu, f.cpu), append(r.related, f.related)
}

// followed is how a process follows, in µs.
type followed struct{ p50, p99, cpu, related float64 }

// follow measures one process. Without the name of the set that it puts the probing pod into, the set is looked for.
func follow(b *testing.B, s *server, p *process, c synthetic.Cluster, name string) (f followed) {
	b.Helper()
	time.Sleep(quiescence)
	k := open(b)
	defer k.Close()
	asks, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		b.Fatal(err)
	}
	defer asks.Close()
	in, out := s.podEvents(b, probe(true)), s.podEvents(b, probe(false))
	if name == "" {
		s.send(in[0])
		time.Sleep(time.Second)
		name = setOfProbe(b, k)
		s.send(out[0])
		time.Sleep(time.Second)
	}
	var took []float64
	const changes = 400
	before := p.cpu(b)
	for i := range changes {
		event, want := s.podEvents(b, probe(i%2 == 0)), i%2 == 0
		start := time.Now()
		s.send(event[0])
		for holds(b, asks, name) != want {
			if time.Since(start) > time.Minute {
				b.Fatal("the kernel does not follow")
			}
		}
		took = append(took, float64(time.Since(start).Microseconds()))
		time.Sleep(2 * time.Millisecond)
	}
	f.related = float64((p.cpu(b) - before).Nanoseconds()) / 1e3 / changes
	f.p50, f.p99 = median(took), took[len(took)*99/100]

	// As many as a large cluster has in a few seconds, one after the other.
	var pods []*corev1.Pod
	for i := range 2000 {
		q := apiPod(c.Pod(i % c.Pods))
		q.Labels["run"] = strconv.Itoa(i)
		pods = append(pods, q)
	}
	events := s.podEvents(b, pods...)
	time.Sleep(time.Second)
	before = p.cpu(b)
	for _, event := range events {
		s.send(event)
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Second)
	f.cpu = float64((p.cpu(b) - before).Nanoseconds()) / 1e3 / float64(len(events))
	return f
}

// setOfProbe finds the set that the probing pod is in because of its label.
func setOfProbe(b *testing.B, k *ipset.Conn) string {
	b.Helper()
	lists, err := k.List("weave-")
	if err != nil {
		b.Fatal(err)
	}
	smallest := slices.MinFunc(slices.DeleteFunc(lists, func(l ipset.Listing) bool { return !has(l) }), func(a, b ipset.Listing) int {
		return len(a.Members) - len(b.Members)
	})
	return smallest.Name
}

// holds asks the kernel whether a set holds the address of the probe. It reads no set, so that little of the processor
// is taken from what is measured.
func holds(b *testing.B, k *netlink.Handle, name string) bool {
	b.Helper()
	held, err := k.IpsetTest(name, &netlink.IPSetEntry{IP: net.ParseIP(probeAddr).To4()})
	if err != nil {
		b.Fatal(err)
	}
	return held
}

func has(l ipset.Listing) bool {
	entry := ipset.Addr(netip.MustParseAddr(probeAddr))
	return slices.ContainsFunc(l.Members, func(m ipset.Element) bool { return m.Entry == entry })
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
