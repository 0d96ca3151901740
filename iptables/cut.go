package iptables

import (
	"maps"
	"slices"
)

// The names of the groups with a fixed place in a split update. The chains of the first group refer to no others, those
// of the last one to any.
const (
	FirstGroup = "\x00first"
	lastGroup  = ""
)

// Part is a part of an update that is applied by itself.
type Part struct {
	// Groups are the groups of its chains, sorted, without the first and the last one.
	Groups []string
	Update
}

// Split divides an update with more than limit rules by groups of chains. group returns the group of a chain:
// FirstGroup, a name, or "" for the last group. Small consecutive groups share a part of at most limit rules. The last
// part also has the jumps and the deletions.
func (u Update) Split(limit int, group func(chain string) string) []Part {
	groups := u.groups(group)
	named := slices.DeleteFunc(slices.Sorted(maps.Keys(groups)),
		func(g string) bool { return g == FirstGroup || g == lastGroup })
	if u.size() <= limit {
		return []Part{{named, u}}
	}
	var parts []Part
	if first := groups[FirstGroup]; first != nil {
		parts = append(parts, Part{nil, *first})
	}
	room := 0
	for _, g := range named {
		part := *groups[g]
		if room -= part.size(); room < 0 {
			parts = append(parts, Part{})
			room = limit - part.size()
		}
		to := &parts[len(parts)-1]
		to.Groups = append(to.Groups, g)
		to.add(part)
	}
	last := Update{}
	if groups[lastGroup] != nil {
		last = *groups[lastGroup]
	}
	last.Jumps, last.Delete = u.Jumps, u.Delete
	if !last.Empty() {
		parts = append(parts, Part{nil, last})
	}
	return parts
}

// groups returns the chains of the update by group.
func (u Update) groups(group func(chain string) string) map[string]*Update {
	groups := map[string]*Update{}
	of := func(chain string) *Update {
		g := group(chain)
		if groups[g] == nil {
			groups[g] = &Update{}
		}
		return groups[g]
	}
	for _, c := range u.Replace {
		of(c.Name).add(Update{Replace: []Chain{c}})
	}
	for chain, rules := range u.Insert {
		of(chain).add(Update{Insert: map[string][]Rule{chain: rules}})
	}
	for _, e := range u.Edits {
		of(e.Chain).add(Update{Edits: []Edit{e}})
	}
	return groups
}

// add adds the chains of another update.
func (u *Update) add(v Update) {
	u.Replace = append(u.Replace, v.Replace...)
	if u.Insert == nil {
		u.Insert = map[string][]Rule{}
	}
	maps.Copy(u.Insert, v.Insert)
	u.Edits = append(u.Edits, v.Edits...)
}

// size returns the number of rules that the update writes.
func (u Update) size() int {
	n := 0
	for _, c := range u.Replace {
		n += len(c.Rules) + len(c.Tail)
	}
	for _, rules := range u.Insert {
		n += len(rules)
	}
	for _, e := range u.Edits {
		_, inserted := e.Count()
		n += inserted
	}
	return n
}
