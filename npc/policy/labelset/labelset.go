// Package labelset holds the labels of many objects in little memory, and finds which of many selectors may match them.
//
//	set := interner.Of(pod.Labels)
//	selectors.Add(policy, selector)
//	selectors.Each(set, func(p *policy) {...}) // p's selector may match; whether it does, the caller asks
package labelset

// Set are labels, by key. It takes a third of the memory of a map.
type Set []Label

// Label is one label.
type Label struct{ Key, Value string }

// Lookup implements labels.Labels.
func (s *Set) Lookup(key string) (value string, exists bool) {
	for i := range *s {
		if (*s)[i].Key == key {
			return (*s)[i].Value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (s *Set) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (s *Set) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}

// Equal reports whether a map has the same labels.
func (s *Set) Equal(m map[string]string) bool {
	if len(*s) != len(m) {
		return false
	}
	for _, have := range *s {
		if value, ok := m[have.Key]; !ok || value != have.Value {
			return false
		}
	}
	return true
}

// All returns the labels as a map.
func (s *Set) All() map[string]string {
	m := make(map[string]string, len(*s))
	for _, have := range *s {
		m[have.Key] = have.Value
	}
	return m
}
