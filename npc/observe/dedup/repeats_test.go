package dedup

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// lines is a log that can be read.
type lines struct {
	*Log[string, string, int]
	said []string
}

func newLines() *lines {
	l := &lines{}
	l.Log = New[string](func(v, n int, within time.Duration) { l.said = append(l.said, fmt.Sprint(v, n, within)) },
		func(n int, most string) { l.said = append(l.said, fmt.Sprint(n, " of ", most)) })
	return l
}

// take returns what was said since the last call.
func (l *lines) take() []string {
	said := l.said
	l.said = nil
	return said
}

// TestTheFirstHasALine and repeats are summed up while there are any.
func TestTheFirstHasALine(t *testing.T) {
	l, now := newLines(), time.Unix(1000, 0)
	want := func(want ...string) {
		t.Helper()
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	l.Add("a", "x", 1, 1, now)
	l.Add("b", "x", 2, 5, now)
	want("1 0 0s", "2 0 0s")
	l.Add("a", "x", 3, 2, now)
	l.SumUp(now.Add(Window - 1))
	want()
	if l.SumUp(now.Add(Window)); len(l.said) == 2 && l.said[0][0] == '2' {
		slices.Reverse(l.said)
	}
	want("3 2 10s", "2 4 10s")
	l.SumUp(now.Add(2 * Window))
	want()
	if len(l.kinds) > 0 {
		t.Errorf("%d kinds are kept", len(l.kinds))
	}
}

// TestASourceHidesNoOther has many kinds come from one source, and one from another.
func TestASourceHidesNoOther(t *testing.T) {
	l, now := newLines(), time.Unix(1000, 0)
	omitted := 0
	for i := range 50 {
		omitted += l.Add(fmt.Sprint(i), "x", i, 1, now)
	}
	l.Add("other", "y", 99, 1, now)
	if n := len(l.take()); n != maxLinesOfSource+1 || omitted != 50-maxLinesOfSource {
		t.Errorf("%d lines, and %d things in none", n, omitted)
	}
	l.SumUp(now.Add(Window))
	if got, want := l.take(), []string{"20 of x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestManySources are within the limits of lines and of memory.
func TestManySources(t *testing.T) {
	l, now := newLines(), time.Unix(1000, 0)
	const seconds, perSecond = 60, 20000
	logged, omitted := 0, 0
	for s := range seconds {
		for i := range perSecond {
			kind := fmt.Sprint(s, i)
			omitted += l.Add(kind, kind, 1, 1, now)
			omitted += l.Add(kind, kind, 1, 1, now)
		}
		now = now.Add(time.Second)
		omitted += l.SumUp(now)
		for _, line := range l.take() {
			var n, repeats int
			if _, err := fmt.Sscanf(line, "%d %d", &n, &repeats); err == nil && n == 1 {
				logged++
			}
		}
	}
	if most := maxBurst + seconds*linesPerSecond; logged > most {
		t.Errorf("%d lines in %d seconds, not %d at most", logged, seconds, most)
	}
	if n := len(l.kinds); n > maxBurst+linesPerSecond*30 {
		t.Errorf("%d kinds are kept", n)
	}
	if n := len(l.sources); n > maxSources {
		t.Errorf("%d sources are kept", n)
	}
	if omitted < 2*seconds*perSecond-10*logged {
		t.Errorf("%d of %d things are said to be in no line", omitted, 2*seconds*perSecond)
	}
}
