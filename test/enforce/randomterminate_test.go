package enforce

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// openAtOnce is how many connections are open while random changes are made.
const openAtOnce = 24

// TestS95_RandomEditsEndWhatTheyDeny makes random changes with --established=terminate, while connections are open: of
// these, those that the reference model denies after a change have ended, and all others go on. Some of them go through
// Services, some are taken up in mid-stream, and some that have ended say nothing before a later change.
func TestS95_RandomEditsEndWhatTheyDeny(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--established=terminate")
		g, seed, steps := newGenerator(t, w, 12)
		g.drawTiers()
		r := &randomTalks{talkers: newTalkers(t, w), g: g}
		r.addServices(t)
		for i := range steps {
			g.begin()
			r.open(t)
			r.takeUp(t)
			if g.IntN(3) == 0 {
				g.relabel(g.onePod()) // what one that is replaced leaves behind is deleted, and taken up in mid-stream
			} else {
				g.edit()
			}
			w.apply(t, g.objects)
			if wrong := r.evaluate(t); wrong != "" {
				text, _ := g.objects.manifest()
				t.Fatalf("seed %d, step %d: %s\n%s\n%s\n%s", seed, i, wrong, strings.Join(g.did, "\n"), text, w.state())
			}
		}
		t.Logf("%d changes: %s", steps, r.talkCounts)
	})
}

// talkCounts are how often what happened. onService and onTakenUp are parts of went, and the others with a capital
// letter inside are parts of ended.
type talkCounts struct {
	ended, endedService, endedTakenUp, endedIdle  int
	went, onService, onTakenUp, takenUp, restored int
}

// String prints them.
func (c talkCounts) String() string {
	return fmt.Sprintf("%d connections ended, %d of them through a Service, %d taken up in mid-stream, and in %d nothing was said before a later change; "+
		"%d times one went on, %d through a Service, %d taken up; %d idle ones were allowed again; %d were taken up",
		c.ended, c.endedService, c.endedTakenUp, c.endedIdle, c.went, c.onService, c.onTakenUp, c.restored, c.takenUp)
}

// randomTalks are the connections that are open while random changes are made.
type randomTalks struct {
	*talkers
	g    *generator
	live []*talk
	talkCounts
}

// backends are the pods behind Services: pod -> the number of the Service.
func backends() map[string]byte { return map[string]byte{"web": 11, "api": 12} }

// servicePorts are the ports of Services.
func servicePorts() map[string]uint16 { return map[string]uint16{"tcp": 8081, "udp": 8053} }

// addServices has all nodes translate the addresses of the Services.
func (r *randomTalks) addServices(t *testing.T) {
	t.Helper()
	for _, node := range []string{"n1", "n2"} {
		for pod, number := range backends() {
			families(func(family int) {
				r.service(t, node, family, number, "tcp", servicePorts()["tcp"], pod, backendPort)
				r.service(t, node, family, number, "udp", servicePorts()["udp"], pod, 53)
			})
		}
	}
}

// open closes some connections, and opens others that are allowed, until there are enough.
func (r *randomTalks) open(t *testing.T) {
	t.Helper()
	r.live = slices.DeleteFunc(r.live, func(c *talk) bool {
		old := len(c.endedOn) == 0 && r.g.IntN(6) == 0
		if old {
			c.close()
		}
		return old
	})
	now := r.g.objects.evaluated(t, r.harness)
	names := slices.Sorted(maps.Keys(r.hosts))
	for try := 0; len(r.live) < openAtOnce && try < 200; try++ {
		from, to := names[r.g.IntN(len(names))], names[r.g.IntN(len(names))]
		c := &talk{family: []int{4, 6}[r.g.IntN(2)], proto: "tcp", port: []uint16{backendPort, otherPort}[r.g.IntN(2)]}
		if r.g.IntN(3) == 0 {
			c.proto, c.port = "udp", 53
		}
		if c.service = r.g.IntN(3) == 0 && r.isPod(from) && c.port != otherPort; c.service {
			to = r.g.pick(slices.Sorted(maps.Keys(backends()))...)
		}
		c.from, c.to = r.hosts[from], r.hosts[to]
		if from == to && !c.service || from != to && r.undecided(from, to) && !r.isOwnNode(from, to) || !now.Allowed(refmodel.Everywhere, c.packet()) {
			continue
		}
		address := c.direct()
		if c.service {
			address = serviceAddr(c.family, backends()[to], servicePorts()[c.proto])
		}
		r.begin(t, c, address)
		r.live = append(r.live, c)
	}
}

// takeUp makes nodes forget some connections, whose next segment is taken for the first. It may come from either end,
// if that may open one.
func (r *randomTalks) takeUp(t *testing.T) {
	t.Helper()
	now := r.g.objects.evaluated(t, r.harness)
	time.Sleep(50 * time.Millisecond) // until no end has anything left to acknowledge
	for _, c := range r.live {
		if c.proto != "tcp" || len(c.endedOn) > 0 || c.from == c.to || r.g.IntN(12) > 0 {
			continue
		}
		nodes := c.nodes
		if r.g.IntN(2) == 0 {
			nodes = nodes[:1]
		}
		ends := [][2]net.Conn{}
		if may(now, nodes, c.packet()) {
			ends = append(ends, [2]net.Conn{c.client, c.server})
		}
		if may(now, nodes, c.reverse()) && !c.service { // the client does not know the pod's own address
			ends = append(ends, [2]net.Conn{c.server, c.client})
		}
		if len(ends) == 0 {
			continue
		}
		e := ends[r.g.IntN(len(ends))]
		for _, n := range nodes {
			c.forget(t, n)
			c.takenUp[n] = true
		}
		r.g.note("%s", c)
		r.takenUp++
		if got, err := c.say(e[0], e[1], converged); got != "hello" {
			t.Fatalf("%s: %q arrived: %v\n%s", c, got, err, r.state())
		}
		if why := c.once(true, false); why != "" {
			t.Fatalf("%s: %s\n%s", c, why, r.state())
		}
		for _, n := range nodes {
			if found, err := c.entries(n); err != nil || len(found) != 1 || !found[0].Liberal {
				t.Fatalf("%s: %s has %+v, %v", c, n, found, err)
			}
		}
	}
}

// may reports whether each of the nodes lets a packet open a connection.
func may(now refmodel.State, nodes []*lab.Node, p refmodel.Packet) bool {
	return !slices.ContainsFunc(nodes, func(n *lab.Node) bool { return !now.Allowed(n.Name(), p) })
}

// forget deletes the connection's entry on a node.
func (c *talk) forget(t *testing.T, n *lab.Node) {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if c.family == 6 {
		family = unix.AF_INET6
	}
	var deleted uint
	if err := n.Do(func() (err error) {
		deleted, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, c)
		return err
	}); err != nil || deleted != 1 {
		t.Fatalf("%s: %d entries were deleted on %s, %v", c, deleted, n, err)
	}
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (c *talk) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, d := range []netlink.IPTuple{f.Forward, f.Reverse} {
		if a, _ := netip.AddrFromSlice(d.SrcIP); a.Unmap() == c.from.Addr(c.family) && d.SrcPort == c.local && d.Protocol == unix.IPPROTO_TCP {
			return true
		}
	}
	return false
}

// evaluate has the ends of all connections say something, and returns what is wrong with the results. Half of those
// that have ended are left alone for some changes.
func (r *randomTalks) evaluate(t *testing.T) (wrong string) {
	t.Helper()
	now := r.g.objects.evaluated(t, r.harness)
	var speakers sync.WaitGroup
	why := make([]string, len(r.live))
	over := map[*talk]bool{}
	for i, c := range r.live {
		denied := c.deniedOn(now)
		if len(denied) > 0 && r.g.IntN(2) == 0 {
			c.endedOn = denied
			continue
		}
		over[c] = len(denied) > 0
		r.count(c, over[c])
		serverFirst := over[c] && r.g.IntN(2) == 0
		speakers.Go(func() {
			if len(denied) == 0 && len(c.endedOn) > 0 {
				why[i] = c.awaitRestored()
			}
			if why[i] == "" {
				why[i] = c.becomes(denied, serverFirst)
			}
		})
	}
	speakers.Wait()
	for i, c := range r.live {
		if why[i] != "" {
			wrong += fmt.Sprintf("%s: denied = %t, has ended on %v: %s\n", c, over[c], c.endedOn, why[i])
		}
		if over[c] {
			c.close()
		} else if len(c.deniedOn(now)) == 0 {
			c.endedOn = nil
		}
	}
	r.live = slices.DeleteFunc(r.live, func(c *talk) bool { return over[c] })
	return wrong
}

// count counts what is to become of a connection.
func (r *randomTalks) count(c *talk, ends bool) {
	one := map[bool]int{true: 1}
	if service, takenUp, idle := one[c.service], one[len(c.takenUp) > 0], one[len(c.endedOn) > 0]; !ends {
		r.went, r.onService, r.onTakenUp, r.restored = r.went+1, r.onService+service, r.onTakenUp+takenUp, r.restored+idle
	} else {
		r.ended, r.endedService, r.endedTakenUp, r.endedIdle = r.ended+1, r.endedService+service, r.endedTakenUp+takenUp, r.endedIdle+idle
	}
}

// awaitRestored waits until no node has ended the connection any more.
func (c *talk) awaitRestored() string {
	for end := time.Now().Add(converged); ; time.Sleep(5 * time.Millisecond) {
		marked := ""
		for _, n := range c.nodes {
			found, err := c.entries(n)
			if err != nil {
				return err.Error()
			}
			for _, e := range found {
				if e.Mark != 0 {
					marked = "it is still ended on " + n.Name()
				}
			}
		}
		if marked == "" || time.Now().After(end) {
			return marked
		}
	}
}
