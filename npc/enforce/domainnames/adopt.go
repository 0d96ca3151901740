package domainnames

import (
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// adopt takes over what the sets of new lists hold, once there is a set.
func (l *Learner) adopt(now time.Time) {
	for _, of := range l.index.lists {
		for f := range npc.Families {
			l.adoptOnce(of.Past[f], &of.recalled[f], func(members []ipset.Element) { l.past.recall(of, members, now) })
			l.adoptOnce(of.Sets[f], &of.adopted[f], func(members []ipset.Element) { l.adoptSet(of, members, now) })
		}
	}
}

// adoptOnce calls take with the members of a set, unless it was called before or there is no set.
func (l *Learner) adoptOnce(set ipset.Set, done *bool, take func([]ipset.Element)) {
	if *done || set.Name == "" {
		return
	}
	found, err := l.sets.ListNamed([]string{set.Name})
	l.note("adopting", err, "addresses of domain names cannot be read: those that were learned before are missing")
	if *done = err == nil && len(found) == 1; *done {
		take(found[0].Members)
	}
}

// adoptSet holds the members of a set, for what is left of their time without the one that is for outages. It deletes
// those whose time is over, which are remembered, and those that have no name of the list.
func (l *Learner) adoptSet(of *followed, members []ipset.Element, now time.Time) {
	own := newIndex(map[string]*followed{of.Key: of})
	var facts []fact
	l.mu.Lock()
	for _, m := range members {
		a := m.Prefix.Addr()
		left := time.Duration(m.Timeout)*time.Second - outage
		matches := own.match(m.Comment)
		if len(of.addrs[a]) > 0 {
			continue
		}
		if len(matches) > 0 {
			facts = append(facts, fact{list: of, pattern: matches[0].pattern, name: m.Comment, addr: a, when: now,
				until: now.Add(left)})
		}
		if left <= 0 || len(matches) == 0 {
			l.memory.gone = append(l.memory.gone, element{of, a})
		} else {
			l.memory.hold(facts[len(facts)-1])
		}
	}
	l.mu.Unlock()
	l.past.remember(facts, anyGeneration)
	l.deleteGone()
}
