package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/test/lab"
)

// verdict is the result of a connection.
type verdict byte

const (
	itself  verdict = iota // not asked
	reaches                // it is made, and the right server answers
	blocked                // none answers
)

// String returns the verdict in a word.
func (v verdict) String() string { return [...]string{"itself", "reaches", "blocked"}[v] }

// mark returns the verdict in a table.
func (v verdict) mark() string { return [...]string{".", "ok", "x"}[v] }

// target is a port of a host, a column of a matrix.
type target struct {
	host string
	port uint16
}

// pair is a cell of a matrix.
type pair struct {
	from string
	to   target
}

func (p pair) String() string { return fmt.Sprintf("%s -> %s:%d", p.from, p.to.host, p.to.port) }

// matrix holds reachability: pair -> verdict. It has no cell for a host and itself.
type matrix map[pair]verdict

// rows returns the hosts that connections come from.
func rows() []string {
	var names []string
	for _, p := range pods() {
		names = append(names, p.String())
	}
	return append(names, outside)
}

// columns returns the ports that they go to.
func columns() []target {
	var targets []target
	for _, p := range pods() {
		for _, port := range p.ports {
			targets = append(targets, target{p.String(), port.number})
		}
	}
	return append(targets, target{outside, outsidePort})
}

// everybody returns the matrix where every host reaches every other.
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

// read returns the matrix that is written as rows of marks.
func read(table string) matrix {
	verdicts := map[string]verdict{}
	for _, v := range []verdict{reaches, blocked} {
		verdicts[v.mark()] = v
	}
	m := matrix{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		words := strings.Fields(line)
		for i, to := range columns() {
			if v, asked := verdicts[words[i+1]]; asked {
				m[pair{words[0], to}] = v
			}
		}
	}
	return m
}

// but returns the matrix with one verdict changed.
func (m matrix) but(from, host string, port uint16, v verdict) matrix {
	changed := maps.Clone(m)
	changed[pair{from, target{host, port}}] = v
	return changed
}

// differences returns the pairs that have another verdict in another matrix, row by row.
func (m matrix) differences(other matrix) []pair {
	var pairs []pair
	for _, from := range rows() {
		for _, to := range columns() {
			if p := (pair{from, to}); m[p] != other[p] {
				pairs = append(pairs, p)
			}
		}
	}
	return pairs
}

// families returns the IP families that everything is asked in.
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
	case saw == lab.Allowed && (name == p.to.host || name == ""): // on a busy machine a name may come too late
		return reaches, nil
	}
	return blocked, errors.Errorf("%s by IPv%d: %s, answer %q", p, family, saw, name)
}

// askAll tries all connections at once.
func (c *cluster) askAll(ctx context.Context, family int) (matrix, error) {
	var mu sync.Mutex // guards m
	m := matrix{}
	group, ctx := errgroup.WithContext(ctx)
	for p := range everybody() {
		group.Go(func() error {
			v, err := c.ask(ctx, p, family)
			mu.Lock()
			defer mu.Unlock()
			m[p] = v
			return err
		})
	}
	return m, errors.Wrap(group.Wait(), "asking for the matrix")
}

// expect asks until the matrix is the wanted one, in both families, twice in a row.
func (c *cluster) expect(ctx context.Context, want matrix) error {
	deadline := time.Now().Add(timeout)
	for matches := 0; matches < 2; {
		wrong, err := c.wrong(ctx, want)
		switch {
		case err != nil:
			return err
		case wrong == "":
			matches++
		case time.Now().After(deadline):
			return errors.Errorf("this is not as it should be, after %s:\n%s\n%s", timeout, wrong, c.dump())
		default:
			matches = 0
		}
	}
	return nil
}

// wrong lists what is not as wanted; it is empty if everything is.
func (c *cluster) wrong(ctx context.Context, want matrix) (string, error) {
	var b strings.Builder
	for _, family := range families() {
		seen, err := c.askAll(ctx, family)
		if err != nil {
			return "", err
		}
		if len(want.differences(seen)) > 0 {
			fmt.Fprintf(&b, "IPv%d (+ok: must be blocked, -x: must be let through):\n%s\n", family,
				seen.draw(want, plain{}))
		}
	}
	return b.String(), nil
}

// follow changes the manifests, and returns how much later the last of the pairs that differ between two matrices met
// its new verdict, in either family. Then all else has to be as it should, too.
func (c *cluster) follow(ctx context.Context, before, after matrix, change func() error) (time.Duration, error) {
	start := time.Now()
	if err := change(); err != nil {
		return 0, err
	}
	var mu sync.Mutex // guards last
	last := start
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range before.differences(after) {
		for _, family := range families() {
			group.Go(func() error {
				turned, err := c.awaitTurn(groupCtx, p, family, after[p])
				mu.Lock()
				defer mu.Unlock()
				if turned.After(last) {
					last = turned
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return 0, errors.Wrap(err, "waiting for a change")
	}
	return last.Sub(start), c.expect(ctx, after)
}

// retryInterval is the time between two attempts to connect.
const retryInterval = 10 * time.Millisecond

// awaitTurn connects again and again, and returns when the first connection was tried that got the wanted verdict. If
// none does, it returns too: what is wrong then shows in the matrix.
func (c *cluster) awaitTurn(ctx context.Context, p pair, family int, want verdict) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	attempts := make(chan attempt)
	try := time.NewTimer(0)
	defer try.Stop()
	for {
		select {
		case <-ctx.Done():
			return time.Now(), nil
		case <-try.C:
			go func() {
				a := attempt{tried: time.Now()}
				a.verdict, a.err = c.ask(ctx, p, family)
				select {
				case attempts <- a:
				case <-ctx.Done():
				}
			}()
			// What is to be let through soon is tried while the attempts before it still wait for their answers.
			if want == reaches {
				try.Reset(retryInterval)
			}
		case a := <-attempts:
			if ctx.Err() == nil && a.err != nil || a.verdict == want {
				return a.tried, a.err
			}
			if want == blocked {
				try.Reset(retryInterval)
			}
		}
	}
}

// attempt is a connection that was tried.
type attempt struct {
	tried   time.Time
	verdict verdict
	err     error
}
