package domainnames

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/weave-npc/weave-npc/npc"
)

// maxFormers bounds the former lists. Those that went first are forgotten first.
const maxFormers = 64

// former is a list that is followed no longer. Until the rules are written, the kernel matches its sets.
type former struct {
	List
	subjects map[netip.Addr]bool
	gone     time.Time // when it went
}

// formers are former lists as a Learner follows them.
type formers struct {
	index
	byKey map[string]former
}

// newFormers returns former lists with what is held of them, be they such that were followed until now or former ones.
func newFormers(list []former, was, were index) formers {
	out := formers{byKey: make(map[string]former, len(list))}
	lists := make(map[string]*followed, len(list))
	for _, f := range list {
		of := cmp.Or(was.lists[f.Key], were.lists[f.Key], newFollowed(f.List))
		of.missing = [len(npc.Families)]bool{} // it is looked for no longer
		out.byKey[f.Key], lists[f.Key] = f, of
	}
	out.index = newIndex(lists)
	return out
}

// has reports whether a list is a former one.
func (f formers) has(of *followed) bool { return f.lists[of.Key] == of }

// hadSubject reports whether a pod was a subject of one.
func (f formers) hadSubject(pod netip.Addr) bool {
	for _, of := range f.byKey {
		if of.subjects[pod] {
			return true
		}
	}
	return false
}

// subject returns the facts for each former list that they count for.
func (f formers) subject(pod netip.Addr, facts []fact) (out []fact) {
	for _, of := range facts {
		for _, m := range f.match(of.name) {
			if m.list.Sets[npc.FamilyOf(of.addr)].Name != "" && f.byKey[m.list.Key].subjects[pod] {
				of.list, of.pattern = m.list, m.pattern
				out = append(out, of)
			}
		}
	}
	return out
}

// ended returns the keys of those that went before a time and whose sets the kernel does not have. A list that went just
// now may not have them yet.
func (f formers) ended(kernel sets, before time.Time) (keys []string, err error) {
	for key, of := range f.byKey {
		if of.gone.After(before) {
			continue
		}
		var names []string
		for _, set := range of.Sets {
			if set.Name != "" {
				names = append(names, set.Name)
			}
		}
		found, err := kernel.ListNamed(names)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
