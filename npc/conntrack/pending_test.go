package conntrack

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"testing"
)

func TestPendingMergesRequestsOfOneAddress(t *testing.T) {
	var l Pending
	a, b, none := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	expect := func(when string, urgent int, scope Scope) {
		t.Helper()
		if l.Urgent() != urgent || l.open[a].Scope != scope || !l.Has(a) || l.Has(none) {
			t.Errorf("%s: %d are urgent, %+v", when, l.Urgent(), l.open)
		}
	}
	l.Enter(Request{Addr: a, Scope: All, Later: true})
	expect("one that can wait", 0, All)
	l.Enter(Request{Addr: a, Scope: WithLocalPods})
	expect("urgent, and as wide as before", 1, All)
	l.Enter(Request{Addr: a, Later: true})
	expect("as urgent as before", 1, All)
	l.Enter(Request{Addr: b, Later: true})
	l.Hurry(b)
	l.Hurry(none)
	expect("another becomes urgent", 2, All)
	l.Remove([]netip.Addr{a, none})
	if !l.Has(a) || !l.Untaken() {
		t.Error("a request that was not executed is removed")
	}
	l.Clear()
	if l.Has(a) || l.Urgent() != 0 || l.Untaken() {
		t.Errorf("after Clear there is %+v", l.open)
	}
}

// TestTheWayOfARequest follows addresses from their entry until their connections are deleted.
func TestTheWayOfARequest(t *testing.T) {
	var l Pending
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	due := func(when, want string, urgent ...netip.Addr) []Request {
		t.Helper()
		hurry := map[netip.Addr]struct{}{}
		for _, x := range urgent {
			hurry[x] = struct{}{}
		}
		requests := l.Due(hurry)
		got := ""
		for _, r := range requests {
			got += fmt.Sprintf("%s all=%t later=%t; ", r.Addr, r.Scope == All, r.Later)
		}
		if got != want {
			t.Errorf("%s: due are %swant %s", when, got, want)
		}
		return requests
	}
	l.Enter(Request{Addr: b, Scope: All})
	l.Enter(Request{Addr: a, Later: true})
	taken := due("entered", "10.0.0.1 all=false later=true; 10.0.0.2 all=true later=false; ")
	l.Asked(taken)
	due("being carried out", "")
	if l.Untaken() || !l.Has(a) || l.Urgent() != 1 {
		t.Errorf("asked for, and still listed: %+v", l.open)
	}
	urgent := due("a pod waits for it now", "10.0.0.1 all=false later=false; ", a)
	l.Asked(urgent)
	due("asked for as urgent", "", a)
	l.Enter(Request{Addr: a, Scope: All})
	l.Asked(taken) // the answer to what was asked before it was entered again
	wider := due("of more connections now", "10.0.0.1 all=true later=false; ")
	l.Remove([]netip.Addr{a, b})
	if !l.Has(a) || l.Has(b) {
		t.Errorf("what was asked for again is removed, or what was done is not: %+v", l.open)
	}
	l.Asked(append(wider, Request{Addr: b}))
	l.Remove([]netip.Addr{a})
	due("all is done", "")
	if l.Has(a) || l.Has(b) {
		t.Errorf("left are %+v", l.open)
	}
}

// TestPendingKeepsItsRules checks after each of many calls that requests are in order, each address once, that none is
// due twice unless it was entered again or became urgent, and that an address stays until its request was carried out.
func TestPendingKeepsItsRules(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	var l Pending
	listed, asked := map[netip.Addr]Request{}, map[netip.Addr]bool{}
	for range 10_000 {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.Intn(4))})
		switch random.Intn(5) {
		case 0, 1:
			r := Request{Addr: a, Scope: Scope(random.Intn(2)), Later: random.Intn(2) == 0}
			l.Enter(r)
			if was, ok := listed[a]; ok {
				r.Scope, r.Later = max(r.Scope, was.Scope), r.Later && was.Later
			}
			listed[a], asked[a] = r, false
		case 2:
			if l.Hurry(a); listed[a].Later {
				listed[a], asked[a] = Request{Addr: a, Scope: listed[a].Scope}, false
			}
		case 3:
			if l.Remove([]netip.Addr{a}); asked[a] {
				delete(listed, a)
				delete(asked, a)
			}
		}
		due := l.Due(nil)
		if !slices.IsSortedFunc(due, func(a, b Request) int { return a.Addr.Compare(b.Addr) }) {
			t.Fatalf("not in order: %v", due)
		}
		waiting := 0
		for a, r := range listed {
			if !l.Has(a) {
				t.Fatalf("%s is lost", a)
			}
			if !asked[a] {
				waiting++
				if !slices.Contains(due, r) {
					t.Fatalf("due are %v without %v", due, r)
				}
			}
		}
		if len(due) != waiting || l.Untaken() != (waiting > 0) || len(l.open) != len(listed) {
			t.Fatalf("due are %v, of %v; asked: %v", due, listed, asked)
		}
		if random.Intn(3) == 0 {
			l.Asked(due)
			for _, r := range due {
				asked[r.Addr] = true
			}
		}
	}
}
