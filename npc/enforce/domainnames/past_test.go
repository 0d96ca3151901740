package domainnames

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
)

// TestS113_TheNextLearnerKnowsThePast: what has expired before, what expires while no Learner runs, and what is
// forgotten. What was learned is not known before the sets were read.
func TestS113_TheNextLearnerKnowsThePast(t *testing.T) {
	d := newDesk(t)
	lists := twoLists()
	lists[0].Past = setsOf("past")
	d.sets.sets["past4"], d.sets.sets["past6"] = map[netip.Addr]ipset.Attr{}, map[netip.Addr]ipset.Attr{}
	d.Follow(lists)
	d.take(ends()[0][1], answer(t, "a.x", "a.x A 10.9.0.1 30"))
	d.pass(2 * time.Minute)
	d.wants("one is over", "one4", "", "past4", "10.9.0.1 a.x 2073480")
	d.take(ends()[0][1], answer(t, "k.d", "k.d A 10.9.0.2 30"))
	next := newDesk(t)
	next.sets.sets, next.now = d.sets.sets, d.now
	next.Follow(lists)
	if next.Names.AreKnown() {
		t.Error("it is known before the sets are read")
	}
	for _, attr := range d.sets.sets {
		for a, of := range attr {
			of.Timeout = min(of.Timeout, 500) // longer than the entry counts
			attr[a] = of
		}
	}
	next.pass(0)
	next.wants("all is over", "one4", "")
	for _, a := range []string{"10.9.0.1", "10.9.0.2"} {
		if len(next.Names.remembered["one"].until[netip.MustParseAddr(a)]) == 0 {
			t.Errorf("%s is not remembered", a)
		}
	}
	if !next.Names.AreKnown() {
		t.Error("it is not known after the sets are read")
	}
	next.past.forgotten = []element{{next.index.lists["one"], netip.MustParseAddr("10.9.0.1")}}
	next.deleteGone()
	next.wants("one is forgotten", "past4", "10.9.0.2 k.d 2073600")
}

// TestS113_ThePastDelaysNoAnswer, however much of it the kernel refuses: it is tried again from time to time, not with
// each answer.
func TestS113_ThePastDelaysNoAnswer(t *testing.T) {
	d := newDesk(t)
	lists := twoLists()
	lists[0].Past = setsOf("past")
	d.Follow(lists)
	pod := ends()[0][1]
	for n := range 20 {
		d.take(pod, many(t, fmt.Sprintf("n%d.d", n), n, 100))
	}
	before := d.sets.ops
	d.take(pod, answer(t, "c.x", "c.x A 10.9.0.1 30"))
	if got := d.sets.ops - before; got > 0 {
		t.Errorf("an answer of no list takes %d operations", got)
	}
	d.sets.sets["past4"] = map[netip.Addr]ipset.Attr{}
	d.past.retry = time.Time{} // a second later
	d.pass(time.Second)
	if got := len(d.sets.sets["past4"]); got != 2000 {
		t.Errorf("the set has %d once it is there", got)
	}
}
