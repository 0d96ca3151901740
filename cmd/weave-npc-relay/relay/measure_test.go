package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

const measureVariable = "WEAVE_NPC_TEST_RELAY"

// bench is a real API server, a relay in a process of its own, and agents in this one, all on one host.
type bench struct {
	*harness
	host   *lab.Host
	relay  *exec.Cmd
	addr   string // of the relay
	ca     *x509.CertPool
	apiCA  *x509.CertPool
	apiPID int
	mu     sync.Mutex
	seen   map[int64]time.Time // change -> when the agent without a relay had it
}

func newBench(t *testing.T) *bench {
	t.Helper()
	l, err := lab.New(lab.Config{Nodes: 1, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	host, err := l.AddHost("control-plane", l.Node("node1").Addr4().Prev())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{harness: harnessOn(t, apiserver.Started(t, host, l.Dir())), host: host, seen: map[int64]time.Time{}}
	b.apiPID = processWith(t, "kube-apiserver\x00", filepath.Dir(b.server.Kubeconfig()))
	dir := t.TempDir()
	authority, err := apiserver.NewAuthority(dir)
	b.must(err)
	b.must(authority.WriteServer([]netip.Addr{host.Addr4()}))
	b.ca, b.apiCA = pool(t, filepath.Join(dir, apiserver.AuthorityFile)), pool(t, b.config.CAFile)
	binary := filepath.Join(dir, "weave-npc-relay")
	b.must(exec.Command("go", "build", "-o", binary, "..").Run())
	b.addr = net.JoinHostPort(host.Addr4().String(), "6785")
	command := host.Command(context.Background(), binary, "--kubeconfig", b.server.Kubeconfig(), "--ready-after=0s", "--listen", b.addr,
		"--tls-cert", filepath.Join(dir, apiserver.ServerCertFile), "--tls-key", filepath.Join(dir, apiserver.ServerKeyFile))
	command.Stdout, command.Stderr = os.Stdout, os.Stdout
	b.must(command.Start())
	b.relay = command.Cmd
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return b
}

func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(text)
	return p
}

// processWith returns the process that has two texts in its arguments.
func processWith(t *testing.T, a, b string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(a)) && bytes.Contains(text, []byte(b)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				return pid
			}
		}
	}
	t.Fatalf("no process with %q and %q", a, b)
	return 0
}

// cpu returns the time that a process has taken.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident returns how much memory a process has, in MB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	kb, _ := strconv.Atoi(string(m[1]))
	return kb / 1024
}

// crowd is a number of agents with what they received.
type crowd struct {
	events, bytes atomic.Int64
	late          []time.Duration // behind the agent without a relay
}

// marker is before the time of a change, in nanoseconds, in a pod's label.
const marker, digits = "change.at.", 19

// changes calls got with each change that is named in text, and returns what may be the beginning of another.
func changes(text []byte, got func(change int64)) []byte {
	for {
		i := bytes.Index(text, []byte(marker))
		if i < 0 {
			return text[max(0, len(text)-len(marker)+1):]
		}
		if len(text) < i+len(marker)+digits {
			return text[i:]
		}
		text = text[i+len(marker):]
		if change, err := strconv.ParseInt(string(text[:digits]), 10, 64); err == nil {
			got(change)
		}
		text = text[digits:]
	}
}

// agent opens the watches of an agent and reads them until ctx ends. It parses no more than it must: its processor time
// is not the relay's.
func (b *bench) agent(ctx context.Context, addr, token string, trust *x509.CertPool, got func(change int64, at time.Time), size *atomic.Int64, versions map[string]string) error {
	for path, version := range versions {
		conn, err := b.host.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		name, _, _ := net.SplitHostPort(addr)
		c := tls.Client(conn, &tls.Config{RootCAs: trust, ServerName: name, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+path+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion="+version, nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
		if err := request.Write(c); err != nil {
			return err
		}
		in := bufio.NewReaderSize(c, 32<<10)
		answer, err := http.ReadResponse(in, request) //nolint:bodyclose // its end closes the connection
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, answer.Status)
		}
		go func() { <-ctx.Done(); _ = c.Close() }()
		go func() {
			buffer := make([]byte, 32<<10)
			kept := 0
			for {
				n, err := answer.Body.Read(buffer[kept:])
				if err != nil {
					return
				}
				at := time.Now()
				size.Add(int64(n))
				kept = copy(buffer, changes(buffer[:kept+n], func(change int64) { got(change, at) }))
			}
		}()
	}
	return nil
}

// TestMeasure measures what a relay takes and adds (make bench-relay).
func TestMeasure(t *testing.T) {
	if os.Getenv(measureVariable) == "" {
		t.Skip("measures for minutes: runs only with " + measureVariable + "=1 (make bench-relay)")
	}
	b := newBench(t)
	pods := 200
	if text := os.Getenv(measureVariable + "_PODS"); text != "" {
		pods, _ = strconv.Atoi(text)
	}
	b.fill(pods)
	for _, text := range strings.Split(os.Getenv(measureVariable), ",") {
		agents, direct := strings.CutPrefix(text, "direct:")
		n, err := strconv.Atoi(agents)
		b.must(err)
		b.round(t, n, direct)
	}
}

// fill makes pods as large as real ones, which are about 3 kB.
func (b *bench) fill(pods int) {
	b.t.Helper()
	var wait sync.WaitGroup
	next := atomic.Int64{}
	for range 16 {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(pods); i = next.Add(1) {
				p := pod(fmt.Sprintf("pod-%d", i))
				p.Annotations = map[string]string{"config": strings.Repeat("x", 1500)}
				for j := range 10 {
					p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", j), Value: "a value of some length"})
				}
				if _, err := b.client.CoreV1().Pods("shop").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
					b.t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// round measures a number of agents while there are 100 changes a second.
func (b *bench) round(t *testing.T, agents int, direct bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	versions := map[string]string{}
	for path, list := range map[string]func() (string, error){
		"/api/v1/pods": func() (string, error) {
			l, err := b.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return l.ResourceVersion, err
		},
		"/api/v1/namespaces": func() (string, error) {
			l, err := b.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			return l.ResourceVersion, err
		},
		"/apis/networking.k8s.io/v1/networkpolicies": func() (string, error) {
			l, err := b.client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
			return l.ResourceVersion, err
		},
	} {
		version, err := list()
		b.must(err)
		versions[path] = version
	}
	apiAddr := strings.TrimPrefix(b.server.URL(), "https://")
	var reference atomic.Int64
	b.must(b.agent(ctx, apiAddr, b.config.BearerToken, b.apiCA, func(change int64, at time.Time) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen[change] = at
	}, &reference, versions))
	c := &crowd{}
	type arrival struct {
		change int64
		at     time.Time
	}
	received := make([][]arrival, agents)
	for i := range agents {
		received[i] = make([]arrival, 0, 2000)
		got := func(change int64, at time.Time) {
			c.events.Add(1)
			received[i] = append(received[i], arrival{change, at}) // only the watch of pods has changes
		}
		var err error
		if direct { // with HTTP/2 off: what is read is parsed by hand
			err = b.agent(ctx, apiAddr, b.config.BearerToken, b.apiCA, got, &c.bytes, versions)
		} else {
			err = b.agent(ctx, b.addr, b.token("weave-npc", audience), b.ca, got, &c.bytes, versions)
		}
		b.must(err)
	}
	time.Sleep(3 * time.Second)
	idle := cpu(t, b.relay.Process.Pid)
	time.Sleep(5 * time.Second)
	idle = cpu(t, b.relay.Process.Pid) - idle
	events, size, relayed, served, referred := c.events.Load(), c.bytes.Load(), cpu(t, b.relay.Process.Pid), cpu(t, b.apiPID), reference.Load()
	const length = 15 * time.Second
	changes := b.change(ctx, length)
	time.Sleep(500 * time.Millisecond)
	events, size = c.events.Load()-events, c.bytes.Load()-size
	relayed, served = cpu(t, b.relay.Process.Pid)-relayed, cpu(t, b.apiPID)-served
	cancel()
	time.Sleep(500 * time.Millisecond)
	b.mu.Lock()
	for _, r := range received {
		for _, a := range r {
			if first, ok := b.seen[a.change]; ok {
				c.late = append(c.late, a.at.Sub(first))
			}
		}
	}
	b.mu.Unlock()
	slices.Sort(c.late)
	quantile := func(q float64) time.Duration {
		return c.late[int(q*float64(len(c.late)-1))].Round(10 * time.Microsecond)
	}
	fmt.Printf("agents=%d direct=%t changes=%d deliveries=%d (of %d) relayCPU=%s idleCPU/s=%s CPU/delivery=%s agents/core@100=%.0f apiCPU=%s apiCPU/change=%s "+
		"bytes/agent/change=%d reference bytes/change=%d added p50=%s p99=%s max=%s relayRSS=%dMB apiRSS=%dMB\n", agents, direct, changes, events, changes*agents, relayed,
		idle/5, (relayed / time.Duration(max(events, 1))), float64(agents)*length.Seconds()/max(relayed.Seconds(), 0.001), served, served/time.Duration(changes),
		size/int64(agents*changes), (reference.Load()-referred)/int64(changes), quantile(0.5), quantile(0.99), quantile(1), resident(t, b.relay.Process.Pid), resident(t, b.apiPID))
}

// change changes the labels of pods, 100 times a second, and returns how often.
func (b *bench) change(ctx context.Context, length time.Duration) int {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	n := 0
	var wait sync.WaitGroup
	defer wait.Wait()
	for end := time.After(length); ; {
		select {
		case <-end:
			return n
		case <-ticker.C:
			n++
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":"%s%d"}}}`, marker, time.Now().UnixNano())
			name := fmt.Sprintf("pod-%d", n%100+1)
			wait.Go(func() {
				_, err := b.client.CoreV1().Pods("shop").Patch(ctx, name, "application/merge-patch+json", patch, metav1.PatchOptions{})
				if err != nil {
					b.t.Error(err)
				}
			})
		}
	}
}
