package enforce

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/test/lab"
)

// wants states which packets arrive: question -> verdicts. "-*>web +db>web", as an answer to "tcp 80", means that no
// host reaches port 80 of web by TCP, except db. The grammar of both:
//
//	question = protocol [ port ] [ "/" family ]      "tcp 80", "icmp", "udp 53 /6"; both families are asked without one
//	verdicts = { verdict }                           separated by spaces; "" means that everything arrives
//	verdict  = ( "-" | "+" | "!" ) hosts ">" hosts   "-" does not arrive, "+" arrives, "!" does not arrive, even at a pod's own node
//	hosts    = name { "," name }                     "web,n2"
//	name     = host | "*" | "pods" | "nodes" | "shop" | "ops"
//
// Every pair of hosts begins as one that arrives, and the last verdict that names the pair counts. Hosts are those of
// the harness; "*" is all of them, "shop" and "ops" are the pods of these namespaces.
//
// Pairs that no policy can decide always arrive, and no verdict changes that: a host and itself, a node and its own
// pods, and two hosts that are no pods. A pod and its own node are such a pair as well, except for "!".
type wants map[string]string

const (
	// tcpTimeout is shorter than the first retransmission of a SYN, which would hide a loss.
	tcpTimeout    = 900 * time.Millisecond
	deniedTimeout = 200 * time.Millisecond
	// converged is the time within which verdicts must be as wanted, on a busy machine.
	converged = 20 * time.Second
	// quiescence is how long they must stay so.
	quiescence = 200 * time.Millisecond
)

// asking is how the packets of a matrix are sent.
type asking struct {
	one     int           // one in so many probes is sent, and the others are taken for as wanted
	atOnce  int           // keeps probes from slowing each other down until they time out
	allowed time.Duration // how long what must arrive may take
}

// calmly gives a busy machine time, so that late answers of the test's own servers are no failures. A test's last
// attempt asks this way.
func calmly() asking { return asking{one: 1, atOnce: 16, allowed: 10 * time.Second} }

// promptly is for all attempts except the last.
func promptly() asking { return asking{one: 1, atOnce: 128, allowed: 2 * time.Second} }

// question is one matrix with its wanted verdicts.
type question struct {
	lab.Question
	want lab.Matrix
}

// questions returns the matrices that wants asks for, one for each question and family.
func (w *harness) questions(t *testing.T, all wants) []question {
	t.Helper()
	var out []question
	for _, text := range slices.Sorted(maps.Keys(all)) {
		fields := strings.Fields(text)
		families := []int{4, 6}
		if last := fields[len(fields)-1]; strings.HasPrefix(last, "/") {
			families = []int{int(last[1] - '0')}
			fields = fields[:len(fields)-1]
		}
		var port int
		if len(fields) > 1 {
			var err error
			if port, err = strconv.Atoi(fields[1]); err != nil {
				t.Fatalf("question %q: %v", text, err)
			}
		}
		for _, family := range families {
			q := w.question(t, fields[0], uint16(port), family, all[text])
			if len(q.From) > 0 {
				out = append(out, q)
			}
		}
	}
	return out
}

func (w *harness) question(t *testing.T, proto string, port uint16, family int, verdicts string) question {
	t.Helper()
	q := question{Question: lab.Question{Proto: proto, Port: port, Family: family}}
	var names []string
	for _, name := range slices.SortedFunc(maps.Keys(w.hosts), w.compareHosts) {
		if h := w.hosts[name]; h.Addr(family).IsValid() {
			names = append(names, name)
			q.From, q.To = append(q.From, h), append(q.To, h)
		}
	}
	q.want = lab.Matrix{Title: q.String(), From: names, To: names}
	for _, from := range names {
		row := make([]bool, 0, len(names))
		for _, to := range names {
			row = append(row, w.verdict(t, verdicts, from, to))
		}
		q.want.Reached = append(q.want.Reached, row)
	}
	return q
}

// compareHosts puts pods first.
func (w *harness) compareHosts(a, b string) int {
	if pa, pb := w.isPod(a), w.isPod(b); pa != pb {
		if pa {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

func (w *harness) isPod(name string) bool { return w.nodeOf(w.hosts[name]) != nil }

// undecided reports whether a pair of hosts is one that no policy decides, see wants.
func (w *harness) undecided(from, to string) bool {
	return from == to || w.isOwnNode(from, to) || w.isOwnNode(to, from) || !w.isPod(from) && !w.isPod(to)
}

// isOwnNode reports whether a host is a pod's own node.
func (w *harness) isOwnNode(pod, node string) bool {
	n := w.nodeOf(w.hosts[pod])
	return n != nil && n.Host == w.hosts[node]
}

// verdict reports whether a pair arrives according to verdicts, see wants.
func (w *harness) verdict(t *testing.T, verdicts, from, to string) bool {
	t.Helper()
	arrives, undecided := true, w.undecided(from, to)
	for _, v := range strings.Fields(verdicts) {
		left, right, ok := strings.Cut(v[1:], ">")
		if !ok || !strings.ContainsAny(v[:1], "+-!") {
			t.Fatalf("%q is no verdict", v)
		}
		if w.named(t, left, from) && w.named(t, right, to) && (!undecided || v[0] != '-' && w.isOwnNode(from, to)) {
			arrives = v[0] == '+'
		}
	}
	return arrives
}

// named reports whether a list of names includes a host.
func (w *harness) named(t *testing.T, names, host string) bool {
	t.Helper()
	for _, name := range strings.Split(names, ",") {
		switch {
		case name == host || name == "*" || name == "pods" && w.isPod(host) ||
			name == "nodes" && strings.HasPrefix(host, "n") && !w.isPod(host):
			return true
		case name == "shop" || name == "ops":
			if _, ok := cast()[name+"/"+host]; ok {
				return true
			}
		case w.hosts[name] == nil && name != "pods" && name != "nodes":
			t.Fatalf("no host %q", name)
		}
	}
	return false
}

// expect asks until everything is as wanted and stays so.
func (w *harness) expect(t *testing.T, all wants) {
	t.Helper()
	w.expectAll(t, w.questions(t, all))
}

func (w *harness) expectAll(t *testing.T, questions []question) {
	t.Helper()
	start, before, calm := time.Now(), "", false
	for deadline, right := start.Add(converged), 0; right < 2; {
		round := time.Now()
		how := promptly()
		if right > 0 {
			how.one = 3 // a change that is still on its way would show in these as well
		}
		if calm = round.After(deadline); calm {
			how = calmly()
		}
		seen, err := w.ask(t.Context(), questions, how)
		if err != nil {
			t.Fatal(err)
		}
		wrong := ""
		for i, q := range questions {
			wrong += seen[i].Diff(q.want)
		}
		if wrong == "" {
			right++
			time.Sleep(time.Until(round.Add(quiescence)))
			continue
		}
		right = 0
		if calm {
			t.Fatalf("wrong (OK! must not arrive, --! must arrive):\n%s\n%s", wrong, w.state())
		}
		if wrong != before {
			t.Logf("%s after the step, not yet:\n%s", time.Since(start).Round(time.Millisecond), wrong)
		}
		before = wrong
		time.Sleep(20 * time.Millisecond)
	}
}

// ask asks all questions.
func (w *harness) ask(ctx context.Context, questions []question, how asking) ([]lab.Matrix, error) {
	turn := rand.IntN(how.one)
	seen := make([]lab.Matrix, len(questions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(how.atOnce)
	for i, q := range questions {
		seen[i] = lab.Matrix{Title: q.want.Title, From: q.want.From, To: q.want.To,
			Reached: make([][]bool, len(q.From))}
		for row, from := range q.From {
			reached := make([]bool, len(q.To))
			seen[i].Reached[row] = reached
			for column, to := range q.To {
				if from == to || w.undecided(q.want.From[row], q.want.To[column]) && !w.isPod(q.want.From[row]) &&
					!w.isPod(q.want.To[column]) {
					reached[column] = true // not worth a probe
					continue
				}
				if turn++; turn%how.one != 0 {
					reached[column] = q.want.Reached[row][column]
					continue
				}
				group.Go(func() (err error) {
					reached[column], err = w.probeOnce(ctx, q, from, to, q.want.Reached[row][column], how.allowed)
					return err
				})
			}
		}
	}
	return seen, group.Wait()
}

func (w *harness) probeOnce(ctx context.Context, q question, from, to *lab.Host, wanted bool, allowed time.Duration) (bool, error) {
	p := lab.Packet{Proto: q.Proto, To: to.Addr(q.Family), Port: q.Port, Timeout: deniedTimeout}
	switch {
	case wanted && q.Proto == "tcp":
		p.Timeout = tcpTimeout
	case wanted:
		p.Timeout = allowed
	}
	if q.Proto == "udp" {
		p.FromPort = from.FreshPort()
	}
	verdict, err := from.Probe(ctx, p)
	return verdict.Reached(), errors.Wrapf(err, "%s", q)
}

// state returns the rules and sets of the nodes, and the logs of their daemons.
func (w *harness) state() string {
	var b strings.Builder
	for _, n := range w.Nodes() {
		fmt.Fprintf(&b, "=== %s\n%s\n", n, lab.DumpFilter(n))
		if d := w.daemonOn(n); d != nil {
			fmt.Fprintf(&b, "%s\n", d.log)
		}
	}
	return b.String()
}
