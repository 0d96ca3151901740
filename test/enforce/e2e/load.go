package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// Load are flows that are opened one after the other, each from the start, and what became of them.
type Load struct {
	cancel  func()
	done    sync.WaitGroup
	cluster *Cluster
	flows   atomic.Int64
	mu      sync.Mutex // guards wrong
	wrong   []string
}

// LoadFlow is a flow to open again and again.
type LoadFlow struct {
	From, To string
	Proto    string
	Port     uint16
	Family   int
	Denied   bool
}

// String names the flow.
func (f LoadFlow) String() string {
	sign := "+"
	if f.Denied {
		sign = "-"
	}
	return fmt.Sprintf("%s%s>%s %s %d /%d", sign, f.From, f.To, f.Proto, f.Port, f.Family)
}

// Load opens flows of both families: "db>web udp 53" must arrive and be answered, "-mon>web tcp 80" must not arrive. A
// flow is a verdict of type Wants, between two hosts, with a question behind it; "+" is left out. What must arrive has
// to be of a protocol that sends nothing twice, or a loss would not show.
func (w *Cluster) Load(t *testing.T, flows ...string) *Load {
	t.Helper()
	var all []LoadFlow
	for _, text := range flows {
		fields := strings.Fields(text)
		var f LoadFlow
		fields[0], f.Denied = strings.CutPrefix(fields[0], "-")
		f.From, f.To, _ = strings.Cut(fields[0], ">")
		f.Proto = fields[1]
		if len(fields) > 2 {
			port, err := strconv.Atoi(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			f.Port = uint16(port)
		}
		EachFamily(func(family int) {
			f.Family = family
			all = append(all, f)
		})
	}
	return w.Open(t, all)
}

// Open opens flows, as Load does.
func (w *Cluster) Open(t *testing.T, flows []LoadFlow) *Load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &Load{cancel: cancel, cluster: w}
	t.Cleanup(func() {
		cancel()
		l.done.Wait()
	})
	for _, f := range flows {
		p := lab.Packet{Proto: f.Proto, To: w.Hosts[f.To].Addr(f.Family), Port: f.Port, Timeout: await.Scaled(5 * time.Second)}
		if f.Denied {
			p.Timeout = await.Scaled(60 * time.Millisecond)
		}
		from := w.Hosts[f.From]
		l.done.Go(func() { l.run(ctx, f, from, p) })
	}
	return l
}

func (l *Load) run(ctx context.Context, f LoadFlow, from *lab.Host, p lab.Packet) {
	for ctx.Err() == nil {
		if p.Proto == "udp" {
			p.FromPort = from.FreshPort()
		}
		verdict, err := from.Probe(ctx, p)
		if ctx.Err() != nil {
			return
		}
		l.flows.Add(1)
		if err != nil || verdict.Reached() == f.Denied {
			l.mu.Lock()
			now := time.Now().UTC().Format("15:04:05.000")
			l.wrong = append(l.wrong, fmt.Sprintf("%s %s to %s: %s %v", now, f, p.To, verdict, err))
			l.mu.Unlock()
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Stop ends the flows and fails the test if any of them was wrong. It returns how often one was opened.
func (l *Load) Stop(t *testing.T) int64 {
	t.Helper()
	l.cancel()
	l.done.Wait()
	t.Logf("%d flows", l.flows.Load())
	if len(l.wrong) > 0 {
		t.Errorf("%d flows had the wrong verdict:\n%s\n%s", len(l.wrong), strings.Join(l.wrong[:min(20, len(l.wrong))],
			"\n"),
			l.cluster.State())
	}
	return l.flows.Load()
}
