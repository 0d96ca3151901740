package domainnames

import "strings"

// match is a list that has a name, and which of its names that is.
type match struct {
	list    *followed
	pattern string
}

// index finds the lists that have a name.
type index struct {
	lists   map[string]*followed // key -> list
	matches map[string][]match   // name of a list, or d of "*.d" with a dot before it -> the lists
}

func newIndex(lists map[string]*followed) index {
	x := index{lists, map[string][]match{}}
	for _, l := range lists {
		for _, name := range l.Names {
			key := strings.TrimPrefix(name, "*")
			x.matches[key] = append(x.matches[key], match{l, name})
		}
	}
	return x
}

// match returns the lists that have a name, each once: with the name itself, else with the longest wildcard.
func (x index) match(name string) (out []match) {
	if !plain(name) {
		return nil
	}
	seen := map[*followed]bool{}
	for at := 0; ; {
		for _, m := range x.matches[name[at:]] {
			if !seen[m.list] {
				seen[m.list] = true
				out = append(out, m)
			}
		}
		next := strings.IndexByte(name[at+1:], '.')
		if next < 0 {
			return out
		}
		at += 1 + next
	}
}
