package span

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// overdue is how long an object waits at most for a relay to say that it knows of it. A relay that may not read a kind never does.
const overdue = time.Minute

// Gate has objects of other kinds wait until the pods that they name have been handled. NewGate returns one, which is closed. Its methods may
// be called by several goroutines.
type Gate struct {
	mu      sync.Mutex
	changed chan struct{}   // is closed when the gate opens further
	whole   bool            // all pods have been handled, whatever names them
	reached Versions        // the pods named up to there have been handled
	passed  Versions        // the newest that went through
	term    uint64          // marks of terms before say nothing any more
	waits   map[string]wait // by kind
}

// wait is the first object of a kind that waits.
type wait struct {
	version string
	since   time.Time
}

// NewGate returns a gate that lets nothing through yet.
func NewGate() *Gate {
	return &Gate{changed: make(chan struct{}), reached: Versions{}, passed: Versions{}, waits: map[string]wait{}}
}

// Await returns when an object of a kind may be passed on, or false if the context has ended before.
func (g *Gate) Await(ctx context.Context, kind, version string) bool {
	for {
		g.mu.Lock()
		open := g.whole || !older(g.reached[kind], version)
		if open && older(g.passed[kind], version) {
			g.passed[kind] = version
		}
		if open {
			delete(g.waits, kind)
		} else if _, waits := g.waits[kind]; !waits {
			g.waits[kind] = wait{version, time.Now()}
		}
		changed := g.changed
		g.mu.Unlock()
		if open {
			return true
		}
		select {
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.waits, kind)
			return false
		case <-changed:
		}
	}
}

// Reach handles a mark: the pods before it have been handled.
func (g *Gate) Reach(m *Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.term != g.term {
		return // other pods may have followed since
	}
	g.whole, g.reached = m.whole, m.upTo
	close(g.changed)
	g.changed = make(chan struct{})
}

// Limit lets nothing through that is newer than what was, until a mark that is made after it has been handled. It is called before other pods
// are passed on than those that the last mark was about. It returns the newest that went through.
func (g *Gate) Limit() Versions {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term++
	g.whole, g.reached = false, maps.Clone(g.passed)
	return maps.Clone(g.passed)
}

// Wanted returns what a relay has to know of each kind: the newest that went through, and what is overdue.
func (g *Gate) Wanted() Versions {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := maps.Clone(g.passed)
	for kind, w := range g.waits {
		if time.Since(w.since) >= overdue {
			wanted[kind] = w.version
		}
	}
	return wanted
}

// Overdue returns a kind of which an object waits for too long that is newer than what a relay knows; empty if there is none.
func (g *Gate) Overdue(known Versions) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for kind, w := range g.waits {
		if time.Since(w.since) >= overdue && older(known[kind], w.version) {
			return kind
		}
	}
	return ""
}

// Mark returns a mark to be passed on behind the pods that objects up to some versions name, as an object that goes with them. version is that
// of the pods.
func (g *Gate) Mark(version string, upTo Versions) *corev1.Pod {
	p := g.mark(version)
	for kind, v := range upTo {
		p.Annotations[prefix+kind] = v
	}
	return p
}

// MarkWhole returns a mark to be passed on behind all pods that there are.
func (g *Gate) MarkWhole(version string) *corev1.Pod {
	p := g.mark(version)
	p.Annotations[wholeKey] = "true"
	return p
}

func (g *Gate) mark(version string) *corev1.Pod {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{
		termKey: strconv.FormatUint(g.term, 10)}}}
}
