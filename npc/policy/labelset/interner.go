package labelset

import (
	"slices"
	"strings"
)

// MaxTexts is how many texts an Interner remembers: those that come again and again do so soon.
const MaxTexts = 4096

// Interner remembers texts, so that equal ones share their memory. The zero Interner is empty.
type Interner struct{ known map[string]string }

// Share returns a text that is remembered as equal, which shares no memory with the given one.
func (i *Interner) Share(s string) string {
	if shared, ok := i.known[s]; ok {
		return shared
	}
	if i.known == nil || len(i.known) >= MaxTexts {
		i.known = make(map[string]string)
	}
	s = strings.Clone(s) // not to keep what it was read with
	i.known[s] = s
	return s
}

// Of makes a set of a map.
func (i *Interner) Of(m map[string]string) Set {
	if len(m) == 0 {
		return nil
	}
	s := make(Set, 0, len(m))
	for k, v := range m {
		s = append(s, Label{i.Share(k), i.Share(v)})
	}
	slices.SortFunc(s, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return s
}
