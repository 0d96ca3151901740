package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/test/await"
)

// Question asks which hosts of From reach which hosts of To.
type Question struct {
	From, To []*Host
	Proto    string // as in Packet
	Port     uint16
	Family   int           // 4 or 6: the first address of that family is tried
	Timeout  time.Duration // of one probe; 0 means DefaultTimeout
}

// String names what is sent.
func (q Question) String() string {
	if q.Proto == "icmp" {
		return fmt.Sprintf("icmp, IPv%d", q.Family)
	}
	return fmt.Sprintf("%s port %d, IPv%d", q.Proto, q.Port, q.Family)
}

// Matrix holds the answers to a question: which hosts reach which.
type Matrix struct {
	Title    string
	From, To []string
	Reached  [][]bool // [from][to]
}

// Everything expects every probe to arrive. It is an argument for Expect.
func Everything(_, _ *Host) bool { return true }

// Nothing expects no probe to arrive, except those of a host to itself, which never leave it.
func Nothing(from, to *Host) bool { return from == to }

// fill makes a matrix by asking f about every pair.
func (q Question) fill(f func(from, to *Host) bool) Matrix {
	m := Matrix{Title: q.String()}
	for _, to := range q.To {
		m.To = append(m.To, to.name)
	}
	for _, from := range q.From {
		m.From = append(m.From, from.name)
		row := make([]bool, len(q.To))
		for i, to := range q.To {
			row[i] = f(from, to)
		}
		m.Reached = append(m.Reached, row)
	}
	return m
}

// parallelProbes keeps the probes of a large matrix from slowing each other down until they time out.
const parallelProbes = 64

// Matrix probes all pairs in parallel.
func (w *Network) Matrix(ctx context.Context, q Question) (Matrix, error) {
	m := q.fill(func(_, _ *Host) bool { return false })
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelProbes)
	for i, from := range q.From {
		for j, to := range q.To {
			group.Go(func() error {
				addr := to.Addr(q.Family)
				if !addr.IsValid() {
					return errors.Errorf("host %s has no IPv%d address", to.name, q.Family)
				}
				verdict, err := from.Probe(ctx, Packet{Proto: q.Proto, To: addr, Port: q.Port, Timeout: q.Timeout})
				m.Reached[i][j] = verdict.Reached()
				return err
			})
		}
	}
	return m, group.Wait()
}

// String returns a table with a row for each sender and a column for each receiver.
func (m Matrix) String() string {
	return m.draw(func(i, j int) string {
		if m.Reached[i][j] {
			return "ok"
		}
		return "--"
	})
}

// Equal reports whether two matrices have the same verdicts for the same hosts.
func (m Matrix) Equal(other Matrix) bool { return m.String() == other.String() }

// Diff returns a table of the verdicts that marks the unwanted ones: "OK!" where a packet arrived and must not, "--!"
// where it must and did not. It is empty if there are none.
func (m Matrix) Diff(want Matrix) string {
	if m.Equal(want) {
		return ""
	}
	if strings.Join(m.From, "\n") != strings.Join(want.From, "\n") ||
		strings.Join(m.To, "\n") != strings.Join(want.To, "\n") || m.Title != want.Title {
		return fmt.Sprintf("not the same question; seen:\n%swanted:\n%s", m, want)
	}
	return m.draw(func(i, j int) string {
		return map[[2]bool]string{
			{true, true}: "ok", {false, false}: "--", {true, false}: "OK!", {false, true}: "--!",
		}[[2]bool{m.Reached[i][j], want.Reached[i][j]}]
	})
}

func (m Matrix) draw(cell func(i, j int) string) string {
	var b strings.Builder
	first := len("from \\ to")
	for _, name := range m.From {
		first = max(first, len(name))
	}
	fmt.Fprintf(&b, "%s\n%-*s", m.Title, first, "from \\ to")
	for _, name := range m.To {
		fmt.Fprintf(&b, "  %-3s", name)
	}
	for i, name := range m.From {
		fmt.Fprintf(&b, "\n%-*s", first, name)
		for j, to := range m.To {
			fmt.Fprintf(&b, "  %-*s", max(3, len(to)), cell(i, j))
		}
	}
	return trimLines(b.String()) + "\n"
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Expect asks until the matrix is as wanted twice in a row. If it is not within the given time, the error holds the
// matrix wanted, what is different, and what Config.Dump returns for every node.
func (w *Network) Expect(ctx context.Context, q Question, want func(from, to *Host) bool, within time.Duration) error {
	wanted := q.fill(want)
	deadline := time.Now().Add(await.Scaled(within))
	for matches := 0; ; {
		seen, err := w.Matrix(ctx, q)
		if err != nil {
			return errors.Wrapf(err, "asking for the matrix of %s", q)
		}
		if seen.Equal(wanted) {
			if matches++; matches == 2 {
				return nil
			}
			continue
		}
		matches = 0
		if time.Now().After(deadline) {
			return errors.Errorf("wanted, within %s:\n%s\nseen:\n%s\n%s", within, wanted, seen.Diff(wanted), w.dump())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *Network) dump() string {
	var b strings.Builder
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "=== %s\n%s\n", n.name, w.config.Dump(n))
	}
	return b.String()
}

// DumpFilter returns a node's filter tables of both families and backends, unless they are empty, and its ipsets.
func DumpFilter(n *Node) string {
	var b strings.Builder
	for _, args := range [][]string{
		{"iptables-nft-save", "-c", "-t", "filter"},
		{"ip6tables-nft-save", "-c", "-t", "filter"},
		{"iptables-legacy-save", "-c", "-t", "filter"},
		{"ip6tables-legacy-save", "-c", "-t", "filter"},
		{"ipset", "save"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), await.Scaled(10*time.Second))
		output, err := n.Command(ctx, args[0], args[1:]...).CombinedOutput()
		cancel()
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", args[0], err)
		}
		if strings.Contains(string(output), "\n-A") || strings.Contains(string(output), "-A ") ||
			strings.Contains(string(output), "create ") {
			b.Write(output)
		}
	}
	return b.String()
}
