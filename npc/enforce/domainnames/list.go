package domainnames

import (
	"container/list"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// sets is what a Learner uses of ipset.Conn.
type sets interface {
	Apply([]ipset.Op) error
	ListNamed(names []string) ([]ipset.Listing, error)
	Close() error
}

// List is a list of names whose addresses are learned.
type List struct {
	Key string // names the list
	// Names are in lower case without a final dot. "*.d" stands for names with one or more labels before d.
	Names []string
	// Sets are what the addresses go to: hash:ip with a timeout. One without a name is not there.
	Sets [len(npc.Families)]ipset.Set
	// Past are such sets that hold what was learned for long after it has expired, for the next Learner. No rule matches
	// them.
	Past [len(npc.Families)]ipset.Set
}

// equal reports whether another list is the same.
func (l List) equal(other List) bool {
	return l.Key == other.Key && l.Sets == other.Sets && l.Past == other.Past && slices.Equal(l.Names, other.Names)
}

// name is what is held of one name of a list.
type name struct {
	pattern string
	held    []*held
	when    time.Time // when an address was learned last
}

// followed is a list that is followed, and what is held of it.
type followed struct {
	List
	// adopted is set when what the kernel's set had at first is held.
	adopted [len(npc.Families)]bool
	// missing is set while the kernel has no set. It takes nothing before it is adopted, which could end sooner then.
	missing [len(npc.Families)]bool
	// recalled is set when what the set of the past had at first is remembered, and kept has what that set has by now ->
	// until when.
	recalled [len(npc.Families)]bool
	kept     map[netip.Addr]time.Time
	names    map[string]*name            // name -> its addresses
	expand   map[string]map[string]*name // wildcard -> the names that it stands for
	addrs    map[netip.Addr][]*held
	order    *list.List // of *held, what was learned longest ago first
}

func newFollowed(l List) *followed {
	return &followed{List: l, names: map[string]*name{}, expand: map[string]map[string]*name{},
		kept: map[netip.Addr]time.Time{}, addrs: map[netip.Addr][]*held{}, order: list.New()}
}

// until returns until when an address is held; zero if it is not.
func (l *followed) until(a netip.Addr) (latest time.Time) {
	for _, h := range l.addrs[a] {
		latest = later(latest, h.until)
	}
	return latest
}

// name returns a name, which it makes if needed.
func (l *followed) name(pattern, text string) *name {
	n := l.names[text]
	if n == nil {
		n = &name{pattern: pattern}
		l.names[text] = n
		if strings.HasPrefix(pattern, "*") {
			if l.expand[pattern] == nil {
				l.expand[pattern] = map[string]*name{}
			}
			l.expand[pattern][text] = n
		}
	}
	return n
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// match is a list that has a name, and which of its names that is.
type match struct {
	list    *followed
	pattern string
}

// index finds the lists that have a name.
type index struct {
	lists   map[string]*followed // key -> list
	matches map[string][]match   // name of a list, or d of "*.d" with a dot before it -> the lists
}

func newIndex(lists map[string]*followed) index {
	x := index{lists, map[string][]match{}}
	for _, l := range lists {
		for _, name := range l.Names {
			key := strings.TrimPrefix(name, "*")
			x.matches[key] = append(x.matches[key], match{l, name})
		}
	}
	return x
}

// match returns the lists that have a name, each once: with the name itself, else with the longest wildcard.
func (x index) match(name string) (out []match) {
	if len(x.lists) == 0 || !plain(name) {
		return nil
	}
	seen := map[*followed]bool{}
	for at := 0; ; {
		for _, m := range x.matches[name[at:]] {
			if !seen[m.list] {
				seen[m.list] = true
				out = append(out, m)
			}
		}
		next := strings.IndexByte(name[at+1:], '.')
		if next < 0 {
			return out
		}
		at += 1 + next
	}
}
