package domainnames

import (
	"net/netip"
	"slices"
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

// isFormer reports whether a fact is for a former list: only its set gets the address.
func (l *Learner) isFormer(f fact) bool { return l.formers.lists[f.list.Key] == f.list }

// keepFormers keeps those of the lists that are followed no longer. in.mu is held.
func (in *inputs) keepFormers(next []List) {
	for _, l := range in.lists {
		if slices.ContainsFunc(next, l.equal) {
			continue
		}
		f := former{l, map[netip.Addr]bool{}, time.Now()}
		for a, keys := range in.subjects {
			if slices.Contains(keys, l.Key) {
				f.subjects[a] = true
			}
		}
		in.formers = append(in.formers, f)
	}
	in.formers = slices.DeleteFunc(in.formers, func(f former) bool {
		return slices.ContainsFunc(next, func(l List) bool { return l.Key == f.Key })
	})
	in.formers = in.formers[max(0, len(in.formers)-maxFormers):]
}

// forgetFormers forgets former lists.
func (in *inputs) forgetFormers(keys []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.formers = slices.DeleteFunc(in.formers, func(f former) bool { return slices.Contains(keys, f.Key) })
	in.changed = true
}

// formers are former lists as a Learner follows them.
type formers struct {
	index
	byKey map[string]former
}

func newFormers(list []former) formers {
	out := formers{byKey: make(map[string]former, len(list))}
	lists := make(map[string]*followed, len(list))
	for _, f := range list {
		out.byKey[f.Key], lists[f.Key] = f, newFollowed(f.List)
	}
	out.index = newIndex(lists)
	return out
}

// subjectBefore returns the facts for each former list that they count for.
func (l *Learner) subjectBefore(pod netip.Addr, facts []fact) (out []fact) {
	for _, f := range facts {
		for _, m := range l.formers.match(f.name) {
			if m.list.Sets[npc.FamilyOf(f.addr)].Name != "" && l.formers.byKey[m.list.Key].subjects[pod] {
				f.list, f.pattern = m.list, m.pattern
				out = append(out, f)
			}
		}
	}
	return out
}

// endFormers forgets former lists once the kernel does not have their sets. One that went just now may not have them
// yet.
func (l *Learner) endFormers(now time.Time) error {
	var ended []string
	for key, f := range l.formers.byKey {
		if now.Sub(f.gone) < every {
			continue
		}
		var names []string
		for _, set := range f.Sets {
			if set.Name != "" {
				names = append(names, set.Name)
			}
		}
		found, err := l.sets.ListNamed(names)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			ended = append(ended, key)
		}
	}
	if len(ended) > 0 {
		l.Names.inputs.forgetFormers(ended)
	}
	return nil
}
