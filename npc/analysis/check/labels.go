package check

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
)

// maxCombinations is how many combinations of labels are distinguished in one namespace at most.
const maxCombinations = 20_000

// combination is labels up to one key, and the selectors that they do not contradict.
type combination struct {
	matches    []uint64
	before     *combination
	key, value string // no label has the key if it is empty
}

// combinations returns labels for each set of selectors that some labels match exactly. It walks over the keys of all
// selectors. Labels up to a key that contradict the same selectors are continued alike, so that one of them stands for
// all. It returns false if there are too many.
func combinations(selectors []labels.Selector) (out []map[string]string, ok bool) {
	all := make([]labels.Requirements, len(selectors))
	keys := map[string]bool{}
	for i, s := range selectors {
		all[i], _ = s.Requirements()
		for _, r := range all[i] {
			keys[r.Key()] = true
		}
	}
	words := (len(selectors) + 63) / 64
	first := &combination{matches: make([]uint64, words)}
	for i := range first.matches {
		first.matches[i] = ^uint64(0)
	}
	at := []*combination{first}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		values := distinct(all, key, words)
		next := at[:0:0]
		known := map[string]bool{}
		for _, c := range at {
			for _, v := range values {
				matches := make([]uint64, words)
				for w := range matches {
					matches[w] = c.matches[w] & v.matches[w]
				}
				if id := bitText(matches); !known[id] {
					known[id] = true
					next = append(next, &combination{matches: matches, before: c, key: v.key, value: v.value})
				}
			}
			if len(next) > maxCombinations {
				return nil, false
			}
		}
		at = next
	}
	for _, c := range at {
		out = append(out, c.labels())
	}
	return out, true
}

// distinct returns the values of a key that requirements distinguish: no label, the values that they name, and another
// one.
func distinct(all []labels.Requirements, key string, words int) (out []combination) {
	named := map[string]bool{}
	for _, requirements := range all {
		for _, r := range requirements {
			if r.Key() == key {
				for _, v := range r.ValuesUnsorted() {
					named[v] = true
				}
			}
		}
	}
	known := map[string]bool{}
	add := func(has labels.Set, value string) {
		c := combination{matches: make([]uint64, words), value: value}
		for i, requirements := range all {
			if !slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
				return r.Key() == key && !r.Matches(has)
			}) {
				c.matches[i/64] |= 1 << (i % 64)
			}
		}
		if len(has) > 0 {
			c.key = key
		}
		if id := bitText(c.matches); !known[id] {
			known[id] = true
			out = append(out, c)
		}
	}
	add(nil, "")
	for _, v := range slices.Sorted(maps.Keys(named)) {
		add(labels.Set{key: v}, v)
	}
	other := "other"
	for n := 2; named[other]; n++ {
		other = "other-" + strconv.Itoa(n)
	}
	add(labels.Set{key: other}, other)
	return out
}

// labels returns the labels.
func (c *combination) labels() map[string]string {
	out := map[string]string{}
	for ; c != nil; c = c.before {
		if c.key != "" {
			out[c.key] = c.value
		}
	}
	return out
}

// bitText returns bits as a key of maps.
func bitText(bits []uint64) string {
	text := make([]byte, 0, len(bits)*8)
	for _, w := range bits {
		for shift := 0; shift < 64; shift += 8 {
			text = append(text, byte(w>>shift))
		}
	}
	return string(text)
}
