package wire

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS104_NothingHonestIsLost opens flows between pods while others come and go, one of them past an ifb device, and
// weave-npc is killed, ended and started again. Protocols that send nothing twice lose not one packet.
// $WEAVE_NPC_TEST_PODS is how many pods come and go; 300 take minutes, and -parallel 1: all nodes share the kernel's
// table of neighbours.
func TestS104_NothingHonestIsLost(t *testing.T) {
	pods := 20
	if text := os.Getenv("WEAVE_NPC_TEST_PODS"); text != "" {
		var err error
		if pods, err = strconv.Atoi(text); err != nil {
			t.Fatalf("$WEAVE_NPC_TEST_PODS: %v", err)
		}
	}
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				t.Parallel()
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				limit(t, w, "db")
				state := e2e.Do(e2e.Base(), e2e.Policy("shop/p", e2e.DBToWeb))
				w.Begin(t, state)
				for _, d := range w.Daemons {
					d.AwaitOpen(t)
				}
				flows := honestFlows(w)
				stream, err := lab.NewStream(e2e.StreamRate, flows)
				if err != nil {
					t.Fatal(err)
				}
				comeAndGo(t, w, pods, stream)
				for stream.Opened() < 10_000 && t.Context().Err() == nil {
					stream.Round(t.Context())
				}
				w.Finish(t, stream, flows)
			})
		}
	})
}

// honestFlows returns flows past a bridge, by the node, to another node and to hosts outside, in both directions.
func honestFlows(w *e2e.Cluster) (flows []lab.StreamFlow) {
	for _, ends := range [][2]string{{"db", "web"}, {"db", "mon"}, {"db", "out"}, {"mon", "db"}, {"api", "db"}, {"web", "api"},
		{"out", "db"}, {"n1", "db"}} {
		e2e.EachFamily(func(family int) {
			for _, proto := range []string{"udp", "icmp"} {
				flows = append(flows, lab.StreamFlow{From: w.Hosts[ends[0]], To: w.Hosts[ends[1]], Family: family, Proto: proto,
					Port: e2e.StreamPort})
			}
		})
	}
	return flows
}

// limit has what a pod sends pass an ifb device, as the bandwidth plugin of CNI does.
func limit(t *testing.T, w *e2e.Cluster, pod string) {
	t.Helper()
	node, veth := w.NodeOf(w.Hosts[pod]).Host, w.Veths[pod]
	e2e.Run(t, node, "ip", "link", "add", "bwp", "up", "type", "ifb")
	e2e.Run(t, node, "tc", "qdisc", "add", "dev", veth, "ingress")
	e2e.Run(t, node, "tc", "filter", "add", "dev", veth, "parent", "ffff:", "protocol", "all", "u32", "match", "u32", "0", "0",
		"action", "mirred", "egress", "redirect", "dev", "bwp")
	e2e.Run(t, node, "tc", "qdisc", "add", "dev", "bwp", "root", "tbf", "rate", "1gbit", "burst", "1mb", "latency", "50ms")
}

// comeAndGo has pods come and go, and their first packets arrive, while weave-npc is killed and ended in between.
func comeAndGo(t *testing.T, w *e2e.Cluster, pods int, stream *lab.Stream) {
	t.Helper()
	for i := range pods {
		name := fmt.Sprintf("late%d", i)
		p := w.AddPod(t, "node1", name, lab.PodConfig{})
		e2e.Serve(t, p.Host)
		firstDatagrams(t, w, name)
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p", e2e.DBToWeb),
			e2e.Pod("shop/"+name, e2e.On("node1"), e2e.At(name), e2e.Phase(corev1.PodRunning)))))
		firstDatagrams(t, w, name)
		switch i % 10 {
		case 3:
			w.Daemons[0].Kill(t)
			restart(t, w.Daemons[0])
		case 6:
			w.Daemons[0].Signal(t, syscall.SIGTERM)
			stream.Round(t.Context())
			restart(t, w.Daemons[0])
		}
		w.ClosePod(t, p)
	}
}

// restart starts weave-npc again.
func restart(t *testing.T, d *e2e.Daemon) {
	t.Helper()
	d.Start(t)
	d.AwaitReady(t)
	d.AwaitOpen(t)
}

// firstDatagrams probes once what a pod sends to its own node's pods, to the other node and outside, and what is sent to
// it.
func firstDatagrams(t *testing.T, w *e2e.Cluster, pod string) {
	t.Helper()
	e2e.EachFamily(func(family int) {
		for _, to := range []string{"db", "api", "out"} {
			w.Probe(t, pod, lab.Packet{Proto: "icmp", To: w.Hosts[to].Addr(family)}, lab.Allowed)
		}
		for _, from := range []string{"db", "mon", "out"} {
			w.Probe(t, from, lab.Packet{Proto: "udp", To: w.Hosts[pod].Addr(family), Port: 53}, lab.Allowed)
		}
	})
}
