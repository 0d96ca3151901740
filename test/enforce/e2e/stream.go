package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

const (
	// StreamPort is the UDP port of the flows that are opened while weave-npc is killed.
	StreamPort = 7
	// StreamRate is how many of them are opened a second.
	StreamRate = 1000
)

// betweenMessages is how long a slow weave-npc waits before each message to the kernel: what is between two of them is
// seen by packets.
const betweenMessages = 4 * time.Millisecond

// StartSlow makes a cluster with slow daemons and manifests.
func StartSlow(t *testing.T, backend lab.Backend) *Cluster {
	t.Helper()
	w := New(t, backend, lab.Config{})
	m := w.FromManifests(t, Base())
	for i, n := range w.Nodes() {
		d := NewDaemon(n, w.DaemonArgs(i, "--manifests", m.Dir)...)
		d.StartBy(t, func(cmd *lab.Cmd) error {
			return cmd.StartIntercepted(func(c lab.Call) {
				if c.Process == "weave-npc" && (c.Number == unix.SYS_SENDTO || c.Number == unix.SYS_SENDMSG) {
					time.Sleep(betweenMessages)
				}
			})
		})
		d.EndWith(t)
		w.Daemons = append(w.Daemons, d)
	}
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
	return w
}

// Includes fails the test if a flow is missing that it is about.
func (w *Cluster) Includes(t *testing.T, flows []lab.StreamFlow, verdicts string) {
	t.Helper()
	for _, v := range strings.Fields(verdicts) {
		from, to, _ := strings.Cut(v[1:], ">")
		if !slices.ContainsFunc(flows, func(s lab.StreamFlow) bool {
			return s.Denied == (v[0] == '-') && s.From == w.Hosts[from] && s.To == w.Hosts[to]
		}) {
			t.Errorf("no flow is %s in both states", v)
		}
	}
}

// Finish ends a stream, and fails the test if any of its flows was wrong.
func (w *Cluster) Finish(t *testing.T, stream *lab.Stream, flows []lab.StreamFlow) {
	t.Helper()
	stream.Round(t.Context())
	result, err := stream.Close()
	if err != nil {
		t.Fatal(err)
	}
	denied := 0
	for _, f := range flows {
		if f.Denied {
			denied++
		}
	}
	t.Logf("%d connections, of %d flows that are denied and %d that are allowed: %d wrong accepts, %d wrong drops",
		result.Opened, denied,
		len(flows)-denied, result.WrongAccepts, result.WrongDrops)
	if result.WrongAccepts+result.WrongDrops > 0 {
		t.Errorf("wrong:\n%s\n%s", strings.Join(result.Wrong, "\n"), w.State())
	}
}

// Streamed returns flows that both states deny in the same direction and, if they are asked for, some that both allow.
func (w *Cluster) Streamed(before, after refmodel.State, allowed bool) []lab.StreamFlow {
	var flows []lab.StreamFlow
	for _, from := range slices.Sorted(maps.Keys(w.Hosts)) {
		for _, to := range slices.Sorted(maps.Keys(w.Hosts)) {
			if !w.IsPod(from) && !w.IsPod(to) || w.Undecided(from, to) {
				continue
			}
			EachFamily(func(family int) {
				f := lab.StreamFlow{From: w.Hosts[from], To: w.Hosts[to], Family: family, Proto: "udp",
					Port: StreamPort}
				p := PacketOf(f.From.Addr(family), f.To.Addr(family), f.Proto, f.Port)
				out1, in1 := before.Evaluate(refmodel.Everywhere, p)
				out2, in2 := after.Evaluate(refmodel.Everywhere, p)
				f.Denied = !out1 && !out2 || !in1 && !in2
				if f.Denied || allowed && out1 && out2 && in1 && in2 {
					flows = append(flows, f)
				}
			})
		}
	}
	return flows
}
