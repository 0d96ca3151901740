package flowlog

// await remembers the last connection of an entry that no reply is known of.
func (s *Store) await(e *entry, c Connection) {
	s.forget(e)
	if e.Verdict == Allowed && e.Replied == 0 {
		e.last = c
		s.waiting[c] = e
	}
}

// forget ends what await began. Records whose workloads have changed hands may have had the same connection: the last
// one waits for it.
func (s *Store) forget(e *entry) {
	if s.waiting[e.last] == e {
		delete(s.waiting, e.last)
	}
}

// Unreplied returns the last connection of each record that no reply is known of, each with a 0, for SetReplied.
func (s *Store) Unreplied() map[Connection]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[Connection]uint64, len(s.waiting))
	for c := range s.waiting {
		out[c] = 0
	}
	return out
}

// SetReplied takes how many connections got a reply, and returns of how many records that was not known before.
func (s *Store) SetReplied(replied map[Connection]uint64) (learned int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, number := range replied {
		e := s.waiting[c]
		if number == 0 || e == nil {
			continue
		}
		e.Replied = min(number, e.Count)
		delete(s.waiting, c)
		s.changes++
		learned++
	}
	return learned
}
