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
