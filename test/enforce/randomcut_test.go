package enforce

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/judge"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS95_RandomEditsEndWhatTheyDeny makes random changes with --established=cut, while connections are open: of these, those that the judge denies
// after a change have ended, and all others go on.
func TestS95_RandomEditsEndWhatTheyDeny(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--established=cut")
		g, seed, steps := newGenerator(t, w, 15)
		g.drawTiers()
		var talks []*talk
		ended, went := 0, 0
		for i := range steps {
			talks = w.openTalks(t, g, talks)
			g.begin()
			if g.IntN(3) == 0 {
				g.relabel(g.onePod()) // what one that is replaced leaves behind is deleted, and taken up in mid-stream
			} else {
				g.edit()
			}
			w.apply(t, g.objects)
			now := g.objects.judged(t, w)
			talks = slices.DeleteFunc(talks, func(c *talk) bool {
				allowed := now.Allowed(judge.Everywhere, c.packet())
				if allowed {
					went++
				} else {
					ended++
				}
				if why := c.becomes(allowed); why != "" {
					text, _ := g.objects.manifest()
					t.Fatalf("seed %d, step %d: %s: allowed = %t, %s\n%s\n%s\n%s", seed, i, c, allowed, why, strings.Join(g.did, "\n"), text, w.state())
				}
				if !allowed {
					_ = c.conn.Close()
				}
				return !allowed
			})
		}
		t.Logf("%d connections ended, %d times one went on", ended, went)
	})
}

// talk is an open connection to a server that sends back what it gets.
type talk struct {
	from, to *lab.Host
	family   int
	proto    string
	port     uint16
	conn     net.Conn
}

// String names the connection.
func (c *talk) String() string {
	return fmt.Sprintf("%s to %s, %s %d, IPv%d, %s", c.from.Name(), c.to.Name(), c.proto, c.port, c.family, c.conn.LocalAddr())
}

func (c *talk) packet() judge.Packet {
	return packetOf(c.from.Addr(c.family), c.to.Addr(c.family), c.proto, c.port)
}

// openTalks opens connections that are allowed, until there are enough.
func (w *world) openTalks(t *testing.T, g *generator, talks []*talk) []*talk {
	t.Helper()
	now := g.objects.judged(t, w)
	names := slices.Sorted(maps.Keys(w.hosts))
	for try := 0; len(talks) < 24 && try < 200; try++ {
		from, to := names[g.IntN(len(names))], names[g.IntN(len(names))]
		c := &talk{from: w.hosts[from], to: w.hosts[to], family: []int{4, 6}[g.IntN(2)], proto: "tcp", port: 80}
		if g.IntN(3) == 0 {
			c.proto, c.port = "udp", 53
		}
		if from == to || w.undecided(from, to) || !now.Allowed(judge.Everywhere, c.packet()) {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		conn, err := c.from.DialContext(ctx, c.proto, netip.AddrPortFrom(c.to.Addr(c.family), c.port).String())
		cancel()
		if err != nil {
			t.Fatalf("%s to %s, %s %d, IPv%d: %v\n%s", from, to, c.proto, c.port, c.family, err, w.state())
		}
		c.conn = conn
		t.Cleanup(func() { _ = conn.Close() })
		if why := c.judge(true); why != "" {
			t.Fatalf("%s, just opened: %s\n%s", c, why, w.state())
		}
		talks = append(talks, c)
	}
	return talks
}

// becomes returns what is wrong with what becomes of the connection. One that is not allowed ends a moment after the change.
func (c *talk) becomes(allowed bool) (why string) {
	for end := time.Now().Add(converged); ; {
		if why = c.judge(allowed); why == "" || allowed || time.Now().After(end) {
			return why
		}
	}
}

// judge sends something, and returns what is wrong with what becomes of it.
func (c *talk) judge(allowed bool) string {
	wait := 100 * time.Millisecond
	if allowed {
		wait = converged
	}
	token := fmt.Sprintf("%016x", time.Now().UnixNano())
	if err := c.conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err.Error()
	}
	if _, err := c.conn.Write([]byte(token)); err != nil {
		if allowed {
			return err.Error()
		}
		return ""
	}
	var got []byte
	for {
		b := make([]byte, 1500)
		n, err := c.conn.Read(b)
		got = append(got, b[:n]...)
		switch answered := strings.Contains(string(got), token) || c.proto == "udp" && n > 0; {
		case answered && allowed:
			return ""
		case answered:
			return "it was answered"
		case err != nil && allowed:
			return err.Error()
		case err != nil:
			return ""
		}
	}
}
