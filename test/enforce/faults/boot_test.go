package faults

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS59_ABootingNodeIsClosedBeforeTheAPIServerIsReached starts weave-npc on a node that has no pods yet. When the API
// server is asked for the first time, a new pod, whose object is not read yet, can neither reach nor be reached. The
// same holds when weave-npc was killed before, at any step.
func TestS59_ABootingNodeIsClosedBeforeTheAPIServerIsReached(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		random, _ := killPlan(t)
		for _, flag := range []string{"pod-interface", "pod-cidr"} {
			t.Run(flag, func(t *testing.T) {
				b := newBooting(t, backend, "--"+flag)
				b.newPod(t, false)
				calls := b.boot(t, 0)
				const kills = 5
				for turn := range kills {
					clean(t, b.Cluster)
					b.boot(t, spread(random, []int{calls}, turn, kills)[0])
				}
				b.readAll(t)
				b.newPod(t, false)
			})
		}
	})
}

// booting is a network with one node that has no pods, and an API server that answers nothing.
type booting struct {
	*e2e.Cluster
	server netip.AddrPort
	starts atomic.Int32
	asked  atomic.Int32 // the last start that asked the API server
}

func newBooting(t *testing.T, backend lab.Backend, flag string) *booting {
	t.Helper()
	l, err := lab.New(lab.Config{Nodes: 1, IPv4: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n := l.Node("node1")
	b := &booting{Cluster: &e2e.Cluster{Network: l, Backend: backend,
		Hosts: map[string]*lab.Host{"n1": n.Host, "out": l.Outside()}, Places: map[*lab.Host]*lab.Node{}, Veths: map[string]string{}}}
	value := n.PodInterface()
	if flag == "--pod-cidr" {
		value = e2e.Ranges(n)
	}
	b.serveAPI(t)
	d := killable(t, n, "--iptables-backend", string(backend), flag, value, "--kubeconfig",
		filepath.Join(l.Dir(), "kubeconfig"))
	d.Log.Expect("API server does not answer|this node is not known|watch error|watch is broken|fail-closed filter closed for long")
	b.Daemons = []*e2e.Daemon{d}
	return b
}

// serveAPI starts the API server, outside the cluster.
func (b *booting) serveAPI(t *testing.T) {
	t.Helper()
	var listener net.Listener
	if err := b.Hosts["out"].Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(b.Hosts["out"].Addr4(), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.server = listener.Addr().(*net.TCPAddr).AddrPort()
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var start int32
		if _, err := fmt.Sscanf(r.URL.Path, "/%d/", &start); err == nil {
			b.asked.Store(start)
		}
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(listener) }() // it ends by being closed
	t.Cleanup(func() { _ = server.Close() })
}

// start starts weave-npc, with a path of its own to the API server.
func (b *booting) start(t *testing.T, at int) *fault {
	t.Helper()
	e2e.WriteFile(t, filepath.Join(b.Dir(), "kubeconfig"), fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s/%d"}}]
contexts: [{name: c, context: {cluster: c, user: ""}}]
current-context: c
`, b.server, b.starts.Add(1)))
	return startFaulty(t, b.Daemons[0], withAll, at)
}

// wasAsked reports whether the weave-npc that was started last has asked the API server.
func (b *booting) wasAsked() bool { return b.asked.Load() == b.starts.Load() }

// boot starts weave-npc, kills it at a call and starts it again, if that is asked for, and looks at what a new pod can
// do when the API server is asked. It returns how many calls were made up to then.
func (b *booting) boot(t *testing.T, at int) (calls int) {
	t.Helper()
	if at > 0 {
		f := b.start(t, at)
		b.await(t, func() bool { return f.isDead() || b.wasAsked() }, "does nothing")
		f.killNow()
		t.Logf("killed before call %d: %s", f.count(), f.point())
	}
	f := b.start(t, 0)
	b.await(t, b.wasAsked, "does not ask the API server")
	calls = f.count()
	b.newPod(t, true)
	f.killNow()
	return calls
}

func (b *booting) await(t *testing.T, answer func() bool, otherwise string) {
	t.Helper()
	d := b.Daemons[0]
	await.Within(t, e2e.Timeout, answer, func() string { return fmt.Sprintf("weave-npc %s\n%s", otherwise, d.Log) })
}

// newPod attaches a pod for a moment, and expects that all of its packets are dropped, or none.
func (b *booting) newPod(t *testing.T, closed bool) {
	t.Helper()
	pod := b.AddPod(t, "node1", "new", lab.PodConfig{})
	out := b.Hosts["out"]
	var flows []lab.StreamFlow
	e2e.EachFamily(func(family int) {
		for _, proto := range []string{"udp", "icmp"} {
			in := lab.StreamFlow{From: out, To: pod.Host, Family: family, Proto: proto, Denied: closed}
			if proto == "udp" {
				in.Port = e2e.StreamPort
			}
			outwards := in
			outwards.From, outwards.To = in.To, in.From
			flows = append(flows, in, outwards)
		}
	})
	stream, err := lab.NewStream(e2e.StreamRate, flows)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		stream.Round(t.Context())
	}
	r, err := stream.Close()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Wrong) > 0 {
		t.Errorf("a new pod, which must be closed (%t):\n%s\n%s", closed, strings.Join(r.Wrong, "\n"), b.State())
	}
	b.ClosePod(t, pod)
}

// readAll starts weave-npc once more, with a cluster without objects, so that it has read all of them, and waits until the
// kernel has no fail-closed filter: weave-npc is ready before.
func (b *booting) readAll(t *testing.T) {
	t.Helper()
	d := b.Daemons[0]
	dir := e2e.NewManifests(t, b.Cluster).Dir
	e2e.WriteNode(t, dir, d.Node.Name())
	d.Args = append(slices.Clone(d.Args[:len(d.Args)-2]), "--manifests", dir)
	d.Start(t)
	d.AwaitReady(t)
	closed := func() bool {
		return strings.Contains(e2e.Run(t, d.Node.Host, "ipset", "save"), "\nadd weave-fail-closed-")
	}
	await.Within(t, e2e.Converged, func() bool { return !closed() },
		func() string { return "the fail-closed filter stays closed\n" + b.State() })
}
