package conntrack

import (
	"net/netip"
	"testing"
)

func TestLedgerMergesRequestsOfOneAddress(t *testing.T) {
	var l Ledger
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
	l.Strike([]netip.Addr{a, none})
	if !l.Has(a) || !l.Untaken() {
		t.Error("a request that nobody has carried out is struck")
	}
	l.Clear()
	if l.Has(a) || l.Urgent() != 0 || l.Untaken() {
		t.Errorf("after Clear there is %+v", l.open)
	}
}
