package names

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// bothAttached runs a test with each backend and attachment, and three resolvers.
func bothAttached(t *testing.T, policy e2e.Change, test func(t *testing.T, w *e2e.Cluster)) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				test(t, forging(t, backend, attach, policy, "--bind-sources=on"))
			})
		}
	})
}

// deliver has a host send packets, and waits until web has each of them.
func deliver(t *testing.T, w *e2e.Cluster, from *lab.Host, packets ...[]byte) {
	t.Helper()
	capture, err := w.Hosts["web"].Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	for _, p := range packets {
		if err := from.SendIP(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packets {
		ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
		if _, err := capture.Await(ctx, func(f lab.Frame) bool {
			return !f.Outgoing && bytes.HasSuffix(f.Data, p[len(p)/2:])
		}); err != nil {
			t.Errorf("from %s: %v\n%s", from, err, w.State())
		}
		cancel()
	}
}

// unlearned fails the test if a set has an address. What web received before has been read.
func unlearned(t *testing.T, w *e2e.Cluster, what string, a netip.Addr) {
	t.Helper()
	if learned(t, w, a) {
		t.Errorf("%s: %s is learned\n%s", what, a, w.State())
	}
}

// TestS110_OthersAnswer has servers answer that are no resolvers, and such at other ports of resolvers.
func TestS110_OthersAnswer(t *testing.T) {
	bothAttached(t, trusting("*.example.com"), func(t *testing.T, w *e2e.Cluster) {
		serve(t, w.Hosts["db"])
		number := byte(0)
		e2e.EachFamily(func(family int) {
			for _, server := range []struct {
				host string
				port uint16
			}{{"db", 53}, {"db", resolverPort}, {"out", 53}, {"out", 5454}, {"mon", 53}, {"mon", 5454}, {"copy", 53},
				{"n1", 5454}} {
				number++
				a := askOpen(t, w, server.host, server.port, family, number)
				deliver(t, w, a.resolver, a.datagram(t, a.message(t, a.honest, "")))
				unlearned(t, w, a.to.String(), a.honest)
			}
			for _, network := range []string{"udp", "tcp"} {
				a, err := lookUp(w.Hosts["web"], w.Hosts["db"].Addr(family), network, "n90.example.com.", family)
				if err != nil {
					t.Fatal(err)
				}
				unlearned(t, w, "db by "+network, a)
				reaches(t, w, a, false)
			}
			for _, resolver := range []string{"mon", "copy", "out"} {
				number++
				a := askOpen(t, w, resolver, resolverPort, family, number)
				a.answered(t, a.datagram(t, a.message(t, a.honest, "")))
				reaches(t, w, a.honest, true)
			}
		})
	})
}

// TestS110_UnaskedAnswers has resolvers answer what no pod asked, also once web has sent something back.
func TestS110_UnaskedAnswers(t *testing.T) {
	bothAttached(t, trusting("*.example.com"), func(t *testing.T, w *e2e.Cluster) {
		number := byte(0)
		e2e.EachFamily(func(family int) {
			for _, resolver := range []string{"mon", "copy", "out"} {
				number++
				a := askOpen(t, w, resolver, resolverPort, family, number)
				unasked := a
				unasked.from = netip.AddrPortFrom(a.from.Addr(), 20000+uint16(number))
				bad := outside(family, 100+number)
				answer := unasked.datagram(t, unasked.message(t, bad, ""))
				deliver(t, w, a.resolver, answer)
				unlearned(t, w, "before web sends", bad)
				if err := w.Hosts["web"].SendIP(datagram(t, unasked.from, a.to, question(a.name, family))); err != nil {
					t.Fatal(err)
				}
				deliver(t, w, a.resolver, answer)
				unlearned(t, w, "once web has sent", bad)
				a.answered(t, a.datagram(t, a.message(t, a.honest, "")))
				unlearned(t, w, "at last", bad)
			}
		})
		reaches(t, w, outside(4, 101), false)
	})
}

// TestS110_AnswersToOthers has db ask, which may reach other names and some of the same, and ask as web.
func TestS110_AnswersToOthers(t *testing.T) {
	policy := e2e.Do(trusting("*.example.com"), e2e.ClusterPolicy("others", e2e.Admin("1", e2e.DBAlone,
		`egress: [{action: Accept, to: [{domainNames: ["n1.example.com", "n2.example.com"]}]}]`)))
	bothAttached(t, policy, func(t *testing.T, w *e2e.Cluster) {
		db, mon := w.Hosts["db"], w.Hosts["mon"]
		e2e.EachFamily(func(family int) {
			for _, network := range []string{"udp", "tcp"} {
				for _, name := range []string{"n1.example.com.", "n3.example.com."} {
					a, err := lookUp(db, mon.Addr(family), network, name, family)
					if err != nil {
						t.Fatal(err)
					}
					if got := learned(t, w, a); got != (name[1] == '1') {
						t.Errorf("%s by %s for db: it is learned: %t", name, network, got)
					}
					reaches(t, w, a, false)
				}
			}
			asWeb := datagram(t, netip.AddrPortFrom(w.Hosts["web"].Addr(family), 20000),
				netip.AddrPortFrom(mon.Addr(family), resolverPort), question("n4.example.com.", family))
			for _, y := range ways(w.Attach) {
				if y.sender == "web" {
					continue
				}
				if w.Attach == lab.Bridge && y.name != "db by the gateway" && y.sender == "db" {
					y.to = func(*e2e.Cluster, *testing.T) net.HardwareAddr { return e2e.HardwareAddr(t, mon) }
				}
				y.send(t, w, asWeb, 5)
			}
			reaches(t, w, mustLookUp(t, w, "udp", "n5.example.com.", family), true)
			unlearned(t, w, "asked as web", outside(family, 4))
		})
	})
}

// TestS110_ForgedWhileItStarts has pods go on to answer as resolvers while weave-npc is killed and started again, in an
// audit.
func TestS110_ForgedWhileItStarts(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := forging(t, backend, lab.Bridge, trusting("*.example.com"), "--bind-audit=10m")
		var asked []asked
		frames := map[*lab.Host][][]byte{}
		for i, resolver := range []string{"mon", "copy", "out"} {
			a := askOpen(t, w, resolver, resolverPort, 4, byte(1+i))
			asked = append(asked, a)
			forged := a.datagram(t, a.message(t, outside(4, byte(101+i)), ""))
			for _, y := range ways(lab.Bridge) {
				y.send(t, w, forged, 1)
				sender := w.Hosts[y.sender]
				frames[sender] = append(frames[sender], y.frame(t, w, forged))
			}
		}
		stop := flood(t, frames)
		w.Daemons[0].Kill(t)
		w.Daemons[0].Start(t)
		w.Daemons[0].AwaitReady(t)
		t.Logf("%d forged answers sent", stop())
		for i, a := range asked {
			a.answered(t, a.datagram(t, a.message(t, a.honest, "")))
			unlearned(t, w, "a forged one", outside(4, byte(101+i)))
		}
	})
}

// flood has hosts send frames again and again until stop is called, which returns how many they were.
func flood(t *testing.T, frames map[*lab.Host][][]byte) (stop func() int64) {
	var sent atomic.Int64
	var senders sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for sender, own := range frames {
		senders.Go(func() {
			for ctx.Err() == nil {
				for _, f := range own {
					if err := sender.SendFrame("eth0", f); err != nil {
						t.Error(err)
						return
					}
					sent.Add(1)
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return func() int64 {
		cancel()
		senders.Wait()
		return sent.Load()
	}
}

// hostile returns messages that say nothing about names of *.example.com, by what they have. They give an address.
func hostile(t *testing.T, a netip.Addr) map[string][]byte {
	t.Helper()
	const evil, listed = "a.evil.org.", "n9.example.com."
	out := map[string][]byte{
		"an alias":          packed(t, evil, 4, alias(evil, listed), address(listed, a)),
		"another owner":     packed(t, evil, 4, address(listed, a)),
		"no owner":          packed(t, listed, 4, address(evil, a)),
		"an alias to it":    packed(t, listed, 4, alias(evil, listed), address(evil, a)),
		"a chain elsewhere": packed(t, listed, 4, alias("b.evil.org.", evil), address(evil, a)),
		"no wildcard":       packed(t, "example.com.", 4, address("example.com.", a)),
		"a wildcard":        packed(t, "*.example.com.", 4, address("*.example.com.", a)),
		"above":             packed(t, "example.com.evil.org.", 4, address("example.com.evil.org.", a)),
		"a longer label":    packed(t, "aexample.com.", 4, address("aexample.com.", a)),
		"a space":           packed(t, "a b.example.com.", 4, address("a b.example.com.", a)),
		"a dot":             raw("\x09a.example\x03com\x00", "\xc0\x0c", a),
		"dots alone":        raw("\x0da.example.com\x00", "\xc0\x0c", a),
		"a NUL":             raw("\x02a\x00\x07example\x03com\x00", "\xc0\x0c", a),
		"a NUL at the end":  raw("\x01a\x07example\x03com\x01\x00\x00", "\xc0\x0c", a),
		"a loop":            raw("\x01a\x07example\x03com\xc0\x0c", "\xc0\x0c", a),
		"a loop at itself":  raw("\xc0\x0c", "\x01a\x07example\x03com\x00", a),
		"a loop of owners":  raw("\x01a\x07example\x03com\x00", "\x01a\xc0\x1f", a),
	}
	q := dnsmessage.Question{Name: dnsmessage.MustNewName(listed), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	other := q
	other.Name = dnsmessage.MustNewName(evil)
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Answers: []dnsmessage.Resource{address(listed, a)}}
	out["no question"] = pack(t, m)
	m.Questions = []dnsmessage.Question{q, q}
	out["one question twice"] = pack(t, m)
	m.Questions = []dnsmessage.Question{q, other}
	out["two questions"] = pack(t, m)
	m.Questions = []dnsmessage.Question{other}
	m.Answers, m.Authorities, m.Additionals = []dnsmessage.Resource{address(evil, outside(4, 250))}, m.Answers, m.Answers
	out["other sections"] = pack(t, m)
	m.Questions, m.Answers = []dnsmessage.Question{q}, nil
	out["other sections alone"] = pack(t, m)
	return out
}

func alias(name, of string) dnsmessage.Resource {
	return dnsmessage.Resource{Header: header(name), Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(of)}}
}

// raw returns an answer with names as they are in a message.
func raw(question, owner string, a netip.Addr) []byte {
	return []byte("\x00\x07\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question + "\x00\x01\x00\x01" + owner +
		"\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + string(a.AsSlice()))
}

// TestS110_WhatAnswersDoNotSay has the resolver itself answer with what others may have it say.
func TestS110_WhatAnswersDoNotSay(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := forging(t, backend, lab.Bridge, trusting("*.example.com", "n9.example.org"))
		a := askOpen(t, w, "mon", resolverPort, 4, 1)
		number := byte(100)
		for what, message := range hostile(t, outside(4, 0)) {
			number++
			bad := outside(4, number)
			message = bytes.ReplaceAll(message, outside(4, 0).AsSlice(), bad.AsSlice())
			deliver(t, w, a.resolver, a.datagram(t, message))
			unlearned(t, w, what, bad)
		}
		t.Logf("%d answers sent", number-100)
		changed := a
		changed.name = "Q1.eXAMPLE.cOM."
		a.answered(t, a.datagram(t, changed.message(t, a.honest, "")))
		comments := ""
		for _, s := range w.ListSets(t, w.Node("node1")) {
			for _, m := range s.Members {
				comments += m.Comment + "\n"
			}
		}
		if !strings.Contains(comments, "q1.example.com\n") || strings.Contains(comments, "eXAMPLE") {
			t.Errorf("what is learned: %s", comments)
		}
		reaches(t, w, a.honest, true)
		reaches(t, w, outside(4, 101), false)
	})
}
