// Package dedup limits what is logged about things that happen again and again.
//
// The first of a kind has a line of its own, repeats are summed up at the end of a window, and the lines are limited in
// total and for each source.
//
//	log := dedup.New(func(v packet, n int, within time.Duration) { ... }, func(n int, most netip.Addr) { ... })
//	omitted := log.Add(kind, source, value, 1, time.Now())
//	log.SumUp(time.Now()) // every second
//
// It does not know what the lines say.
package dedup

import (
	"sync"
	"time"
)

const (
	// Window is how long things of the same kind count as repeats of the first.
	Window = 10 * time.Second
	// The log takes a burst of maxBurst lines and linesPerSecond in the long run. At most maxLinesOfSource in a window
	// are about one source, so that one does not hide the others.
	maxBurst         = 100
	linesPerSecond   = 10
	maxLinesOfSource = 30
	// maxSources bounds the number of sources that are accounted for separately.
	maxSources = 1024
)

// Log counts things of a kind K from a source S, which V describes. It may be used concurrently.
type Log[K, S comparable, V any] struct {
	line func(V, int, time.Duration)
	rest func(int, S)

	mu      sync.Mutex            // guards the fields below; held during calls of line and rest
	kinds   map[K]*repeated[S, V] // with a line in the current window
	sources map[S]*source         // since the time in since
	since   time.Time
	omitted int       // things without a line since then
	tokens  float64   // lines that the log takes at the time in filled
	filled  time.Time // zero before the first line
}

// repeated are the things of a kind since its last line.
type repeated[S comparable, V any] struct {
	source S
	since  time.Time
	count  int
	last   V
}

// source counts the lines about a source, and its things without a line.
type source struct{ lines, omitted int }

// New returns a log. line writes a line about a thing, with the number of its repeats within a time; both are 0 for the
// first of its kind. rest writes how many things have no line, and the source of most of them.
func New[K, S comparable, V any](
	line func(v V, number int, within time.Duration), rest func(number int, most S),
) *Log[K, S, V] {
	return &Log[K, S, V]{line: line, rest: rest, kinds: map[K]*repeated[S, V]{},
		sources: map[S]*source{}, tokens: maxBurst}
}

// Add counts a number of things that are alike. It returns how many of them will be in no line.
func (l *Log[K, S, V]) Add(kind K, from S, v V, number int, now time.Time) (omitted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.kinds[kind]; r != nil {
		r.count += number
		r.last = v
		return 0
	}
	if !l.allow(from, number, now) {
		return number
	}
	l.kinds[kind] = &repeated[S, V]{source: from, since: now, count: number - 1, last: v}
	l.line(v, 0, 0)
	return 0
}

// SumUp writes the repeats of kinds whose windows have ended, and the number of things without a line. It returns how
// many more will be in none.
func (l *Log[K, S, V]) SumUp(now time.Time) (omitted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, r := range l.kinds {
		if now.Sub(r.since) < Window {
			continue
		}
		if r.count == 0 || !l.allow(r.source, r.count, now) {
			omitted += r.count
			delete(l.kinds, kind)
			continue
		}
		l.line(r.last, r.count, now.Sub(r.since))
		r.since, r.count = now, 0
	}
	if now.Sub(l.since) < Window {
		return omitted
	}
	if l.omitted > 0 {
		l.rest(l.omitted, l.most())
	}
	l.since, l.omitted = now, 0
	clear(l.sources)
	return omitted
}

// most returns the source of most things without a line.
func (l *Log[K, S, V]) most() (most S) {
	var of *source
	for from, s := range l.sources {
		if of == nil || s.omitted > of.omitted {
			most, of = from, s
		}
	}
	return most
}

// allow reports whether the log takes a line about a number of things of a source. If not, it counts them.
func (l *Log[K, S, V]) allow(from S, number int, now time.Time) bool {
	if !l.filled.IsZero() {
		l.tokens = min(maxBurst, l.tokens+now.Sub(l.filled).Seconds()*linesPerSecond)
	}
	l.filled = now
	s := l.sources[from]
	if s == nil && len(l.sources) < maxSources {
		s = &source{}
		l.sources[from] = s
	}
	if l.tokens >= 1 && (s == nil || s.lines < maxLinesOfSource) {
		l.tokens--
		if s != nil {
			s.lines++
		}
		return true
	}
	if s != nil {
		s.omitted += number
	}
	l.omitted += number
	return false
}
