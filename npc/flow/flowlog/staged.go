package flowlog

import (
	"slices"
	"time"
)

// maxStaged limits the groups of a record. Those that were updated least recently are removed.
const maxStaged = 16

// addStaged returns what groups would do with the connections of a record, once a number of connections are added.
// Readers have the old slice.
func addStaged(old, now []Staged, number int, at time.Time) []Staged {
	if len(now) == 0 {
		return old
	}
	out := slices.Clone(old)
	for _, s := range now {
		s.Count, s.First, s.Last = uint64(number), at, at
		i := slices.IndexFunc(out, func(o Staged) bool { return o.Group == s.Group })
		switch {
		case i < 0:
			out = append(out, s)
			continue
		case out[i].Content == s.Content:
			s.Count, s.First = s.Count+out[i].Count, out[i].First
		}
		out[i] = s
	}
	slices.SortFunc(out, func(a, b Staged) int { return b.Last.Compare(a.Last) })
	return out[:min(len(out), maxStaged)]
}

// KeepStaged removes the results of groups whose content differs from the one given: their policies have changed.
func (s *Store) KeepStaged(content map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := func(w Staged) bool { return content[w.Group] != w.Content }
	for _, e := range s.records {
		if slices.ContainsFunc(e.Staged, gone) {
			e.Staged = slices.DeleteFunc(slices.Clone(e.Staged), gone) // readers have the old slice
			s.changes++
		}
	}
}
