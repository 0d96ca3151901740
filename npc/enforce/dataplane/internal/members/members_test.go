package members_test

import (
	"math/rand"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/members"
)

// TestWhatDiffers takes one entry through what can become of it.
func TestWhatDiffers(t *testing.T) {
	e := ipset.Addr(netip.MustParseAddr("10.32.1.2"))
	old, renamed := ipset.Attr{Comment: "shop/web"}, ipset.Attr{Comment: "shop/web-2"}
	m := members.New(new(int))
	check(t, m, e, "not wanted", m.Unwant(e), false, members.State{}, 0)
	check(t, m, e, "the kernel lacks it", m.Lack(e), false, members.State{}, 0)
	check(t, m, e, "wanted", m.Want(e, old), true, members.State{Want: old, Wanted: true}, 0)
	check(t, m, e, "taken", m.Have(e, old), false, members.State{Want: old, Have: old, Wanted: true, Exists: true}, 1)
	check(t, m, e, "renamed", m.Want(e, renamed), true, members.State{Want: renamed, Have: old, Wanted: true, Exists: true}, 1)
	check(t, m, e, "not wanted", m.Unwant(e), true, members.State{Have: old, Exists: true}, 1)
	check(t, m, e, "wanted again", m.Want(e, old), false, members.State{Want: old, Have: old, Wanted: true, Exists: true}, 1)
	check(t, m, e, "lost", m.LackAll(), true, members.State{Want: old, Wanted: true}, 0)
	check(t, m, e, "lost again", m.LackAll(), false, members.State{Want: old, Wanted: true}, 0)
	check(t, m, e, "given up", m.Unwant(e), false, members.State{}, 0)
	check(t, m, e, "found", m.Have(e, old), true, members.State{Have: old, Exists: true}, 1)
	check(t, m, e, "gone", m.Lack(e), false, members.State{}, 0)
}

// check compares the state of an entry, and all that follows from it.
func check(t *testing.T, m members.Members, e ipset.Entry, what string, reported, differs bool, want members.State, count int) {
	t.Helper()
	if reported != differs {
		t.Errorf("%s: it is reported as different: %v", what, reported)
	}
	if got := m.State(e); got != want || m.Count() != count {
		t.Errorf("%s: %+v, %d in the kernel; want %+v, %d", what, got, m.Count(), want, count)
	}
	there := want != members.State{}
	if m.Empty() == there {
		t.Errorf("%s: empty is %v", what, m.Empty())
	}
	for range m.States() {
		there = !there
	}
	if there {
		t.Errorf("%s: States differs from State", what)
	}
	listed := false
	for found, st := range m.Differences() {
		listed = found == e && st == want
		break
	}
	if want := want.Wanted != want.Exists || want.Wanted && want.Want != want.Have; listed != want || m.Clean() == want {
		t.Errorf("%s: it is listed as different: %v, clean: %v", what, listed, m.Clean())
	}
}

// TestDifferencesStayTrue compares, after each of many changes, what is kept up to date with what follows from the
// states of the entries.
func TestDifferencesStayTrue(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	attrs := []ipset.Attr{{}, {Comment: "shop/web"}, {Comment: "shop/db"}}
	m := members.New(new(int))
	for range 10_000 {
		e, a := ipset.Addr(netip.AddrFrom4([4]byte{10, 32, 1, byte(random.Intn(5))})), attrs[random.Intn(len(attrs))]
		switch random.Intn(9) {
		case 0, 1:
			m.Want(e, a)
		case 2, 3:
			m.Have(e, a)
		case 4, 5:
			m.Unwant(e)
		case 6, 7:
			m.Lack(e)
		default:
			m.LackAll()
		}
		differs, exist := map[ipset.Entry]bool{}, 0
		for e, st := range m.States() {
			if !st.Wanted && !st.Exists {
				t.Errorf("%s is kept without a use", e)
			}
			if st.Exists {
				exist++
			}
			if st.Wanted != st.Exists || st.Want != st.Have {
				differs[e] = true
			}
		}
		found := 0
		for e := range m.Differences() {
			if found++; !differs[e] {
				t.Errorf("%s does not differ", e)
			}
		}
		if found != len(differs) || m.Clean() != (found == 0) || m.Count() != exist {
			t.Fatalf("%d of %d differences, clean: %v, %d of %d in the kernel", found, len(differs), m.Clean(), m.Count(), exist)
		}
	}
}
