package e2e

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

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// Wants states which packets arrive: question -> verdicts. "-*>web +db>web", as an answer to "tcp 80", means that no
// host reaches port 80 of web by TCP, except db. The grammar of both:
//
//	question = protocol [ port ] [ "/" family ]      "tcp 80", "icmp", "udp 53 /6"; both families are asked without one
//	verdicts = { verdict }                           separated by spaces; "" means that everything arrives
//	verdict  = ( "-" | "+" | "!" ) hosts ">" hosts   "-" does not arrive, "+" arrives, "!" does not arrive, even at a pod's own node
//	hosts    = name { "," name }                     "web,n2"
//	name     = host | "*" | "pods" | "nodes" | "shop" | "ops"
//
// Every pair of hosts begins as one that arrives, and the last verdict that names the pair counts. Hosts are those of
// the cluster; "*" is all of them, "shop" and "ops" are the pods of these namespaces.
//
// Pairs that no policy can decide always arrive, and no verdict changes that: a host and itself, a node and its own
// pods, and two hosts that are no pods. A pod and its own node are such a pair as well, except for "!".
type Wants map[string]string

var (
	// tcpTimeout is shorter than the first retransmission of a SYN, which would hide a loss (not on a slow machine).
	tcpTimeout = await.Scaled(900 * time.Millisecond)
	// DeniedTimeout is how long a packet is waited for that must not arrive.
	DeniedTimeout = await.Scaled(200 * time.Millisecond)
	// Converged is the time within which verdicts must be as wanted, on a busy machine.
	Converged = await.Scaled(20 * time.Second)
	// Quiescence is how long they must stay so.
	Quiescence = await.Scaled(200 * time.Millisecond)
)

// Asking is how the packets of a matrix are sent.
type Asking struct {
	one     int           // one in so many probes is sent, and the others are taken for as wanted
	atOnce  int           // keeps probes from slowing each other down until they time out
	allowed time.Duration // how long what must arrive may take
}

// calmly gives a busy machine time, so that late answers of the test's own servers are no failures. A test's last
// attempt asks this way.
func calmly() Asking { return Asking{one: 1, atOnce: 16, allowed: await.Scaled(10 * time.Second)} }

// Promptly is for all attempts except the last.
func Promptly() Asking { return Asking{one: 1, atOnce: 128, allowed: await.Scaled(2 * time.Second)} }

// Question is one matrix with its wanted verdicts.
type Question struct {
	lab.Question
	Want lab.Matrix
}

// Questions returns the matrices that Wants asks for, one for each question and family.
func (w *Cluster) Questions(t *testing.T, all Wants) []Question {
	t.Helper()
	var out []Question
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
			q := w.Question(t, fields[0], uint16(port), family, all[text])
			if len(q.From) > 0 {
				out = append(out, q)
			}
		}
	}
	return out
}

// Question returns the matrix that a protocol, port and family ask for, with the verdicts of a text.
func (w *Cluster) Question(t *testing.T, proto string, port uint16, family int, verdicts string) Question {
	t.Helper()
	q := Question{Question: lab.Question{Proto: proto, Port: port, Family: family}}
	var names []string
	for _, name := range slices.SortedFunc(maps.Keys(w.Hosts), w.compareHosts) {
		if h := w.Hosts[name]; h.Addr(family).IsValid() {
			names = append(names, name)
			q.From, q.To = append(q.From, h), append(q.To, h)
		}
	}
	q.Want = lab.Matrix{Title: q.String(), From: names, To: names}
	for _, from := range names {
		row := make([]bool, 0, len(names))
		for _, to := range names {
			row = append(row, w.Verdict(t, verdicts, from, to))
		}
		q.Want.Reached = append(q.Want.Reached, row)
	}
	return q
}

// compareHosts puts pods first.
func (w *Cluster) compareHosts(a, b string) int {
	if pa, pb := w.IsPod(a), w.IsPod(b); pa != pb {
		if pa {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

// IsPod reports whether a host is a pod.
func (w *Cluster) IsPod(name string) bool { return w.NodeOf(w.Hosts[name]) != nil }

// Undecided reports whether a pair of hosts is one that no policy decides, see Wants.
func (w *Cluster) Undecided(from, to string) bool {
	return from == to || w.IsOwnNode(from, to) || w.IsOwnNode(to, from) || !w.IsPod(from) && !w.IsPod(to)
}

// IsOwnNode reports whether a host is a pod's own node.
func (w *Cluster) IsOwnNode(pod, node string) bool {
	n := w.NodeOf(w.Hosts[pod])
	return n != nil && n.Host == w.Hosts[node]
}

// Verdict reports whether a pair arrives according to verdicts, see Wants.
func (w *Cluster) Verdict(t *testing.T, verdicts, from, to string) bool {
	t.Helper()
	arrives, undecided := true, w.Undecided(from, to)
	for _, v := range strings.Fields(verdicts) {
		left, right, ok := strings.Cut(v[1:], ">")
		if !ok || !strings.ContainsAny(v[:1], "+-!") {
			t.Fatalf("%q is no verdict", v)
		}
		if w.Named(t, left, from) && w.Named(t, right, to) && (!undecided || v[0] != '-' && w.IsOwnNode(from, to)) {
			arrives = v[0] == '+'
		}
	}
	return arrives
}

// Named reports whether a list of names includes a host.
func (w *Cluster) Named(t *testing.T, names, host string) bool {
	t.Helper()
	for _, name := range strings.Split(names, ",") {
		switch {
		case name == host || name == "*" || name == "pods" && w.IsPod(host) ||
			name == "nodes" && strings.HasPrefix(host, "n") && !w.IsPod(host):
			return true
		case name == "shop" || name == "ops":
			if _, ok := cast()[name+"/"+host]; ok {
				return true
			}
		case w.Hosts[name] == nil && name != "pods" && name != "nodes":
			t.Fatalf("no host %q", name)
		}
	}
	return false
}

// Expect asks until everything is as wanted and stays so.
func (w *Cluster) Expect(t *testing.T, all Wants) {
	t.Helper()
	w.ExpectAll(t, w.Questions(t, all))
}

// ExpectAll asks until everything is as the questions want it, and stays so.
func (w *Cluster) ExpectAll(t *testing.T, questions []Question) {
	t.Helper()
	start, before, calm := time.Now(), "", false
	for deadline, right := start.Add(Converged), 0; right < 2; {
		round := time.Now()
		how := Promptly()
		if right > 0 {
			how.one = 3 // a change that is still on its way would show in these as well
		}
		if calm = round.After(deadline); calm {
			how = calmly()
		}
		seen, err := w.Ask(t.Context(), questions, how)
		if err != nil {
			t.Fatal(err)
		}
		wrong := ""
		for i, q := range questions {
			wrong += seen[i].Diff(q.Want)
		}
		if wrong == "" {
			right++
			time.Sleep(time.Until(round.Add(Quiescence)))
			continue
		}
		right = 0
		if calm {
			t.Fatalf("wrong (OK! must not arrive, --! must arrive):\n%s\n%s", wrong, w.State())
		}
		if wrong != before {
			t.Logf("%s after the step, not yet:\n%s", time.Since(start).Round(time.Millisecond), wrong)
		}
		before = wrong
		time.Sleep(20 * time.Millisecond)
	}
}

// Ask asks all questions.
func (w *Cluster) Ask(ctx context.Context, questions []Question, how Asking) ([]lab.Matrix, error) {
	turn := rand.IntN(how.one)
	seen := make([]lab.Matrix, len(questions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(how.atOnce)
	for i, q := range questions {
		seen[i] = lab.Matrix{Title: q.Want.Title, From: q.Want.From, To: q.Want.To,
			Reached: make([][]bool, len(q.From))}
		for row, from := range q.From {
			reached := make([]bool, len(q.To))
			seen[i].Reached[row] = reached
			for column, to := range q.To {
				if from == to || w.Undecided(q.Want.From[row], q.Want.To[column]) && !w.IsPod(q.Want.From[row]) &&
					!w.IsPod(q.Want.To[column]) {
					reached[column] = true // not worth a probe
					continue
				}
				if turn++; turn%how.one != 0 {
					reached[column] = q.Want.Reached[row][column]
					continue
				}
				group.Go(func() (err error) {
					reached[column], err = w.probeOnce(ctx, q, from, to, q.Want.Reached[row][column], how.allowed)
					return err
				})
			}
		}
	}
	return seen, group.Wait()
}

func (w *Cluster) probeOnce(ctx context.Context, q Question, from, to *lab.Host, wanted bool,
	allowed time.Duration) (bool, error) {
	p := lab.Packet{Proto: q.Proto, To: to.Addr(q.Family), Port: q.Port, Timeout: DeniedTimeout}
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

// State returns the rules and sets of the nodes, and the logs of their daemons.
func (w *Cluster) State() string {
	var b strings.Builder
	for _, n := range w.Nodes() {
		fmt.Fprintf(&b, "=== %s\n%s\n", n, lab.DumpFilter(n))
		if d := w.DaemonOn(n); d != nil {
			fmt.Fprintf(&b, "%s\n", d.Log)
		}
	}
	return b.String()
}

// EveryProtocol expects the same verdicts of TCP, UDP and ICMP.
func EveryProtocol(verdicts string) Wants {
	return Wants{"tcp 80": verdicts, "udp 53": verdicts, "icmp": verdicts}
}
