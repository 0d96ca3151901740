package npc

// Leftovers are what the model holds of something that nobody owns: sets and chains that are neither wanted nor in the kernel, and
// selectors and blocks without users.
func (m *Model) Leftovers() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		for name, s := range t.sets {
			if !s.wanted && !s.exists || name != s.Name {
				out = append(out, "set "+name)
			}
		}
		for name, c := range t.chains {
			if !c.wanted && !c.exists {
				out = append(out, "chain "+name)
			}
		}
	}
	for _, s := range m.selectors {
		if len(s.users) == 0 {
			out = append(out, "selector "+s.String())
		}
	}
	return out
}

// Crowd has chains lead to at most so many parts one by one, and divides the rules of so many targets and more.
func (m *Model) Crowd(n, targets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partTargets = targets
	for _, w := range m.ways {
		w.crowd = n
		m.pave(w)
	}
}
