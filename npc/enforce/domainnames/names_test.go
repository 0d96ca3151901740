package domainnames

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
)

// known is that a name has an address.
type known struct {
	List     string // its key
	Name     string
	Addr     netip.Addr
	Resolver netip.Addr // that said so; not valid if the answer is older than the Learner
	When     time.Time  // of the last such answer
	Until    time.Time  // when it counts no longer
}

// learned returns what is held, in the order of lists, names and addresses.
func (l *Learner) learned() []known {
	l.mu.Lock()
	out := make([]known, 0, len(l.memory.expiry))
	for _, h := range l.memory.expiry {
		out = append(out, known{h.list.Key, h.name, h.addr, h.resolver, h.when, h.until})
	}
	l.mu.Unlock()
	slices.SortFunc(out, func(a, b known) int {
		if c := strings.Compare(a.List, b.List); c != 0 {
			return c
		}
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return a.Addr.Compare(b.Addr)
	})
	return out
}

// Follow replaces the lists alone.
func (l *Learner) Follow(lists []List) { l.Names.Follow(lists, l.Names.inputs.subjects) }

// SetSubject adds a pod's address, or replaces its lists.
func (l *Learner) SetSubject(a netip.Addr, keys []string) {
	pods := maps.Clone(l.Names.inputs.subjects)
	pods[a] = keys
	l.Names.Follow(l.Names.inputs.lists, pods)
}

// Forget removes a pod's address.
func (l *Learner) Forget(a netip.Addr) {
	pods := maps.Clone(l.Names.inputs.subjects)
	delete(pods, a)
	l.Names.Follow(l.Names.inputs.lists, pods)
}

// TestNamesAreRemembered shows that an address is known for a list after it has expired, as long as there is the list,
// and that those are forgotten first that expired first.
func TestNamesAreRemembered(t *testing.T) {
	n, now := NewNames(), time.Now()
	lists := []List{{Key: "a.org b.org", Names: []string{"a.org", "b.org"}}}
	n.Follow(lists, nil)
	select {
	case <-n.Asked():
	default:
		t.Error("nobody is told that there is a list")
	}
	of := newFollowed(lists[0])
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	var facts []fact
	for i := range maxRemembered + 1 {
		facts = append(facts, fact{list: of, addr: address(i), until: now.Add(time.Duration(i) * time.Second)})
	}
	n.remember(facts, anyGeneration)
	for i, want := range map[int]bool{0: false, maxRemembered / 3: false, maxRemembered: true, maxRemembered * 2 / 3: true} {
		if got := n.IsNamed(address(i), lists[0].Names); got != want {
			t.Errorf("address %d is remembered: %t", i, got)
		}
	}
	n.Remember(lists[0].Key, "a.org", address(1), now)
	for name, want := range map[string]bool{"a.org": true, "*.org": true, "b.org": false, "*.a.org": false} {
		if n.IsNamed(address(1), []string{"c.org", name}) != want {
			t.Errorf("for a staged list, the address is one of %s: %t", name, !want)
		}
	}
	n.Follow(nil, nil)
	if n.IsNamed(address(maxRemembered), lists[0].Names) {
		t.Error("a list that is gone has an address")
	}
}

// TestS113_ANewListTakesOver shows which lists begin with what was learned for others: those that have all of their
// subjects.
func TestS113_ANewListTakesOver(t *testing.T) {
	a, b, c := netip.MustParseAddr("10.32.1.1"), netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.1.3")
	server, expired, other := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8::1")
	former := List{Key: "*.a.org x.org", Names: []string{"*.a.org", "x.org"}}
	next := List{Key: "*.a.org y.org", Names: []string{"*.a.org", "y.org"}}
	for name, tc := range map[string]struct {
		before, after map[netip.Addr][]string
		want          bool
	}{
		"the same subject":               {map[netip.Addr][]string{a: {former.Key}, b: nil}, map[netip.Addr][]string{a: {next.Key}, b: nil}, true},
		"one more subject":               {map[netip.Addr][]string{a: {former.Key}}, map[netip.Addr][]string{a: {next.Key}, c: {next.Key}}, true},
		"one subject went":               {map[netip.Addr][]string{a: {former.Key}, b: {former.Key}}, map[netip.Addr][]string{a: {next.Key}}, true},
		"all subjects went":              {map[netip.Addr][]string{a: {former.Key}}, map[netip.Addr][]string{c: {next.Key}}, false},
		"another subject":                {map[netip.Addr][]string{a: {former.Key}, b: nil}, map[netip.Addr][]string{a: nil, b: {next.Key}}, false},
		"one subject has the former yet": {map[netip.Addr][]string{a: {former.Key}, b: {former.Key}}, map[netip.Addr][]string{a: {former.Key}, b: {next.Key}}, false},
		"both lists":                     {map[netip.Addr][]string{a: {former.Key}}, map[netip.Addr][]string{a: {former.Key, next.Key}}, true},
	} {
		n, of := NewNames(), newFollowed(former)
		n.Follow([]List{former}, tc.before)
		n.remember([]fact{{list: of, name: "n.a.org", addr: server, until: time.Now().Add(time.Hour)},
			{list: of, name: "n.a.org", addr: expired, until: time.Now().Add(-time.Second)},
			{list: of, name: "x.org", addr: other, until: time.Now().Add(time.Hour)}}, anyGeneration)
		n.Follow([]List{former, next}, tc.after)
		if n.IsNamed(server, next.Names) != tc.want || n.IsNamed(expired, next.Names) != tc.want || n.IsNamed(other, next.Names) {
			t.Errorf("%s: the list has %+v", name, n.remembered[next.Key].until)
		}
		if !n.IsNamed(other, former.Names) {
			t.Errorf("%s: the former list has %+v", name, n.remembered[former.Key].until)
		}
		got := n.Elements(next.Names, npc.IPv4, false)()
		if tc.want != (len(got) == 1 && got[0].Prefix.Addr() == server && got[0].Comment == "n.a.org" && got[0].Timeout == 3600+600) ||
			len(n.Elements(next.Names, npc.IPv6, false)()) > 0 {
			t.Errorf("%s: the set begins with %+v", name, got)
		}
		if past := n.Elements(next.Names, npc.IPv4, true)(); tc.want != (len(past) == 2) {
			t.Errorf("%s: the set of the past begins with %+v", name, past)
		}
	}
}

// TestNamesSayWhyNothingIsLearned shows what is said without a learner.
func TestNamesSayWhyNothingIsLearned(t *testing.T) {
	n := NewNames()
	n.Fail(errors.New("no queue"))
	if err := n.Err(); err != nil {
		t.Errorf("without lists: %v", err)
	}
	n.Follow([]List{{Key: "a.org", Names: []string{"a.org"}}}, nil)
	if err := n.Err(); err == nil || err.Error() != "no queue" {
		t.Errorf("with a list: %v", err)
	}
}
