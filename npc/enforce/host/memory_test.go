package host

import "testing"

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int64
		limited    bool
	}{
		{"limited", "209715200\n", 188743680, true},
		{"version 2, not limited", "max\n", 0, false},
		{"version 1, not limited", "9223372036854771712\n", 0, false},
		{"empty", "", 0, false},
		{"nothing at all", "0\n", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if limit, limited := memoryLimit(c.text); limit != c.limit || limited != c.limited {
				t.Errorf("%d, %t", limit, limited)
			}
		})
	}
}
