package domainnames

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestNamesAt shows which names an address is known to a pod by, with the answers that were copied and those that were
// queued.
func TestNamesAt(t *testing.T) {
	const question = "evil.x A 10.9.0.1 30"
	pod, other, none := ends()[0][1], port("10.0.0.8:4000"), port("10.0.0.9:4000")
	for _, c := range []struct {
		what   string
		copies [][]byte
		queued [][]byte
		want   string
	}{
		{what: "nothing"},
		{what: "a name of no list", copies: [][]byte{answer(t, "Evil.x", question)}, want: "evil.x"},
		{what: "that passed the queue", queued: [][]byte{answer(t, "evil.x", question)}, want: "evil.x"},
		{what: "another address", copies: [][]byte{answer(t, "evil.x", "evil.x A 10.9.0.2 30")}},
		{what: "an alias", copies: [][]byte{answer(t, "evil.x", "evil.x CNAME c.cdn 30", "c.cdn A 10.9.0.1 30")}, want: "evil.x"},
		{what: "a search domain", want: "evil.x",
			copies: [][]byte{answer(t, "evil.x.cluster.local", "evil.x.cluster.local CNAME evil.x 30", question)}},
		{what: "the cluster's own", copies: [][]byte{answer(t, "db.cluster.local", "db.cluster.local A 10.9.0.1 30")}},
		{what: "no host's", copies: [][]byte{answer(t, "a;b.x", "a;b.x A 10.9.0.1 30")}},
		{what: "junk", copies: [][]byte{[]byte("junk")}},
		{what: "a name of a list", queued: [][]byte{answer(t, "a.x", "a.x A 10.9.0.1 30")}, want: "a.x"},
		{what: "which comes first", want: "a.x, evil.x", queued: [][]byte{answer(t, "a.x", "a.x A 10.9.0.1 30")},
			copies: [][]byte{answer(t, "evil.x", question)}},
		{what: "at most three", want: "n3.y, n4.y, n5.y", copies: [][]byte{answer(t, "n1.y", "n1.y A 10.9.0.1 30"),
			answer(t, "n2.y", "n2.y A 10.9.0.1 30"), answer(t, "n5.y", "n5.y A 10.9.0.1 30"), answer(t, "n4.y", "n4.y A 10.9.0.1 30"),
			answer(t, "n3.y", "n3.y A 10.9.0.1 30")}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newDesk(t)
			d.SetSubject(other.Addr(), []string{"two"})
			d.SetSubject(none.Addr(), nil)
			d.take(pod, c.queued...)
			for i, m := range c.copies {
				for _, to := range []netip.AddrPort{pod, none} {
					d.hear(udp(t, ends()[0][0], to, m), d.now.Add(min(0, time.Duration(i-2))))
				}
			}
			at := func(pod netip.AddrPort) string {
				return strings.Join(d.Names.NamesAt(pod.Addr(), netip.MustParseAddr("10.9.0.1")), ", ")
			}
			if got := at(pod); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := at(other) + at(none); got != "" {
				t.Errorf("others have %q", got)
			}
			d.Forget(pod.Addr())
			if got := at(pod); got != "" {
				t.Errorf("once the pod is gone: %q", got)
			}
		})
	}
	d := newDesk(t)
	d.SetSubject(other.Addr(), []string{"two"})
	d.take(other, answer(t, "a.x", "a.x A 10.9.0.1 30"))
	d.hear(udp(t, ends()[0][0], pod, answer(t, "old.x", "old.x A 10.9.0.1 30")), d.now.Add(-keepLookup))
	if got := fmt.Sprint(d.Names.NamesAt(other.Addr(), netip.MustParseAddr("10.9.0.1"))); got != "[a.x]" {
		t.Errorf("a name of a list of others: %s", got)
	}
	if got := d.Names.NamesAt(pod.Addr(), netip.MustParseAddr("10.9.0.1")); got != nil {
		t.Errorf("an old one: %s", got)
	}
}

// TestLookupsAreBounded so that no pod has the names of others forgotten.
func TestLookupsAreBounded(t *testing.T) {
	d := newDesk(t)
	quiet := port("10.1.0.1:4000")
	d.SetSubject(quiet.Addr(), []string{"two"})
	d.hear(udp(t, ends()[0][0], quiet, answer(t, "evil.x", "evil.x A 10.9.0.1 30")), d.now)
	for n := range 30 {
		loud := port(fmt.Sprintf("10.2.0.%d:4000", n))
		d.SetSubject(loud.Addr(), []string{"two"})
		d.hear(udp(t, ends()[0][0], loud, many(t, "m.x", n, 100)), d.now)
		if got := len(d.Names.lookups.pods[loud.Addr()]); got > maxLookupsOfPod {
			t.Fatalf("a pod has %d", got)
		}
	}
	count := 0
	for _, of := range d.Names.lookups.pods {
		count += len(of)
	}
	if count != maxLookups || d.Names.lookups.count != count {
		t.Errorf("all have %d, counted %d", count, d.Names.lookups.count)
	}
	if got := fmt.Sprint(d.Names.NamesAt(quiet.Addr(), netip.MustParseAddr("10.9.0.1"))); got != "[evil.x]" {
		t.Errorf("a quiet pod has %s", got)
	}
	d.Names.Follow(nil, nil)
	if len(d.Names.lookups.pods) > 0 || d.Names.lookups.count != 0 {
		t.Errorf("without lists there are %d", d.Names.lookups.count)
	}
}
