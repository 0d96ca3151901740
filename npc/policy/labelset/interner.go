package labelset

import (
	"hash/maphash"
	"slices"
	"strings"
)

// MaxTexts is how many texts an Interner remembers: those that come again and again do so soon.
const MaxTexts = 4096

// maxShared is the length, in bytes, of the texts of the largest set that an Interner remembers.
const maxShared = 512

// Interner remembers texts and sets, so that equal ones share their memory, as those of the pods of one template do. The
// zero Interner is empty.
type Interner struct {
	known map[string]string
	sets  map[uint64]Set // by a hash with the seed
	seed  maphash.Seed
}

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

// Of makes a set of a map. The caller must not change it.
func (i *Interner) Of(m map[string]string) Set {
	if len(m) == 0 {
		return nil
	}
	if i.sets == nil || len(i.sets) >= MaxTexts {
		i.sets, i.seed = make(map[uint64]Set), maphash.MakeSeed()
	}
	hash, size := uint64(0), 0
	for k, v := range m {
		hash += maphash.Comparable(i.seed, Label{k, v})
		size += len(k) + len(v)
	}
	if s, ok := i.sets[hash]; ok && s.Equal(m) {
		return s
	}
	s := i.set(m)
	if size <= maxShared {
		i.sets[hash] = s
	}
	return s
}

func (i *Interner) set(m map[string]string) Set {
	s := make(Set, 0, len(m))
	for k, v := range m {
		s = append(s, Label{i.Share(k), i.Share(v)})
	}
	slices.SortFunc(s, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return s
}
