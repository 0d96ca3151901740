package domainnames

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// paper are sets in memory.
type paper struct {
	sets    map[string]map[netip.Addr]ipset.Attr // nil: there is no such set
	refused string                               // an address that no set takes
	ops     int
	listed  int // how often sets were listed
}

func (s *paper) Apply(ops []ipset.Op) error {
	var failed []*ipset.OpError
	for i, op := range ops {
		s.ops++
		set := s.sets[op.Set.Name]
		if set == nil {
			failed = append(failed, &ipset.OpError{Index: i, Kind: op.Kind, Set: op.Set.Name, Err: errors.New("no such set")})
			continue
		}
		for _, e := range op.Elements {
			switch a := e.Prefix.Addr(); {
			case op.Kind == ipset.Delete:
				delete(set, a)
			case a.String() == s.refused:
				failed = append(failed, &ipset.OpError{Index: i, Elements: []ipset.Element{e}, Err: errors.New("full")})
			default:
				set[a] = e.Attr
			}
		}
	}
	if failed != nil {
		return &ipset.BatchError{Errors: failed}
	}
	return nil
}

func (s *paper) ListNamed(names []string) (out []ipset.Listing, err error) {
	s.listed++
	for _, name := range names {
		if set := s.sets[name]; set != nil {
			l := ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: name}}}
			for a, attr := range set {
				l.Members = append(l.Members, ipset.Element{Entry: ipset.Addr(a), Attr: attr})
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func (s *paper) Close() error { return nil }

// text returns the members of a set: "10.0.0.1 a.x 660".
func (s *paper) text(name string) string {
	var out []string
	for a, attr := range s.sets[name] {
		out = append(out, fmt.Sprintf("%s %s %d", a, attr.Comment, attr.Timeout))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// desk is a learner without a kernel, with two lists: "one" of a.x and *.d, "two" of b.x; pod has both.
type desk struct {
	*Learner
	t    *testing.T
	sets *paper
	now  time.Time
	log  *bytes.Buffer
}

func setsOf(name string) (out [len(npc.Families)]ipset.Set) {
	out[npc.IPv4] = ipset.Set{Name: name + "4", Type: ipset.HashIP, Family: ipset.IPv4, Timeout: 600}
	out[npc.IPv6] = ipset.Set{Name: name + "6", Type: ipset.HashIP, Family: ipset.IPv6, Timeout: 600}
	return out
}

func newDesk(t *testing.T) *desk {
	s := &paper{sets: map[string]map[netip.Addr]ipset.Attr{"one4": {}, "one6": {}, "two4": {}, "two6": {}}}
	log := &bytes.Buffer{}
	l := newLearner(Config{Names: NewNames(), Log: slog.New(slog.NewTextHandler(log, nil)), Grace: time.Minute,
		Domain: "cluster.local", Alive: setsOf("alive")}, s)
	l.retryFor = 0
	d := &desk{l, t, s, time.Now(), log}
	l.Follow(twoLists())
	l.SetSubject(ends()[0][1].Addr(), []string{"one", "two"})
	l.SetSubject(ends()[1][1].Addr(), []string{"one", "two"})
	return d
}

func twoLists() []List {
	return []List{{Key: "one", Names: []string{"a.x", "*.d"}, Sets: setsOf("one")},
		{Key: "two", Names: []string{"b.x"}, Sets: setsOf("two")}}
}

// take takes answers to a pod, by UDP, in one batch, and returns the verdicts.
func (d *desk) take(to netip.AddrPort, messages ...[]byte) string {
	d.t.Helper()
	from := ends()[0][0]
	if to.Addr().Is6() {
		from = ends()[1][0]
	}
	var raw [][]byte
	for _, m := range messages {
		raw = append(raw, udp(d.t, from, to, m))
	}
	return d.batch(raw...)
}

func (d *desk) batch(raw ...[]byte) string {
	d.update(d.now)
	var batch []evaluated
	for _, r := range raw {
		batch = append(batch, d.evaluate(r, d.now))
	}
	var out []string
	d.learn(batch, d.now)
	for _, v := range batch {
		out = append(out, [...]string{"accept", "drop", "reset"}[v.verdict])
	}
	d.deleteGone()
	return strings.Join(out, " ")
}

// read has packets come, with those that wait, and returns how many are accepted, and how many are not.
func (d *desk) read(raw ...[]byte) (accepted, others int) {
	d.update(d.now)
	batch := d.deferred
	d.deferred = nil
	for _, r := range raw {
		batch = append(batch, d.evaluate(r, d.now))
	}
	for _, v := range d.learn(batch, d.now) {
		if v.Drop || v.Replace != nil {
			others++
		} else {
			accepted++
		}
	}
	return accepted, others
}

// wants checks the members of sets, in turn: name, members.
func (d *desk) wants(when string, sets ...string) {
	d.t.Helper()
	for i := 0; i < len(sets); i += 2 {
		if got := d.sets.text(sets[i]); got != sets[i+1] {
			d.t.Errorf("%s: set %s has %q, not %q", when, sets[i], got, sets[i+1])
		}
	}
}

// pass lets time pass.
func (d *desk) pass(t time.Duration) {
	d.now = d.now.Add(t)
	for _, of := range d.sets.sets {
		for a, attr := range of {
			if attr.Timeout <= uint32(t/time.Second) {
				delete(of, a)
			} else {
				attr.Timeout -= uint32(t / time.Second)
				of[a] = attr
			}
		}
	}
	d.update(d.now)
	d.memory.expire(d.now)
	d.deleteGone()
}

func TestS108_WhatIsLearned(t *testing.T) {
	d := newDesk(t)
	pod4, pod6 := ends()[0][1], ends()[1][1]
	got := d.take(pod4, answer(t, "a.x", "a.x A 10.9.0.1 30", "a.x AAAA fd09::1 30"),
		answer(t, "c.x", "c.x A 10.9.0.9 30"), answer(t, "B.x", "b.x A 10.9.0.2 30"), []byte("junk"))
	if got != "accept accept accept accept" {
		t.Error(got)
	}
	d.take(pod6, answer(t, "k.d", "k.d AAAA fd09::2 7200"))
	d.wants("at first", "one4", "10.9.0.1 a.x 690", "one6", "fd09::1 a.x 690, fd09::2 k.d 4260",
		"two4", "10.9.0.2 b.x 690")
	d.pass(91 * time.Second)
	d.wants("after TTL and grace", "one4", "", "one6", "fd09::2 k.d 4169", "two4", "")
	held := d.learned()
	if len(held) != 1 || held[0].Name != "k.d" || held[0].List != "one" || held[0].Resolver != ends()[1][0].Addr() ||
		!held[0].Until.Equal(held[0].When.Add(time.Hour+time.Minute)) {
		t.Errorf("learned %+v", held)
	}
	if c := d.snapshot(); c.Answers != 5 || c.Learned != 4 || c.Held != 1 || c.Refused != 0 {
		t.Errorf("counts %+v", c)
	}
}

func TestS108_SubjectsAlone(t *testing.T) {
	d := newDesk(t)
	a := func(host int) []byte { return answer(t, "a.x", fmt.Sprintf("a.x A 10.9.0.%d 30", host)) }
	other, none := port("10.0.0.8:4000"), port("10.0.0.9:4000")
	d.SetSubject(other.Addr(), []string{"two"})
	d.SetSubject(none.Addr(), nil)
	d.take(other, a(1))
	d.take(none, a(2))
	if got := d.batch(segment{ends()[0][0], none, 5, flagACK, []byte("x")}.bytes(t)); got != "accept" {
		t.Errorf("a stream that is no subject's: %s", got)
	}
	d.wants("answers to others", "one4", "", "two4", "")
	from, pod := ends()[0][0], ends()[0][1]
	first, second := segment{from, pod, 9, flagSYN | flagACK, nil}, segment{from, pod, 10, flagACK, []byte("ab")}
	third := segment{from, pod, 12, flagACK, []byte("cd")}
	got := d.batch(first.bytes(t))
	d.SetSubject(pod.Addr(), nil)
	got += " " + d.batch(second.bytes(t))
	d.SetSubject(pod.Addr(), []string{"one", "two"})
	if got += " " + d.batch(third.bytes(t)); got != "accept accept reset" {
		t.Errorf("a stream that was no subject's for a while: %s", got)
	}
	d.Forget(ends()[0][1].Addr())
	d.take(ends()[0][1], a(3))
	d.wants("an answer to a former pod", "one4", "")
	d.SetSubject(ends()[0][1].Addr(), []string{"one"})
	d.update(d.now)
	d.wants("whose address has a pod again", "one4", "10.9.0.3 a.x 690")
}

// TestS109_AnswersWaitForTheirPod, and for its set.
func TestS109_AnswersWaitForTheirPod(t *testing.T) {
	d := newDesk(t)
	late := func(n int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("10.0.1.%d:4000", n)) }
	if got := d.take(late(1), answer(t, "a.x", "a.x A 10.9.0.1 30")); got != "accept" {
		t.Error(got)
	}
	d.take(late(2), answer(t, "a.x", "a.x A 10.9.0.2 30"))
	d.wants("before", "one4", "")
	d.pass(20 * time.Second)
	d.sets.sets["one4"] = nil
	d.SetSubject(late(1).Addr(), []string{"one"})
	d.update(d.now)
	d.sets.sets["one4"] = map[netip.Addr]ipset.Attr{}
	d.tickSets()
	d.wants("its pod is known", "one4", "10.9.0.1 a.x 670")
	d.pass(waitFor)
	for _, a := range d.waiting.expire(d.now) {
		d.Names.inputs.giveUp(a)
	}
	d.SetSubject(late(2).Addr(), []string{"one"})
	d.update(d.now)
	if len(d.waiting.byAddr)+d.waiting.count+len(d.Names.inputs.awaited) > 0 ||
		strings.Contains(d.sets.text("one4"), "10.9.0.2") {
		t.Errorf("an old answer counts: %s", d.sets.text("one4"))
	}
	for n := range 500 {
		pod := netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)})
		d.take(netip.AddrPortFrom(pod, 1), many(t, "a.x", n, 300), many(t, "b.x", n, 300), many(t, "k.d", n, 300))
		if waits := len(d.waiting.byAddr[pod]); waits != maxWaiting {
			t.Fatalf("%d facts of one pod wait", waits)
		}
	}
	awaited := len(d.Names.inputs.awaited)
	if d.waiting.count > maxWaitingAll || awaited != len(d.waiting.byAddr) || awaited < 32 {
		t.Errorf("%d facts of %d pods wait, awaited %d", d.waiting.count, len(d.waiting.byAddr), len(d.Names.inputs.awaited))
	}
}

// tickSets does what tick does about what waits.
func (d *desk) tickSets() {
	late := d.late
	d.late = nil
	d.arrive(late, d.now)
}

// many is an answer of many addresses, which are other ones for another number.
func many(t *testing.T, question string, number, count int) []byte {
	var records []string
	for i := range count {
		records = append(records, fmt.Sprintf("%s A 10.%d.%d.%d 30", question, 100+number>>8, number&0xff, i%256))
		if i >= 255 {
			records[i] = fmt.Sprintf("%s A 11.%d.%d.%d 30", question, 100+number>>8, number&0xff, i%256)
		}
	}
	return answer(t, question, records...)
}

func TestS109_RefusedAnswersAreDropped(t *testing.T) {
	d := newDesk(t)
	pod := ends()[0][1]
	d.sets.refused = "10.9.0.1"
	ask := [][]byte{answer(t, "a.x", "a.x A 10.9.0.1 30", "a.x A 10.9.0.2 30"), answer(t, "k.d", "k.d A 10.9.0.2 30")}
	if got := d.take(pod, ask...); got != "drop accept" {
		t.Errorf("an address is refused: %s", got)
	}
	d.sets.sets["one4"] = nil
	if got := d.take(pod, ask...); got != "drop drop" {
		t.Errorf("there is no set: %s", got)
	}
	if c := d.snapshot(); c.Refused != 3 || !strings.Contains(d.log.String(), "cannot be added") {
		t.Errorf("counts %+v, logged %s", c, d.log)
	}
	d.sets.sets["one4"], d.sets.refused = map[netip.Addr]ipset.Attr{}, ""
	if got := d.take(pod, ask...); got != "accept accept" || !strings.Contains(d.log.String(), "no longer") {
		t.Errorf("all is well: %s, logged %s", got, d.log)
	}
	for _, a := range d.learned() {
		if !strings.Contains(d.sets.text("one4"), a.Addr.String()) {
			t.Errorf("%+v is held, and in no set", a)
		}
	}
}

// TestS109_AnswersWaitForTheirSet shows that an answer has no verdict while the set is about to be made, which may be
// that of another list in the end, and that the number of those that wait is bounded.
func TestS109_AnswersWaitForTheirSet(t *testing.T) {
	d := newDesk(t)
	d.retryFor = retryFor
	pod := ends()[0][1].Addr()
	d.sets.sets["three4"] = nil
	three := List{Key: "three", Names: []string{"*.x"}, Sets: setsOf("three")}
	d.Names.Follow([]List{three}, map[netip.Addr][]string{pod: {"three"}})
	d.take(ends()[0][1], answer(t, "a.x", "a.x A 10.9.0.1 30"))
	if len(d.deferred) != 1 || d.snapshot().Answers != 0 {
		t.Fatalf("%d wait, counts %+v", len(d.deferred), d.snapshot())
	}
	d.wants("of the former list", "one4", "10.9.0.1 a.x 690")
	again := func() int {
		batch := d.deferred
		d.deferred = nil
		d.update(d.now)
		return len(d.learn(batch, d.now))
	}
	four := List{Key: "four", Names: []string{"a.x"}, Sets: setsOf("four")}
	d.sets.sets["four4"] = map[netip.Addr]ipset.Attr{}
	d.Names.Follow([]List{four}, map[netip.Addr][]string{pod: {"four"}})
	if again() != 1 || d.snapshot().Refused != 0 || d.snapshot().Late != 1 || d.log.Len() > 0 {
		t.Errorf("counts %+v, logged %s", d.snapshot(), d.log)
	}
	d.wants("of the list of now", "four4", "10.9.0.1 a.x 690")
	d.sets.sets["four4"] = nil
	for i := range maxDeferred + 1 {
		d.take(ends()[0][1], answer(t, "a.x", fmt.Sprintf("a.x A 10.8.%d.%d 30", i/250, i%250)))
	}
	if len(d.deferred) != maxDeferred || d.snapshot().Refused != 1 {
		t.Errorf("%d wait, counts %+v", len(d.deferred), d.snapshot())
	}
	d.now = d.now.Add(retryFor)
	if again() != maxDeferred || d.snapshot().Refused != maxDeferred+1 {
		t.Errorf("counts %+v", d.snapshot())
	}
}

// TestS113_OnePodsAnswersDoNotWaitForAll: what waits is tried again with each packet, which that must not delay.
func TestS113_OnePodsAnswersDoNotWaitForAll(t *testing.T) {
	d := newDesk(t)
	d.retryFor = retryFor
	quiet := port("10.0.0.8:4000")
	d.SetSubject(quiet.Addr(), []string{"one"})
	d.update(d.now)
	d.sets.sets["one4"] = nil
	for n := range 200 {
		d.read(udp(t, ends()[0][0], ends()[0][1], many(t, "a.x", n, 100)))
	}
	d.read(udp(t, ends()[0][0], quiet, answer(t, "a.x", "a.x A 10.9.0.1 30")))
	facts := map[netip.Addr]int{}
	for _, e := range d.deferred {
		facts[e.flow.to.Addr()] += len(e.found)
	}
	if got := facts[ends()[0][1].Addr()]; got > 300 || got < 200 || facts[quiet.Addr()] != 1 {
		t.Errorf("%v facts wait", facts)
	}
}

// TestS109_ListsChangeDuringABatch has a list replaced after an answer was read, and before it is held: the set of the next
// list begins with its address, and the former's, which rules match yet, has it too.
func TestS109_ListsChangeDuringABatch(t *testing.T) {
	d := newDesk(t)
	d.update(d.now)
	pod := ends()[0][1].Addr()
	e := d.evaluate(udp(t, ends()[0][0], ends()[0][1], answer(t, "a.x", "a.x A 10.9.0.1 30")), d.now)
	next := List{Key: "*.x", Names: []string{"*.x"}, Sets: setsOf("next")}
	d.sets.sets["next4"] = map[netip.Addr]ipset.Attr{}
	d.Names.Follow([]List{next}, map[netip.Addr][]string{pod: {next.Key}})
	if len(d.learn([]evaluated{e}, d.now)) != 1 || len(d.Names.Elements(next.Names, npc.IPv4, false)()) != 1 {
		t.Errorf("the next list has %v", d.Names.Elements(next.Names, npc.IPv4, false)())
	}
	d.wants("one batch", "one4", "10.9.0.1 a.x 690", "next4", "10.9.0.1 a.x 690")
	d.Names.Follow(nil, map[netip.Addr][]string{pod: nil})
	d.take(ends()[0][1], answer(t, "c.x", "c.x A 10.9.0.3 30"))
	d.wants("the policy goes", "next4", "10.9.0.1 a.x 690, 10.9.0.3 c.x 690")
	d.Names.Follow(nil, nil)
	d.take(ends()[0][1], answer(t, "d.x", "d.x A 10.9.0.4 30"))
	d.wants("it was the last one", "next4", "10.9.0.1 a.x 690, 10.9.0.3 c.x 690, 10.9.0.4 d.x 690")
	d.now = time.Now().Add(2 * every)
	delete(d.sets.sets, "next4")
	delete(d.sets.sets, "one4")
	delete(d.sets.sets, "one6")
	delete(d.sets.sets, "two4")
	delete(d.sets.sets, "two6")
	ended, err := d.formers.ended(d.sets, d.now)
	if err != nil {
		t.Fatal(err)
	}
	d.Names.inputs.forgetFormers(ended)
	if d.update(d.now); len(d.formers.byKey) > 0 {
		t.Errorf("lists without a set are kept: %v", d.formers.byKey)
	}
}

// TestS109_RefusedStreamsAreReset when the segment comes again.
func TestS109_RefusedStreamsAreReset(t *testing.T) {
	d := newDesk(t)
	from, to := ends()[0][0], ends()[0][1]
	first := segment{from, to, 9, flagSYN | flagACK, nil}.bytes(t)
	data := segment{from, to, 10, flagACK, prefixed(answer(t, "a.x", "a.x A 10.9.0.1 30"))}.bytes(t)
	d.sets.refused = "10.9.0.1"
	if got := d.batch(first, data) + " " + d.batch(data); got != "accept drop reset" {
		t.Error(got)
	}
	d.sets.refused = ""
	if got := d.batch(first, data); got != "accept accept" || d.snapshot().Resets != 1 {
		t.Error(got, d.snapshot())
	}
	d.wants("a new stream", "one4", "10.9.0.1 a.x 690")
}

// TestS112_AFamilyThatTheNodeLacks: its sets are never made, and answers with its addresses do not wait for them.
func TestS112_AFamilyThatTheNodeLacks(t *testing.T) {
	d := newDesk(t)
	d.retryFor = retryFor
	d.Alive[npc.IPv6] = ipset.Set{}
	delete(d.sets.sets, "one6")
	delete(d.sets.sets, "two6")
	both := answer(t, "a.x", "a.x A 10.9.0.1 30", "a.x AAAA fd09::1 30")
	ask := func(message []byte) {
		if accepted, others := d.read(udp(t, ends()[0][0], ends()[0][1], message)); accepted != 1 || others != 0 {
			t.Errorf("%d answers are accepted, %d are not, %d wait", accepted, others, len(d.deferred))
		}
	}
	ask(answer(t, "a.x", "a.x AAAA fd09::1 30"))
	before := d.sets.listed
	ask(both)
	d.wants("an answer with both", "one4", "10.9.0.1 a.x 690")
	if n := d.sets.listed - before; n > 0 {
		t.Errorf("sets are listed %d times for a packet", n)
	}
	d.Follow(twoLists()[1:])
	ask(both)
}

// TestS109_SegmentsWaitForTheirSet, also when they are sent again or follow one that waits: together they reach the pod
// or the stream is reset.
func TestS109_SegmentsWaitForTheirSet(t *testing.T) {
	from, to := ends()[0][0], ends()[0][1]
	message := prefixed(answer(t, "a.x", "a.x A 10.9.0.1 30"))
	first := segment{from, to, 9, flagSYN | flagACK, nil}.bytes(t)
	data := segment{from, to, 10, flagACK, message}.bytes(t)
	part := segment{from, to, 15, flagACK, message[5:]}.bytes(t)
	next := segment{from, to, 10 + uint32(len(message)), flagACK, prefixed(answer(t, "c.x", "c.x A 10.9.0.2 30"))}.bytes(t)
	overlap := segment{from, to, 10, flagACK, append(bytes.Clone(message), "\x00\x01x"...)}.bytes(t)
	for _, c := range []struct {
		what  string
		later []byte
	}{{"again", data}, {"a part again", part}, {"the next", next}, {"again with more", overlap}} {
		for _, comes := range []bool{true, false} {
			d := newDesk(t)
			d.retryFor = retryFor
			set := d.sets.sets["one4"]
			d.update(d.now)
			d.sets.sets["one4"] = nil
			if accepted, others := d.read(first, data); accepted != 1 || others != 0 {
				t.Errorf("%s: at first %d accepted, %d not", c.what, accepted, others)
			}
			d.now = d.now.Add(retryFor / 2)
			if accepted, others := d.read(c.later); accepted+others != 0 {
				t.Errorf("%s: before the set is there %d accepted, %d not", c.what, accepted, others)
			}
			d.now = d.now.Add(retryFor / 2)
			if comes {
				d.sets.sets["one4"] = set
			}
			accepted, others := d.read()
			if comes && (accepted != 2 || others != 0) || !comes && (accepted != 0 || others != 2) {
				t.Errorf("%s: after it, %t, %d accepted, %d not", c.what, comes, accepted, others)
			}
			if !comes && d.batch(data) != "reset" {
				t.Errorf("%s: a stream without its answer goes on", c.what)
			}
		}
	}
}

func TestS108_NothingIsShortened(t *testing.T) {
	d := newDesk(t)
	pod := ends()[0][1]
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.1 300"))
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.1 4"))
	d.wants("a shorter TTL", "one4", "10.9.0.1 a.x 960")
	d.take(pod, answer(t, "k.d", "k.d A 10.9.0.1 40"), answer(t, "k.d", "k.d A 10.9.0.1 4"))
	d.wants("another name", "one4", "10.9.0.1 k.d 960")
	d.pass(100 * time.Second)
	d.take(pod, answer(t, "k.d", "k.d A 10.9.0.1 400"))
	d.wants("a longer TTL", "one4", "10.9.0.1 k.d 1060")
	d.pass(261 * time.Second)
	if got := d.learned(); len(got) != 1 || got[0].Name != "k.d" {
		t.Errorf("learned %+v", got)
	}
	d.wants("one name is over", "one4", "10.9.0.1 k.d 799")
}

// TestS108_ASetThatComesIsNotShortened: it begins with what was learned for another list, which is read before anything
// is added.
func TestS108_ASetThatComesIsNotShortened(t *testing.T) {
	d := newDesk(t)
	d.retryFor = retryFor
	d.sets.sets["one4"] = nil
	d.update(d.now)
	d.sets.sets["one4"] = map[netip.Addr]ipset.Attr{netip.MustParseAddr("10.9.0.1"): {Comment: "a.x", Timeout: 4000}}
	e := d.evaluate(udp(t, ends()[0][0], ends()[0][1], answer(t, "a.x", "a.x A 10.9.0.1 30", "a.x A 10.9.0.2 30")), d.now)
	for batch := []evaluated{e}; len(batch) > 0; batch = d.deferred {
		d.deferred = nil
		d.learn(batch, d.now)
		d.update(d.now)
	}
	d.wants("after an answer", "one4", "10.9.0.1 a.x 4000, 10.9.0.2 a.x 690")
	d.pass(91 * time.Second)
	d.wants("after its time", "one4", "10.9.0.1 a.x 3909")
}

// TestS108_AFormerSetIsNotShortened while rules still match it; its list may come again.
func TestS108_AFormerSetIsNotShortened(t *testing.T) {
	d := newDesk(t)
	pod := ends()[0][1]
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.1 1000"))
	d.Follow(twoLists()[1:])
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.1 30", "a.x A 10.9.0.2 30"))
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.2 300"))
	d.Follow(nil)
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.1 30", "a.x A 10.9.0.2 30"))
	d.wants("an answer for a former list", "one4", "10.9.0.1 a.x 1660, 10.9.0.2 a.x 960")
	d.pass(91 * time.Second)
	d.Follow(twoLists())
	d.update(d.now)
	d.wants("the list comes again", "one4", "10.9.0.1 a.x 1569, 10.9.0.2 a.x 869")
	d.Follow(nil)
	for n := range 200 {
		d.take(pod, many(t, "a.x", n, 200))
	}
	if got := len(d.sets.sets["one4"]); got != maxAddresses {
		t.Errorf("the set of a former list has %d", got)
	}
	d.take(pod, answer(t, "k.d", "k.d A 10.9.0.1 40"))
	delete(d.sets.sets, "one4")
	d.pass(91 * time.Second)
	d.pass(10 * time.Second)
	if len(d.learned()) > 0 || d.log.Len() > 0 {
		t.Errorf("its set is gone: %v, logged %s", d.learned(), d.log)
	}
}

// TestS114_SetsAreAdopted: what is left of their time, without the time that is for outages.
func TestS114_SetsAreAdopted(t *testing.T) {
	d := newDesk(t)
	d.sets.sets["one4"] = map[netip.Addr]ipset.Attr{
		netip.MustParseAddr("10.9.0.1"): {Comment: "a.x", Timeout: 650},
		netip.MustParseAddr("10.9.0.2"): {Comment: "a.x", Timeout: 600},
		netip.MustParseAddr("10.9.0.3"): {Comment: "foreign.x", Timeout: 900},
		netip.MustParseAddr("10.9.0.4"): {Comment: "a.x"},
		netip.MustParseAddr("10.9.0.5"): {Comment: "k.d", Timeout: 700},
	}
	d.take(ends()[0][1], answer(t, "a.x", "a.x A 10.9.0.5 0"))
	d.wants("at the start", "one4", "10.9.0.1 a.x 650, 10.9.0.5 a.x 700")
	d.pass(51 * time.Second)
	d.wants("one is over", "one4", "10.9.0.5 a.x 649")
	lists := twoLists()
	lists[0].Names = []string{"a.x"}
	d.Follow(lists)
	d.update(d.now)
	if got := d.learned(); len(got) != 1 || got[0].Name != "a.x" {
		t.Errorf("a list of other names: %+v", got)
	}
	d.Follow(nil)
	d.update(d.now)
	d.wants("no lists", "one4", "10.9.0.5 a.x 649")
	d.Names.inputs.forgetFormers([]string{"one", "two"})
	d.update(d.now)
	d.wants("no sets, as far as is known", "one4", "10.9.0.5 a.x 649")
	if got := d.learned(); len(got) > 0 {
		t.Errorf("no lists: %+v", got)
	}
}

func TestS113_EverythingIsBounded(t *testing.T) {
	d := newDesk(t)
	pod := ends()[0][1]
	d.take(pod, answer(t, "b.x", "b.x A 10.9.0.1 30"))
	d.now = d.now.Add(time.Second)
	d.take(pod, answer(t, "a.x", "a.x A 10.9.0.1 30"))
	for n := range 3 {
		d.now = d.now.Add(time.Second)
		d.take(pod, many(t, "a.x", n, 60))
	}
	name := d.index.lists["one"].names["a.x"]
	if len(name.held) != maxAddresses || len(d.sets.sets["one4"]) != maxAddresses ||
		strings.Contains(d.sets.text("one4"), "10.9.0.1 ") {
		t.Errorf("a name has %d addresses, the set %d", len(name.held), len(d.sets.sets["one4"]))
	}
	oldest := slices.MinFunc(name.held, func(a, b *held) int { return a.when.Compare(b.when) }).addr
	d.take(pod, many(t, "a.x", 7, 60), answer(t, "a.x", fmt.Sprintf("a.x A %s 30", oldest)))
	if _, found := d.sets.sets["one4"][oldest]; !found {
		t.Errorf("%s is held, and not in the set", oldest)
	}
	for n := range maxNames + 20 {
		d.now = d.now.Add(time.Second / 100)
		d.take(pod, answer(t, fmt.Sprintf("n%d.d", n), fmt.Sprintf("n%d.d A 10.20.%d.%d 90", n, n>>8, n&0xff)))
	}
	if got := len(d.index.lists["one"].expand["*.d"]); got != maxNames || d.index.lists["one"].names["n19.d"] != nil {
		t.Errorf("a wildcard has %d names", got)
	}
	for n := range 200 {
		d.now = d.now.Add(time.Second / 100)
		if n%150 == 0 {
			d.take(pod, answer(t, "keep.d", "keep.d A 10.77.0.1 90"))
		}
		d.take(pod, many(t, fmt.Sprintf("n%d.d", maxNames-n), n, 100))
	}
	if got := len(d.learned()); got != maxAddressesAll+1 || len(d.sets.sets["one4"]) != maxAddressesAll {
		t.Errorf("%d addresses are held, the set has %d", got, len(d.sets.sets["one4"]))
	}
	if d.index.lists["one"].names["keep.d"] == nil {
		t.Error("what was learned again is gone")
	}
	d.wants("another list", "two4", "10.9.0.1 b.x 690")
	if c := d.snapshot(); c.Evicted == 0 || int(c.Learned-c.Evicted) != c.Held+1 { // keep.d was learned twice
		t.Errorf("counts %+v", c)
	}
	d.pass(3 * time.Minute)
	if len(d.sets.sets["one4"])+len(d.memory.expiry)+len(d.index.lists["one"].names)+len(d.index.lists["one"].addrs) > 0 {
		t.Errorf("after all is over the set has %d", len(d.sets.sets["one4"]))
	}
}

// TestS113_AnAnswerIsBounded: what one answer says about a name is as much as a name may have, so that large answers
// delay no others.
func TestS113_AnAnswerIsBounded(t *testing.T) {
	var chain, same []string
	for n := range 500 {
		chain = append(chain, fmt.Sprintf("n%d.cluster.local CNAME n%d.cluster.local 30", n, n+1),
			fmt.Sprintf("n%d.cluster.local A 10.9.%d.%d 30", n, n>>8, n&0xff))
		same = append(same, "a.x A 10.9.0.1 30")
	}
	for _, c := range []struct {
		what                    string
		message                 []byte
		facts, members, evicted int
	}{
		{"one name", many(t, "a.x", 1, 511), maxAddresses, maxAddresses, 511 - maxAddresses},
		{"one address", answer(t, "a.x", same...), 1, 1, 0},
		{"names of the cluster's domain", answer(t, "n0.cluster.local", chain...), maxNamesCounted*maxAddresses -
			maxNamesCounted*(maxNamesCounted-1)/2, maxAddresses, 500 - maxAddresses},
	} {
		d := newDesk(t)
		lists := twoLists()
		lists[0].Names = []string{"*.cluster.local", "a.x"}
		d.Follow(lists)
		d.update(d.now)
		e := d.evaluate(udp(t, ends()[0][0], ends()[0][1], c.message), d.now)
		if got := len(e.found); got != c.facts {
			t.Errorf("%s: %d facts", c.what, got)
		}
		d.learn([]evaluated{e}, d.now)
		if got := len(d.sets.sets["one4"]); got != c.members || int(d.snapshot().Evicted) != c.evicted {
			t.Errorf("%s: the set has %d, %d were evicted", c.what, got, d.snapshot().Evicted)
		}
	}
}

// TestFollowAndReadAtOnce is for the race detector.
func TestFollowAndReadAtOnce(t *testing.T) {
	d := newDesk(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 200 {
			d.Follow(twoLists())
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
			d.SetSubject(a, []string{"one"})
			d.Forget(a)
			d.learned()
			d.snapshot()
			_ = d.why()
		}
	}()
	for n := range 200 {
		d.take(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 1), answer(t, "a.x", "a.x A 10.9.0.1 30"))
	}
	<-done
}
