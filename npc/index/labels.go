package index

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

// equal reports whether a map has the same labels.
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

// all returns the labels as a map.
func (l *labelSet) all() map[string]string {
	m := make(map[string]string, len(*l))
	for _, have := range *l {
		m[have.key] = have.value
	}
	return m
}
