package domainnames

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// reader is a pod that reads what passes to it, as TCP does: it puts bytes in order, and keeps the first or the last of
// those that came more than once before it could read them.
type reader struct {
	next    uint32
	early   map[uint32]byte
	data    []byte
	last    bool
	begun   int
	learned map[string]bool
}

func (r *reader) receive(seq uint32, payload []byte) error {
	for i, b := range payload {
		at := seq + uint32(i)
		if _, known := r.early[at]; int32(at-r.next) >= 0 && (!known || r.last) {
			r.early[at] = b
		}
	}
	for {
		b, ok := r.early[r.next]
		if !ok {
			break
		}
		delete(r.early, r.next)
		r.data = append(r.data, b)
		r.next++
	}
	for len(r.data)-r.begun >= 2 {
		end := r.begun + 2 + int(binary.BigEndian.Uint16(r.data[r.begun:]))
		if end > len(r.data) {
			break
		}
		if m := string(r.data[r.begun+2 : end]); !r.learned[m] {
			return fmt.Errorf("message %.20q is read and was not learned", m)
		}
		r.begun = end
	}
	return nil
}

// prefixed puts the length before each message.
func prefixed(messages ...[]byte) (out []byte) {
	for _, m := range messages {
		out = binary.BigEndian.AppendUint16(out, uint16(len(m)))
		out = append(out, m...)
	}
	return out
}

// FuzzStream sends a stream in segments of random sizes and in random order, some twice, some with other bytes, until
// all has arrived or it is reset. Nothing is read that was not learned, and without other bytes everything arrives.
func FuzzStream(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		var messages [][]byte
		for range 1 + random.IntN(5) {
			m := make([]byte, random.IntN(40))
			if random.IntN(8) == 0 {
				m = make([]byte, random.IntN(1<<16))
			}
			for i := range m {
				m[i] = byte(random.Uint32())
			}
			messages = append(messages, m)
		}
		whole := prefixed(messages...)
		forged := random.IntN(2) == 0
		largest := 1 + random.IntN(2000)
		if len(whole) > 1000 {
			largest += 1000
		}
		deliver(t, random, whole, len(messages), largest, forged)
	})
}

func deliver(t *testing.T, random *rand.Rand, whole []byte, count, largest int, forged bool) {
	t.Helper()
	e := ends()[random.IntN(2)]
	first := random.Uint32()
	ss := newStreams()
	r := &reader{next: first, early: map[uint32]byte{}, last: random.IntN(2) == 0, learned: map[string]bool{}}
	var learned int
	take := func(s segment) verdict {
		p, err := parsePacket(s.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		return ss.take(p, time.Now(), func(m []byte) { learned++; r.learned[string(m)] = true })
	}
	if v := take(segment{e[0], e[1], first - 1, flagSYN | flagACK, nil}); v != accept {
		t.Fatal("the first packet", v)
	}
	for len(r.data) < len(whole) {
		at := len(r.data) // mostly near what is missing
		at = max(0, min(len(whole)-1, at+random.IntN(2*largest+1)-largest))
		if random.IntN(3) == 0 {
			at = len(r.data)
		}
		payload := bytes.Clone(whole[at:min(len(whole), at+1+random.IntN(largest))])
		if forged && random.IntN(10) == 0 {
			payload[random.IntN(len(payload))] ^= 1
		}
		switch take(segment{e[0], e[1], first + uint32(at), flagACK, payload}) {
		case accept:
			if err := r.receive(first+uint32(at), payload); err != nil {
				t.Fatal(err)
			}
		case reset:
			if !forged && at <= len(r.data) { // one that is too early may come too often
				t.Fatalf("reset at %d with %d released", at, len(r.data))
			}
			return
		case drop:
		}
	}
	if learned != count && !forged {
		t.Fatalf("%d messages were learned, not %d", learned, count)
	}
}

// steps takes segments and returns the verdicts.
func steps(t *testing.T, ss *streams, segments ...segment) string {
	t.Helper()
	var out []string
	for _, s := range segments {
		p, err := parsePacket(s.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, [...]string{"accept", "drop", "reset"}[ss.take(p, time.Now(), func([]byte) {})])
	}
	return strings.Join(out, " ")
}

func TestS114_Streams(t *testing.T) {
	e := ends()[0]
	begin := segment{e[0], e[1], 99, flagSYN | flagACK, nil}
	data := func(seq uint32, text string) segment { return segment{e[0], e[1], seq, flagACK, []byte(text)} }
	urgent := data(100, "abc")
	urgent.flags |= flagURG
	for _, tt := range []struct {
		name     string
		segments []segment
		want     string
	}{
		{"older than the daemon", []segment{data(100, "abc"), data(100, "abc")}, "reset reset"},
		{"nothing in it", []segment{data(100, "")}, "accept"},
		{"in order", []segment{begin, data(100, "abc"), data(103, "def")}, "accept accept accept"},
		{"again", []segment{begin, data(100, "abc"), begin, data(100, "abc"), data(101, "bcd"), data(104, "e")},
			"accept accept accept accept accept accept"},
		{"the first packet again", []segment{begin, data(100, "abc"), begin, data(103, "d")},
			"accept accept accept accept"},
		{"again with other bytes", []segment{begin, data(100, "abc"), data(100, "abX"), data(103, "d")},
			"accept accept reset reset"},
		{"before the first byte", []segment{begin, data(99, "abc")}, "accept reset"},
		{"too early", []segment{begin, data(101, "bc"), data(100, "abc")}, "accept drop accept"},
		{"never what is missing", []segment{begin, data(200, "x"), data(201, "y"), data(200, "x"), data(200, "x"),
			data(200, "x"), data(200, "x")}, "accept drop drop drop drop drop reset"},
		{"urgent", []segment{begin, urgent}, "accept reset"},
		{"a new connection", []segment{begin, data(100, "abc"), {e[0], e[1], 499, flagSYN | flagACK, nil}, data(500, "x"),
			data(103, "d")}, "accept accept accept accept reset"},
		{"data with the first packet", []segment{{e[0], e[1], 99, flagSYN | flagACK, []byte("ab")}, data(102, "c")},
			"accept accept"},
	} {
		if got := steps(t, newStreams(), tt.segments...); got != tt.want {
			t.Errorf("%s: %s, not %s", tt.name, got, tt.want)
		}
	}
}

// TestS113_StreamsAreBounded: one pod's streams take no place of another's.
func TestS113_StreamsAreBounded(t *testing.T) {
	ss := newStreams()
	resolver, quiet := port("10.0.0.53:53"), port("10.0.0.3:4000")
	steps(t, ss, segment{resolver, quiet, 99, flagSYN | flagACK, nil})
	loud := func(pod, n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(pod >> 8), byte(pod)}), uint16(1000+n))
	}
	payload := append([]byte{0xff, 0xff}, make([]byte, 60000)...)
	for n := range 3 * streamsOfPod {
		steps(t, ss, segment{resolver, loud(0, n), 99, flagSYN | flagACK, nil},
			segment{resolver, loud(0, n), 100, flagACK, payload})
	}
	if pod := ss.pods[loud(0, 0).Addr()]; len(pod.flows) > streamsOfPod || pod.bytes > bytesOfPod ||
		ss.bytes != pod.bytes {
		t.Errorf("a pod has %d streams of %d bytes, and all have %d", len(pod.flows), pod.bytes, ss.bytes)
	}
	if got := steps(t, ss, segment{resolver, loud(0, 0), 60102, flagACK, []byte("x")}); got != "reset" {
		t.Errorf("the oldest: %s", got)
	}
	if got := steps(t, ss, segment{resolver, quiet, 100, flagACK, []byte("x")}); got != "accept" {
		t.Errorf("another pod's: %s", got)
	}
	for n := range 3 * streamsOfPod {
		steps(t, ss, segment{resolver, loud(1, n), 99, flagSYN | flagACK, nil})
	}
	if n := len(ss.pods[loud(1, 0).Addr()].flows); n != streamsOfPod {
		t.Errorf("a pod has %d streams", n)
	}
	for pod := range 300 {
		steps(t, ss, segment{resolver, loud(pod, 0), 99, flagSYN | flagACK, nil},
			segment{resolver, loud(pod, 0), 100, flagACK, payload})
	}
	if ss.bytes > maxBytes || ss.bytes < maxBytes/2 {
		t.Errorf("all have %d bytes", ss.bytes)
	}
	ss.expire(time.Now().Add(idleStream + time.Minute))
	if ss.count != 0 || ss.bytes != 0 || len(ss.pods) != 0 {
		t.Errorf("idle streams stay: %d of %d bytes", ss.count, ss.bytes)
	}
}
