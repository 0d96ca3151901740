package connections

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// openAtOnce is how many connections are open while random changes are made.
const openAtOnce = 24

// TestS95_RandomEditsEndWhatTheyDeny makes random changes with --established=terminate, while connections are open: of
// these, those that the reference model denies after a change have ended, and all others go on. Some of them go through
// Services, some are taken up in mid-stream, and some that have ended say nothing before a later change.
func TestS95_RandomEditsEndWhatTheyDeny(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		g, seed, steps := random.New(t, w, 12)
		g.DrawTiers()
		r := &randomTalks{Connections: e2e.NewConnections(t, w), g: g}
		r.addServices(t)
		for i := range steps {
			g.Begin()
			r.open(t)
			r.takeUp(t)
			if g.IntN(3) == 0 {
				g.Relabel(g.OnePod()) // what one that is replaced leaves behind is deleted, and taken up in mid-stream
			} else {
				g.Edit()
			}
			w.Apply(t, g.Objects)
			if wrong := r.evaluate(t); wrong != "" {
				text, _ := g.Objects.Manifest()
				t.Fatalf("seed %d, step %d: %s\n%s\n%s\n%s", seed, i, wrong, strings.Join(g.Did, "\n"), text, w.State())
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
	*e2e.Connections
	g    *random.Generator
	live []*e2e.Connection
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
			e2e.EachFamily(func(family int) {
				r.Service(t, node, family, number, "tcp", servicePorts()["tcp"], pod, e2e.BackendPort)
				r.Service(t, node, family, number, "udp", servicePorts()["udp"], pod, 53)
			})
		}
	}
}

// open closes some connections, and opens others that are allowed, until there are enough.
func (r *randomTalks) open(t *testing.T) {
	t.Helper()
	r.live = slices.DeleteFunc(r.live, func(c *e2e.Connection) bool {
		old := len(c.EndedOn) == 0 && r.g.IntN(6) == 0
		if old {
			c.Close()
		}
		return old
	})
	now := r.g.Objects.Evaluated(t, r.Cluster)
	names := slices.Sorted(maps.Keys(r.Hosts))
	for try := 0; len(r.live) < openAtOnce && try < 200; try++ {
		from, to := names[r.g.IntN(len(names))], names[r.g.IntN(len(names))]
		c := &e2e.Connection{Family: []int{4, 6}[r.g.IntN(2)], Proto: "tcp", Port: []uint16{e2e.BackendPort,
			e2e.OtherPort}[r.g.IntN(2)]}
		if r.g.IntN(3) == 0 {
			c.Proto, c.Port = "udp", 53
		}
		if c.Service = r.g.IntN(3) == 0 && r.IsPod(from) && c.Port != e2e.OtherPort; c.Service {
			to = r.g.Pick(slices.Sorted(maps.Keys(backends()))...)
		}
		c.From, c.To = r.Hosts[from], r.Hosts[to]
		if from == to && !c.Service || from != to && r.Undecided(from, to) && !r.IsOwnNode(from, to) ||
			!now.Allowed(refmodel.Everywhere, c.Packet()) {
			continue
		}
		address := c.Direct()
		if c.Service {
			address = e2e.ServiceAddr(c.Family, backends()[to], servicePorts()[c.Proto])
		}
		r.Begin(t, c, address)
		r.live = append(r.live, c)
	}
}

// takeUp makes nodes forget some connections, whose next segment is taken for the first. It may come from either end,
// if that may open one.
func (r *randomTalks) takeUp(t *testing.T) {
	t.Helper()
	now := r.g.Objects.Evaluated(t, r.Cluster)
	for _, c := range r.live {
		if c.Proto != "tcp" || len(c.EndedOn) > 0 || c.From == c.To || r.g.IntN(12) > 0 {
			continue
		}
		nodes := c.Nodes
		if r.g.IntN(2) == 0 {
			nodes = nodes[:1]
		}
		ends := [][2]net.Conn{}
		if may(now, nodes, c.Packet()) {
			ends = append(ends, [2]net.Conn{c.Client, c.Server})
		}
		if may(now, nodes, c.Reverse()) && !c.Service { // the client does not know the pod's own address
			ends = append(ends, [2]net.Conn{c.Server, c.Client})
		}
		if len(ends) == 0 {
			continue
		}
		c.AwaitAcknowledged(t)
		e := ends[r.g.IntN(len(ends))]
		for _, n := range nodes {
			c.Forget(t, n)
			c.TakenUp[n] = true
		}
		r.g.Note("%s", c)
		r.takenUp++
		if got, err := c.Say(e[0], e[1], e2e.Converged); got != "hello" {
			t.Fatalf("%s: %q arrived: %v\n%s", c, got, err, r.State())
		}
		if why := c.Once(true, false); why != "" {
			t.Fatalf("%s: %s\n%s", c, why, r.State())
		}
		for _, n := range nodes {
			if found, err := c.Entries(n); err != nil || len(found) != 1 || !found[0].Liberal {
				t.Fatalf("%s: %s has %+v, %v", c, n, found, err)
			}
		}
	}
}

// may reports whether each of the nodes lets a packet open a connection.
func may(now refmodel.State, nodes []*lab.Node, p refmodel.Packet) bool {
	return !slices.ContainsFunc(nodes, func(n *lab.Node) bool { return !now.Allowed(n.Name(), p) })
}

// evaluate has the ends of all connections say something, and returns what is wrong with the results. Half of those
// that have ended are left alone for some changes.
func (r *randomTalks) evaluate(t *testing.T) (wrong string) {
	t.Helper()
	now := r.g.Objects.Evaluated(t, r.Cluster)
	var speakers sync.WaitGroup
	why := make([]string, len(r.live))
	over := map[*e2e.Connection]bool{}
	for i, c := range r.live {
		denied := c.DeniedOn(now)
		if len(denied) > 0 && r.g.IntN(2) == 0 {
			c.EndedOn = denied
			continue
		}
		over[c] = len(denied) > 0
		r.count(c, over[c])
		serverFirst := over[c] && r.g.IntN(2) == 0
		speakers.Go(func() {
			if len(denied) == 0 && len(c.EndedOn) > 0 {
				why[i] = c.AwaitRestored()
			}
			if why[i] == "" {
				why[i] = c.Becomes(denied, serverFirst)
			}
		})
	}
	speakers.Wait()
	for i, c := range r.live {
		if why[i] != "" {
			wrong += fmt.Sprintf("%s: denied = %t, has ended on %v: %s\n", c, over[c], c.EndedOn, why[i])
		}
		if over[c] {
			c.Close()
		} else if len(c.DeniedOn(now)) == 0 {
			c.EndedOn = nil
		}
	}
	r.live = slices.DeleteFunc(r.live, func(c *e2e.Connection) bool { return over[c] })
	return wrong
}

// count counts what is to become of a connection.
func (r *randomTalks) count(c *e2e.Connection, ends bool) {
	one := map[bool]int{true: 1}
	if service, takenUp, idle := one[c.Service], one[len(c.TakenUp) > 0], one[len(c.EndedOn) > 0]; !ends {
		r.went, r.onService, r.onTakenUp, r.restored = r.went+1, r.onService+service, r.onTakenUp+takenUp, r.restored+idle
	} else {
		r.ended, r.endedService, r.endedTakenUp, r.endedIdle = r.ended+1, r.endedService+service, r.endedTakenUp+takenUp, r.endedIdle+idle
	}
}
