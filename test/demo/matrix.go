package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/test/lab"
)

// verdict is what becomes of a connection.
type verdict byte

const (
	itself  verdict = iota // is not asked
	reaches                // is made, and the right server answers
	blocked                // is never answered
)

// target is a port of a host, a column of a matrix.
type target struct {
	host string
	port uint16
}

func (t target) String() string { return fmt.Sprintf("%s:%d", t.host, t.port) }

// pair is a cell of a matrix.
type pair struct {
	from string
	to   target
}

func (p pair) String() string { return p.from + " -> " + p.to.String() }

// matrix says who reaches whom. A pair that is not in it is a host and itself.
type matrix map[pair]verdict

// rows are the hosts that matrices ask from.
func rows() []string {
	var names []string
	for _, p := range pods() {
		names = append(names, p.String())
	}
	return append(names, outside)
}

// columns are the ports that matrices ask about.
func columns() []target {
	var targets []target
	for _, p := range pods() {
		for _, port := range p.ports {
			targets = append(targets, target{p.String(), port.number})
		}
	}
	return append(targets, target{outside, outsidePort})
}

// everybody is the matrix of a cluster without policies.
func everybody() matrix {
	m := matrix{}
	for _, from := range rows() {
		for _, to := range columns() {
			if from != to.host {
				m[pair{from, to}] = reaches
			}
		}
	}
	return m
}

// but is the matrix with one verdict changed.
func (m matrix) but(from, host string, port uint16, v verdict) matrix {
	changed := matrix{}
	for p, was := range m {
		changed[p] = was
	}
	changed[pair{from, target{host, port}}] = v
	return changed
}

// changes are the pairs that have another verdict in another matrix, row by row.
func (m matrix) changes(other matrix) []pair {
	var changed []pair
	for _, from := range rows() {
		for _, to := range columns() {
			if p := (pair{from, to}); m[p] != other[p] {
				changed = append(changed, p)
			}
		}
	}
	return changed
}

// families are the IP families that everything is asked in.
func families() []int { return []int{4, 6} }

// ask tries to connect.
func (c *cluster) ask(ctx context.Context, p pair, family int) (verdict, error) {
	packet := lab.Packet{Proto: "tcp", To: c.hosts[p.to.host].Addr(family), Port: p.to.port}
	saw, name, err := c.hosts[p.from].Ask(ctx, packet)
	switch {
	case err != nil:
		return blocked, err
	case saw == lab.Dropped:
		return blocked, nil
	case saw == lab.Allowed && (name == p.to.host || name == ""): // a slow server's name may come too late
		return reaches, nil
	}
	return blocked, errors.Errorf("%s by IPv%d: %s, answer %q; this is a fault of the demo's cluster", p, family, saw, name)
}

// askAll tries all connections at once.
func (c *cluster) askAll(ctx context.Context, family int) (matrix, error) {
	pairs := everybody()
	verdicts := make(chan func(matrix), len(pairs))
	group, ctx := errgroup.WithContext(ctx)
	for p := range pairs {
		group.Go(func() error {
			v, err := c.ask(ctx, p, family)
			verdicts <- func(m matrix) { m[p] = v }
			return err
		})
	}
	err := group.Wait()
	close(verdicts)
	m := matrix{}
	for set := range verdicts {
		set(m)
	}
	return m, err
}

// patience is how long a matrix may take to become the expected one. It is long for the sake of machines that are busy.
const patience = 10 * time.Second

// expect asks until the matrix is the wanted one, in both families, twice in a row.
func (c *cluster) expect(ctx context.Context, want matrix) error {
	deadline := time.Now().Add(patience)
	for matches := 0; matches < 2; {
		wrong, err := c.differences(ctx, want)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return errors.Wrap(err, "asking who reaches whom")
		case wrong == "":
			matches++
		case time.Now().After(deadline):
			return errors.Errorf("after %s the cluster still does not do what it should:\n%s\n%s", patience, wrong, c.dump())
		default:
			matches = 0
		}
	}
	return nil
}

// differences says, for both families, in words and by a matrix, what is not as wanted.
func (c *cluster) differences(ctx context.Context, want matrix) (string, error) {
	var b strings.Builder
	for _, family := range families() {
		seen, err := c.askAll(ctx, family)
		if err != nil {
			return "", err
		}
		wrong := want.changes(seen)
		if len(wrong) == 0 {
			continue
		}
		fmt.Fprintf(&b, "IPv%d (+ok and -x are wrong):\n%s", family, seen.draw(want, plain{}))
		for _, p := range wrong {
			fmt.Fprintf(&b, "  %s: %s, expected: %s\n", p, seen[p], want[p])
		}
	}
	return b.String(), nil
}

// follow changes the manifests, and returns how long after that the last of the pairs that differ between two matrices met
// its new verdict, in either family.
func (c *cluster) follow(ctx context.Context, before, after matrix, change func() error) (time.Duration, error) {
	start := time.Now()
	if err := change(); err != nil {
		return 0, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	changed := before.changes(after)
	last := make([]time.Duration, len(changed)*len(families()))
	for i, p := range changed {
		for j, family := range families() {
			group.Go(func() error {
				turned, err := c.awaitTurn(groupCtx, p, family, after[p])
				last[i*len(families())+j] = turned.Sub(start)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, err
	}
	slowest := time.Duration(0)
	for _, d := range last {
		slowest = max(slowest, d)
	}
	return slowest, c.expect(ctx, after)
}

// awaitTurn connects every few milliseconds, and returns when the first connection was tried that got the wanted verdict.
func (c *cluster) awaitTurn(ctx context.Context, p pair, family int, want verdict) (time.Time, error) {
	type attempt struct {
		tried time.Time
		got   verdict
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	results := make(chan attempt)
	try := func() {
		a := attempt{tried: time.Now()}
		a.got, a.err = c.ask(ctx, p, family)
		select {
		case results <- a:
		case <-ctx.Done():
		}
	}
	const pace = 10 * time.Millisecond
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return time.Now(), nil // expect has the last word
		case <-next.C:
			go try()
			// One that is to be let through is not held up by those before it, which wait for an answer in vain; one that is
			// to be dropped is the first that gets none.
			if want == reaches {
				next.Reset(pace)
			}
		case a := <-results:
			if a.err != nil && ctx.Err() == nil {
				return time.Time{}, a.err
			}
			if a.got == want {
				return a.tried, nil
			}
			if want == blocked {
				next.Reset(pace)
			}
		}
	}
}
