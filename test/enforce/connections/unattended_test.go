package connections

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS115_APodThatBeginsWhileWeaveNPCIsDead is closed after five seconds. What it opened and accepted before ends once
// its pod is known and policies deny it, and stays so over another restart. Known pods keep what they have, what an edit
// of policies denies too.
func TestS115_APodThatBeginsWhileWeaveNPCIsDead(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
			t.Run(name, func(t *testing.T) {
				const spec = `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]}`
				before := e2e.Do(e2e.Base(), e2e.Policy("shop/late", spec))
				w := e2e.Start(t, backend, before)
				started := time.Now()
				kept := connect(t, w, "out", "web", 4)
				for _, name := range []string{"node1", "node2"} {
					e2e.Serve(t, w.AddPod(t, name, "late"+name[4:], lab.PodConfig{}).Host)
				}
				time.Sleep(time.Until(started.Add(6 * time.Second)))
				w.Expect(t, e2e.Wants{"tcp 80": ""})
				for _, d := range w.Daemons {
					d.Signal(t, end)
				}
				dead := time.Now()
				var denied, allowed []e2e.Line
				e2e.EachFamily(func(family int) {
					denied = append(denied, connect(t, w, "out", "late1", family), connect(t, w, "late1", "api", family),
						connect(t, w, "late2", "copy", family))
					allowed = append(allowed, connect(t, w, "late1", "db", family), connect(t, w, "late2", "db", family))
				})
				time.Sleep(time.Until(dead.Add(6 * time.Second)))
				closed := "-late1,late2>* -*>late1,late2"
				w.Expect(t, e2e.Wants{"tcp 80": closed, "udp 53": closed})
				talk(t, "before it is known", append(allowed, append(denied, kept)...))

				after := e2e.Do(before, e2e.Pod("shop/late1", e2e.Labelled("app=late")), e2e.Pod("shop/late2", e2e.Labelled("app=late")),
					e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`))
				w.Source.Write(t, w.Objects(after))
				time.Sleep(300 * time.Millisecond) // manifests that are younger are not read yet
				stream := attempts(t, w)
				for turn := range 2 {
					for _, d := range w.Daemons {
						d.Start(t)
					}
					for _, d := range w.Daemons {
						d.AwaitReady(t)
					}
					if turn == 0 {
						never(t, stream)
					}
					awaitMarked(t, w, 0x2000, len(denied))
					for i, l := range denied {
						if i%2 == turn { // the others have had no reset that would end them anyway
							silent(t, w, i, l)
						}
					}
					talk(t, "allowed", append(allowed, kept))
					for _, d := range w.Daemons {
						d.Signal(t, end)
					}
				}
				for _, d := range w.Daemons {
					d.Start(t)
				}
				w.Expect(t, e2e.Wants{"tcp 80": "-late1,late2>* -*>late1,late2 +late1,late2>db -*>web"})
			})
		}
	})
}

// attempts has connections tried all the time that pods which are not known yet must neither open nor accept.
func attempts(t *testing.T, w *e2e.Cluster) *lab.Stream {
	t.Helper()
	var flows []lab.StreamFlow
	e2e.EachFamily(func(family int) {
		for _, ends := range [][2]string{{"out", "late1"}, {"late1", "api"}, {"late1", "web"}, {"out", "late2"}, {"late2", "out"}} {
			flows = append(flows, lab.StreamFlow{From: w.Hosts[ends[0]], To: w.Hosts[ends[1]], Family: family, Proto: "udp",
				Port: e2e.StreamPort, Denied: true})
		}
	})
	stream, err := lab.NewStream(e2e.StreamRate, flows)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// never ends a stream, and fails if one of its flows arrived.
func never(t *testing.T, stream *lab.Stream) {
	t.Helper()
	r, err := stream.Close()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Wrong) > 0 || r.Opened == 0 {
		t.Errorf("%d were tried:\n%s", r.Opened, strings.Join(r.Wrong, "\n"))
	}
}

// talk fails unless both ends of connections hear each other.
func talk(t *testing.T, about string, lines []e2e.Line) {
	t.Helper()
	for i, l := range lines {
		if got, err := l.Say(l.Client, l.Server, e2e.Converged); got != "hello" {
			t.Errorf("%s: connection %d: got %q, %v", about, i, got, err)
		}
	}
}

// silent waits until the server of a connection hears no more of the client.
func silent(t *testing.T, w *e2e.Cluster, number int, l e2e.Line) {
	t.Helper()
	for end := time.Now().Add(e2e.Converged); ; {
		got, _ := l.Say(l.Client, l.Server, e2e.Shortly)
		if got == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("connection %d goes on\n%s", number, w.State())
		}
	}
}
