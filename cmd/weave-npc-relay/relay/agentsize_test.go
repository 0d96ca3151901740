package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/relay"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// loneVariable has this program be one agent, and holds where that reads.
const loneVariable = "WEAVE_NPC_TEST_RELAY_LONE"

// lone is where an agent reads that is a process of its own. It has no relay if there is no address.
type lone struct{ API, Address, CA, Token string }

// synthesized returns a cluster as those that benchmarks of weave-npc measure, with pods as large as Deployments make
// them.
func synthesized(c synthetic.Cluster) *stock {
	s := &stock{pods: c.Pods + c.Local, nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: synthetic.Node}}}}
	s.pod = func(i int) *corev1.Pod {
		p, facts := largePod(i), c.Pod(i)
		p.Namespace, p.Labels, p.Spec.NodeName = facts.Namespace, facts.Labels, facts.Node
		p.Status.PodIP = facts.Addrs[0].String()
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.HostIP = facts.HostAddrs[0].String()
		p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
		return p
	}
	version := strconv.Itoa(s.first())
	for i := range c.Namespaces {
		n := fixture.NamespaceObject(synthetic.Namespace(i))
		n.ResourceVersion = version
		s.namespaces = append(s.namespaces, *n)
	}
	for i := range c.Policies {
		p := c.Policy(i)
		p.ResourceVersion = version
		s.policies = append(s.policies, *p)
	}
	return s
}

// runLone runs an agent until its input ends, without a kernel. It writes how long it took until there was a whole
// plan, and, for each line that it reads, what its heap is in MB.
func runLone(text string) int {
	err := func() error {
		var c lone
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return err
		}
		log, start := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), time.Now()
		client, err := kubernetes.NewForConfig(&rest.Config{Host: c.API, QPS: -1,
			ContentConfig: rest.ContentConfig{ContentType: k8sruntime.ContentTypeProtobuf}})
		if err != nil {
			return err
		}
		s := source.FromAPI(client, nil, synthetic.Node)
		if c.Address != "" {
			r, err := relayclient.New(relayclient.Config{Address: c.Address, CA: c.CA, Token: c.Token,
				Jitter: time.Second, Version: "test", Log: log})
			if err != nil {
				return err
			}
			relayed, _, err := r.Client()
			if err != nil {
				return err
			}
			s.Through(r, relayed, nil)
		}
		m := controller.New(enforce.Config{NodeName: synthetic.Node})
		go func() { _ = s.Run(context.Background(), m, log) }()
		go func() {
			for reported := false; ; {
				<-m.Wake()
				if !m.Synced() {
					continue
				}
				for _, tx := range m.Planner().Plan(true, [2]dataplane.Known{}) {
					m.Planner().Commit(tx, tx.Taken())
				}
				m.Planner().CarriedOut()
				if !reported {
					fmt.Println(time.Since(start).Seconds())
				}
				for reported = true; m.Planner().Resume(); {
					for _, tx := range m.Planner().Plan(true, [2]dataplane.Known{}) {
						m.Planner().Commit(tx, tx.Taken())
					}
				}
			}
		}()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println(heap())
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// subject is an agent in a process of its own.
type subject struct {
	t     *testing.T
	pid   int
	in    io.WriteCloser
	lines *bufio.Scanner
	end   func()
}

func startLone(t *testing.T, c lone) *subject {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), loneVariable+"="+string(text))
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return &subject{t, command.Process.Pid, in, bufio.NewScanner(out), func() { _ = in.Close(); _ = command.Wait() }}
}

// number returns the next number that the agent writes.
func (s *subject) number() float64 {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatal("the agent ended")
	}
	n, err := strconv.ParseFloat(s.lines.Text(), 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// heap returns what the agent's heap is after a collection, in MB.
func (s *subject) heap() float64 {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		s.t.Fatal(err)
	}
	return s.number()
}

// peak returns how much memory the agent has had at most, in MB.
func (s *subject) peak() float64 {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		s.t.Fatal(err)
	}
	kb, _ := strconv.ParseFloat(string(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)[1]), 64)
	return kb / 1000
}

// relayOf starts a relay of a stock in this process, and waits until it answers a list of all pods. It counts the bytes
// that it sends.
func relayOf(t *testing.T, config *rest.Config) (*running, *atomic.Int64) {
	t.Helper()
	run, sent := &running{dir: t.TempDir()}, &atomic.Int64{}
	writeCertificate(t, run.dir)
	r, err := relay.New(relay.Config{API: config, CertFile: filepath.Join(run.dir, apiserver.ServerCertFile),
		KeyFile: filepath.Join(run.dir, apiserver.ServerKeyFile), AskKinds: time.Second,
		Tokens: auth.Config{Audience: audience, Accounts: []string{"kube-system:weave-npc"}}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	run.addr, run.metrics = listeners[0].Addr().String(), listeners[1].Addr().String()
	go func() { _ = r.Run(t.Context(), counted{listeners[0], sent}, listeners[1]) }()
	client := clientFor(t, run.agent("any"))
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err == nil {
			return run, sent
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestWhatAgentsTake compares an agent that reads from a relay with one that reads from an API server (make
// bench-relay).
func TestWhatAgentsTake(t *testing.T) {
	if os.Getenv(measureVariable) == "" {
		t.Skip("measures for minutes: runs only with " + measureVariable + "=1 (make bench-relay)")
	}
	sizes := synthetic.Sizes()
	c := sizes[len(sizes)-1]
	s := synthesized(c)
	var streamed bytes.Buffer
	s.stream(&streamed)
	s.streamed = streamed.Bytes()
	upstream, _ := s.serve(t)
	direct, fromAPI := s.serve(t)
	run, fromRelay := relayOf(t, upstream)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("any"), 0o600); err != nil {
		t.Fatal(err)
	}
	relayed := lone{API: upstream.Host, Address: run.addr, Token: token,
		CA: filepath.Join(run.dir, apiserver.AuthorityFile)}
	for _, m := range []struct {
		name string
		lone lone
		sent *atomic.Int64
	}{{"relay", relayed, fromRelay}, {"API server", lone{API: direct.Host}, fromAPI}} {
		time.Sleep(time.Second)
		before := m.sent.Load()
		a := startLone(t, m.lone)
		start := a.number()
		received, used, peak := m.sent.Load()-before, cpu(t, a.pid), a.peak()
		held := a.heap()
		before, cpuBefore := m.sent.Load(), cpu(t, a.pid)
		const changes, length = 500, 5 * time.Second
		for i := range changes {
			p := s.pod(i * 7919 % s.pods)
			p.Labels["version"] = fmt.Sprintf("changed-%d", len(s.events))
			s.change(p)
			time.Sleep(length / changes)
		}
		time.Sleep(time.Second)
		changed, spent := m.sent.Load()-before, cpu(t, a.pid)-cpuBefore
		fmt.Printf("%s: start %.2f s (CPU %s), %.2f MB received, heap %.0f MB, at most %.0f MB resident; "+
			"a change: %d bytes, CPU %s\n", m.name, start, used,
			float64(received)/1e6, held, peak, changed/changes, spent/changes)
		a.end()
	}
}
