package domainnames

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
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
	lists := []List{{Key: Key([]string{"a.org", "b.org"}), Names: []string{"a.org", "b.org"}}}
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
	n.remember(facts)
	for i, want := range map[int]bool{0: false, maxRemembered / 3: false, maxRemembered: true, maxRemembered * 2 / 3: true} {
		if got := n.IsNamed(address(i), lists[0].Names); got != want {
			t.Errorf("address %d is remembered: %t", i, got)
		}
	}
	if n.IsNamed(address(maxRemembered), []string{"a.org"}) {
		t.Error("another list has the address")
	}
	n.Follow(nil, nil)
	if n.IsNamed(address(maxRemembered), lists[0].Names) {
		t.Error("a list that is gone has an address")
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
