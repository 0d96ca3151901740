package enforce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/lab"
)

// load are flows that are opened one after the other, each from the start, and what became of them.
type load struct {
	cancel  func()
	done    sync.WaitGroup
	harness *harness
	flows   atomic.Int64
	mu      sync.Mutex
	wrong   []string
}

// loadFlow is a flow to open again and again.
type loadFlow struct {
	from, to string
	proto    string
	port     uint16
	family   int
	denied   bool
}

// String names the flow.
func (f loadFlow) String() string {
	sign := "+"
	if f.denied {
		sign = "-"
	}
	return fmt.Sprintf("%s%s>%s %s %d /%d", sign, f.from, f.to, f.proto, f.port, f.family)
}

// load opens flows of both families: "db>web udp 53" must arrive and be answered, "-mon>web tcp 80" must not arrive. A
// flow is a verdict of type wants, between two hosts, with a question behind it; "+" is left out. What must arrive has
// to be of a protocol that sends nothing twice, or a loss would not show.
func (w *harness) load(t *testing.T, flows ...string) *load {
	t.Helper()
	var all []loadFlow
	for _, text := range flows {
		fields := strings.Fields(text)
		var f loadFlow
		fields[0], f.denied = strings.CutPrefix(fields[0], "-")
		f.from, f.to, _ = strings.Cut(fields[0], ">")
		f.proto = fields[1]
		if len(fields) > 2 {
			port, err := strconv.Atoi(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			f.port = uint16(port)
		}
		families(func(family int) {
			f.family = family
			all = append(all, f)
		})
	}
	return w.open(t, all)
}

func (w *harness) open(t *testing.T, flows []loadFlow) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, harness: w}
	t.Cleanup(func() {
		cancel()
		l.done.Wait()
	})
	for _, f := range flows {
		p := lab.Packet{Proto: f.proto, To: w.hosts[f.to].Addr(f.family), Port: f.port, Timeout: 5 * time.Second}
		if f.denied {
			p.Timeout = 60 * time.Millisecond
		}
		from := w.hosts[f.from]
		l.done.Go(func() { l.run(ctx, f, from, p) })
	}
	return l
}

func (l *load) run(ctx context.Context, f loadFlow, from *lab.Host, p lab.Packet) {
	for ctx.Err() == nil {
		if p.Proto == "udp" {
			p.FromPort = from.FreshPort()
		}
		verdict, err := from.Probe(ctx, p)
		if ctx.Err() != nil {
			return
		}
		l.flows.Add(1)
		if err != nil || verdict.Reached() == f.denied {
			l.mu.Lock()
			now := time.Now().UTC().Format("15:04:05.000")
			l.wrong = append(l.wrong, fmt.Sprintf("%s %s to %s: %s %v", now, f, p.To, verdict, err))
			l.mu.Unlock()
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stop ends the flows and fails the test if any of them was wrong. It returns how often one was opened.
func (l *load) stop(t *testing.T) int64 {
	t.Helper()
	l.cancel()
	l.done.Wait()
	t.Logf("%d flows", l.flows.Load())
	if len(l.wrong) > 0 {
		t.Errorf("%d flows had the wrong verdict:\n%s\n%s", len(l.wrong), strings.Join(l.wrong[:min(20, len(l.wrong))], "\n"),
			l.harness.state())
	}
	return l.flows.Load()
}

// churn changes what the flows of TestS62 and TestS63 do not depend on: both versions allow, or deny, the same of them.
func churn(i int) change {
	return do(
		policy(fmt.Sprintf("shop/extra-%d", i), `
podSelector: {matchLabels: {app: api}}
policyTypes: [Egress]
egress: [{}]`),
		policy("shop/p", fmt.Sprintf(`
podSelector: {matchExpressions: [{key: app, operator: In, values: [web, w%d]}]}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, d%d]}]}}]
- from: [{ipBlock: {cidr: 192.0.0.0/%d}}, {ipBlock: {cidr: "2001:db8::/%d"}}]
egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a, z%d]}]}}]}]`,
			i, i, 8+i%16, 32+i%16, i)))
}

func TestS62_EditsCutNothingAndOpenNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		load := w.load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"-mon>web udp 53", "-mon>web tcp 80", "-web>out udp 53", "-copy>web icmp", "-db>copy tcp 80", "-api>mon udp 53")
		for i := range 12 {
			o := w.objects(rich())
			if i%3 != 2 {
				churn(i)(w, o)
			}
			w.apply(t, o)
		}
		load.stop(t)
	})
}

func TestS63_KilledAndStartedAgainTenTimes(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		load := w.load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"copy>mon udp 53",
			"-mon>web udp 53", "-mon>web tcp 80", "-web>out udp 53", "-copy>web icmp", "-db>copy tcp 80", "-api>mon udp 53")
		for i := range 10 {
			o := w.objects(rich())
			for range i % 3 {
				churn(i)(w, o)
			}
			w.source.write(t, o)
			time.Sleep(rand.N(150 * time.Millisecond))
			for _, d := range w.daemons {
				d.kill(t)
			}
			time.Sleep(rand.N(50 * time.Millisecond))
			for _, d := range w.daemons {
				d.start(t)
			}
			if i%2 == 0 {
				for _, d := range w.daemons {
					d.awaitReady(t)
				}
			}
		}
		for _, d := range w.daemons {
			d.awaitReady(t)
		}
		if n := load.stop(t); n < 1000 {
			t.Errorf("only %d flows were opened", n)
		}
		w.apply(t, w.objects(rich()))
		w.expect(t, richWants())
	})
}
