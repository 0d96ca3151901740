package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS109_AnAnswerArrivesOnceItsAddressIsReachable looks names up and connects to each at once, while policies change.
func TestS109_AnAnswerArrivesOnceItsAddressIsReachable(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				t.Parallel()
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				openOutside(t, w)
				serve(t, w.Hosts["mon"])
				w.Begin(t, e2e.Do(base(), byName("*.example.com")), "--domain-grace", "5s")
				if err := dial(w.Hosts["web"], outside(4, 1), false); err == nil {
					t.Fatal("an address is reached that no answer gave")
				}
				before := dropped(w)
				if before == 0 {
					t.Fatal("packets that are dropped are not counted")
				}
				looking := lookUpAndConnect(w, 32, 125)
				changes := []e2e.Change{e2e.Policy("shop/p", e2e.DBToWeb), byName("*.example.com", "n1.example.org"),
					e2e.Policy("shop/p", `{podSelector: {}, policyTypes: [Ingress]}`), byName("*.example.com")}
				for i := 0; looking.running(); i++ {
					w.Apply(t, w.Objects(e2e.Do(base(), byName("*.example.com"), changes[i%len(changes)])))
				}
				looking.expectNone(t, w)
				if more := dropped(w) - before; more > 0 {
					t.Errorf("%d packets were dropped\n%s", more, lab.DumpFilter(w.Nodes()[0]))
				}
			})
		}
	})
}

// TestS112_S114_KilledUnderLookups kills weave-npc and starts it again at once, while names are looked up. An answer
// comes later then, and its address is reachable.
func TestS112_S114_KilledUnderLookups(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, byName("*.example.com"), "--domain-grace", "1h")
		known := mustLookUp(t, w, "udp", "n251.example.com.", 4)
		looking := lookUpAndConnect(w, 8, 75)
		for looking.running() {
			killed := time.Now()
			w.Daemons[0].Kill(t)
			reaches(t, w, known, true)
			reaches(t, w, outside(6, 252), false)
			w.Daemons[0].Start(t)
			w.Daemons[0].AwaitReady(t)
			looking.absent(killed, time.Now())
			time.Sleep(6 * time.Second) // a stub resolver that asks again after five finds weave-npc there
		}
		looking.expectNone(t, w)
		reaches(t, w, known, true)
	})
}

// lookups are clients in web that look random names up, by both protocols and families, and connect to each at once.
type lookups struct {
	clients sync.WaitGroup
	left    atomic.Int32 // clients that have not ended
	slow    [][2]time.Time
	mu      sync.Mutex // guards failed
	failed  []failure
}

// failure is a lookup, or a connection, that failed.
type failure struct {
	at   time.Time // the lookup ended
	text string
}

// pace is how long clients wait before each lookup: 32 of them stay below the packets of answers that a pod may have in
// a second (S113), which are dropped above that.
const pace = 250 * time.Millisecond

// lookUpAndConnect has clients look so many names up each.
func lookUpAndConnect(w *e2e.Cluster, clients, each int) *lookups {
	l := &lookups{}
	l.left.Store(int32(clients))
	for client := range clients {
		l.clients.Go(func() {
			defer l.left.Add(-1)
			for i := range each {
				time.Sleep(pace)
				number := byte(1 + (i*clients+client)%250)
				family, network := 4+2*(i%2), [...]string{"udp", "tcp"}[i/2%2]
				name := fmt.Sprintf("%c%d.example.com.", "nk"[i/4%2], number)
				a, err := lookUp(w.Hosts["web"], w.Hosts["mon"].Addr(family), network, name, family)
				at := time.Now()
				if err == nil {
					err = dial(w.Hosts["web"], a, true)
				}
				if err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, failure{at, fmt.Sprintf("%s by %s: %v %v", name, network, a, err)})
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

func (l *lookups) running() bool { return l.left.Load() > 0 }

// absent handles that weave-npc was absent for a time. Answers wait for five seconds, of which one may have passed
// before. On a machine that takes longer for a start they pass then (S112), and their addresses are not learned.
func (l *lookups) absent(from, until time.Time) {
	if until.Sub(from) > 4*time.Second {
		l.slow = append(l.slow, [2]time.Time{from, until})
	}
}

// expectNone waits for the clients and expects that none of their lookups and connections failed.
func (l *lookups) expectNone(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	l.clients.Wait()
	failed := slices.DeleteFunc(l.failed, func(f failure) bool {
		return slices.ContainsFunc(l.slow, func(s [2]time.Time) bool { return f.at.After(s[0]) && f.at.Before(s[1]) })
	})
	if len(failed) > 0 {
		t.Errorf("%d failed:\n%v\n%s", len(failed), failed[:min(len(failed), 5)], w.State())
	}
}

// drops matches the rule that drops what pods must not send, with its count of packets.
var drops = regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A WEAVE-NPC-DROP-EGRESS .* -j DROP$`)

// dropped returns how many packets of the first node's pods were dropped.
func dropped(w *e2e.Cluster) (total int) {
	for _, m := range drops.FindAllStringSubmatch(lab.DumpFilter(w.Nodes()[0]), -1) {
		n, _ := strconv.Atoi(m[1]) // it is a number
		total += n
	}
	return total
}

// dial connects from a host to an address outside. It waits longer if that is to be reached: slow machines need time.
func dial(from *lab.Host, to netip.Addr, reached bool) error {
	timeout := 500 * time.Millisecond
	if reached {
		timeout = e2e.Timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(to, serverPort).String())
	if err == nil {
		err = c.Close()
	}
	return err
}

// lookUp asks a resolver for the address of a name, as a stub resolver does: once more if there is no answer.
func lookUp(from *lab.Host, resolver netip.Addr, network, name string, family int) (a netip.Addr, err error) {
	for range 3 {
		if a, err = ask(from, netip.AddrPortFrom(resolver, resolverPort), network, name, family, 5*time.Second); err == nil {
			return a, nil
		}
	}
	return a, err
}

func ask(from *lab.Host, resolver netip.AddrPort, network, name string, family int,
	timeout time.Duration) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := from.DialContext(ctx, network, resolver.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	return exchange(c, network, question(name, family))
}

// question returns a question for the addresses of a name.
func question(name string, family int) []byte {
	kind := dnsmessage.TypeA
	if family == 6 {
		kind = dnsmessage.TypeAAAA
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	message, err := q.Pack()
	if err != nil {
		panic(err) // the names of tests can be packed
	}
	return message
}

func exchange(c net.Conn, network string, question []byte) (a netip.Addr, err error) {
	var answer []byte
	if network == "tcp" {
		if _, err = c.Write(framed(question)); err != nil {
			return a, err
		}
		answer, err = readMessage(c)
	} else {
		if _, err = c.Write(question); err != nil {
			return a, err
		}
		answer = make([]byte, 65535)
		var n int
		n, err = c.Read(answer)
		answer = answer[:n]
	}
	if err != nil {
		return a, err
	}
	var m dnsmessage.Message
	if err = m.Unpack(answer); err != nil {
		return a, err
	}
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			return netip.AddrFrom4(body.A), nil
		case *dnsmessage.AAAAResource:
			return netip.AddrFrom16(body.AAAA), nil
		}
	}
	return a, fmt.Errorf("no address in %d answers, RCODE %s", len(m.Answers), strconv.Itoa(int(m.RCode)))
}
