package npc

import (
	"slices"
	"strings"
)

// labelSet are labels, by key. It takes a third of the memory of a map.
type labelSet []label

type label struct{ key, value string }

// Lookup implements labels.Labels.
func (l *labelSet) Lookup(key string) (value string, exists bool) {
	for i := range *l {
		if (*l)[i].key == key {
			return (*l)[i].value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l *labelSet) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (l *labelSet) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// equal says whether a map has the same labels.
func (l *labelSet) equal(m map[string]string) bool {
	if len(*l) != len(m) {
		return false
	}
	for _, have := range *l {
		if value, ok := m[have.key]; !ok || value != have.value {
			return false
		}
	}
	return true
}

// labels makes a set of a map.
func (t *texts) labels(m map[string]string) labelSet {
	if len(m) == 0 {
		return nil
	}
	l := make(labelSet, 0, len(m))
	for k, v := range m {
		l = append(l, label{t.share(k), t.share(v)})
	}
	slices.SortFunc(l, func(a, b label) int { return strings.Compare(a.key, b.key) })
	return l
}

// maxTexts is how many texts are remembered: those that come again and again do so soon.
const maxTexts = 4096

// texts remembers texts, so that equal ones share their memory.
type texts struct{ known map[string]string }

func (t *texts) share(s string) string {
	if shared, ok := t.known[s]; ok {
		return shared
	}
	if t.known == nil || len(t.known) >= maxTexts {
		t.known = make(map[string]string)
	}
	t.known[s] = s
	return s
}
