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
