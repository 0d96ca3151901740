package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS109_AnAnswerArrivesOnceItsAddressIsReachable looks names up and connects to each at once.
func TestS109_AnAnswerArrivesOnceItsAddressIsReachable(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				t.Parallel()
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				openOutside(t, w)
				serve(t, w.Hosts["mon"])
				w.Begin(t, e2e.Do(base(), byName("*.example.com")), "--domain-grace", "0s")
				if err := dial(w.Hosts["web"], outside(4, 1)); err == nil {
					t.Fatal("an address is reached that no answer gave")
				}
				lookUpAndConnect(t, w, 500)
			})
		}
	})
}

// lookUpAndConnect has several clients in web look random names up, by both protocols and families, and connect.
func lookUpAndConnect(t *testing.T, w *e2e.Cluster, each int) {
	t.Helper()
	before := dropped(w)
	if before == 0 {
		t.Fatal("packets that are dropped are not counted")
	}
	var wg sync.WaitGroup
	var failed atomic.Int32
	for client := range 8 {
		wg.Go(func() {
			for i := range each {
				number := byte(1 + (i*8+client)%250)
				family, network := 4+2*(i%2), [...]string{"udp", "tcp"}[i/2%2]
				name := fmt.Sprintf("%c%d.example.com.", "nk"[i/4%2], number)
				a, err := lookUp(w.Hosts["web"], w.Hosts["mon"].Addr(family), network, name, family)
				if err == nil {
					err = dialWithin(w.Hosts["web"], a, e2e.Timeout) // slow machines need time
				}
				if err != nil {
					if failed.Add(1) >= 5 {
						return
					}
					t.Errorf("%s by %s: %v %v", name, network, a, err)
				}
			}
		})
	}
	wg.Wait()
	if n, more := failed.Load(), dropped(w)-before; n > 0 || more > 0 {
		t.Errorf("%d of %d failed, and %d packets were dropped\n%s", n, 8*each, more, lab.DumpFilter(w.Nodes()[0]))
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

// dial connects from a host to an address outside.
func dial(from *lab.Host, to netip.Addr) error { return dialWithin(from, to, 500*time.Millisecond) }

func dialWithin(from *lab.Host, to netip.Addr, timeout time.Duration) error {
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
