package dataplane

// Leftovers returns the sets and chains that are neither desired nor in the kernel. There are none unless something was
// forgotten.
func (t *Table) Leftovers() (out []string) {
	for name, s := range t.Sets.byName {
		if !s.wanted && !s.exists || name != s.Name {
			out = append(out, "set "+name)
		}
	}
	for name, c := range t.Chains.byName {
		if !c.wanted && !c.kernel.Exists {
			out = append(out, "chain "+name)
		}
	}
	return out
}

// Violations returns what is not as the comments of Table, Set and Chain say: a set or chain under another name than its
// own, or one that differs from the kernel's and that the next plan would not look at.
func (t *Table) Violations() (out []string) {
	for name, s := range t.Sets.byName {
		if name != s.Name {
			out = append(out, "set "+s.Name+" is found as "+name)
		}
		_, marked := t.Sets.marked[s]
		if differs := s.wanted != s.exists || !s.members.Clean(); differs && !marked && t.Sets.family.active {
			out = append(out, "set "+name+" differs, and is not marked")
		}
	}
	for name, c := range t.Chains.byName {
		if name != c.name {
			out = append(out, "chain "+c.name+" is found as "+name)
		}
		_, marked := t.Chains.marked[c]
		if c.wanted != c.kernel.Exists && !marked && t.Sets.family.active {
			out = append(out, "chain "+name+" differs, and is not marked")
		}
	}
	return out
}
