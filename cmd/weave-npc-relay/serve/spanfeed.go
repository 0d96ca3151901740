package serve

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/span"
)

const (
	// reachedAnnotation, with the name of a kind, is what spans have taken in of it.
	reachedAnnotation = "span.weave-npc/"
	// catchUp is how long an agent waits for a relay to reach the versions that it has, and computation how long for the relay to compute spans at all.
	catchUp, computation = 2500 * time.Millisecond, 20 * time.Second
	// admitted is how many agents may begin before events are looked at again.
	admitted = 8
)

// SpanObserver is told what happens to the computation of spans.
type SpanObserver interface {
	// Applied is called after a change of a kind has been taken into the spans.
	Applied(kind string, took time.Duration)
	// Spans is called with the number of agents that watch spans, and the number of pods from which these are computed; 0 of none if they are not.
	Spans(agents, pods int)
}

// spanRequest is an agent that asks for its span.
type spanRequest struct {
	ctx     context.Context
	node    string
	version uint64
	after   map[string]uint64 // kind -> version
	arrived time.Time
	reply   chan error // the end of the wait
	// stream is nil until the reply.
	stream *spanStream
	// reached is the version of the pods that the stream begins with.
	reached uint64
}

// feed computes spans and fills the streams of agents. One goroutine uses it.
type feed struct {
	spans   *span.Spans
	taps    []*tap
	pods    *tap // one of them
	packing *packing
	streams map[string]map[*spanStream]struct{} // node -> its agents, of which there may be two for a while
	agents  int
	waiting []*spanRequest

	computed time.Time // zero until all kinds have been listed
	lost     bool      // a tap is at its end: all has to begin anew
	marking  bool      // agents are to be told soon what has been reached
	stop     context.CancelFunc

	observer SpanObserver
	slow     func()
}

// take takes in what a tap brings.
func (f *feed) take(t *tap, d drop) {
	switch {
	case d.lost:
		f.lost = true
		return
	case d.listed:
		t.listed = true
	default:
		start := time.Now()
		f.hand(d.apply(f.spans))
		f.observer.Applied(t.kind.kind.Name, time.Since(start))
		f.marking = f.marking || t != f.pods
	}
	t.applied = max(t.applied, d.version)
}

// hand hands changes to the agents that they are for.
func (f *feed) hand(changes []span.Change) {
	for _, c := range changes {
		m := &message{typ: watch.Added, entry: c.Object.(*entry)}
		switch c.Event {
		case span.Changes:
			m.typ = watch.Modified
		case span.Ends:
			m.typ = watch.Deleted
		case span.Leaves:
			left, err := m.entry.left()
			if err != nil {
				f.lost = true // what was encoded cannot be read
				return
			}
			m.typ, m.entry = watch.Deleted, left
		}
		for node := range f.spans.Nodes(c) {
			for s := range f.streams[node] {
				f.put(s, m)
			}
		}
	}
}

// put adds an event to a stream, and ends one that is too far behind.
func (f *feed) put(s *spanStream, m *message) {
	if !s.put(m) {
		f.slow()
		s.close()
	}
}

// present are the taps of kinds that the API server has.
func (f *feed) present(yield func(*tap) bool) {
	for _, t := range f.taps {
		if t.source != nil && !yield(t) {
			return
		}
	}
}

// isComputed reports whether all objects have been taken in.
func (f *feed) isComputed(now time.Time) bool {
	for t := range f.present {
		if !t.listed {
			return false
		}
	}
	if f.computed.IsZero() {
		f.computed = now
	}
	return true
}

// isWhole reports whether all that the API server has is in the spans.
func (f *feed) isWhole() bool {
	for t := range f.present {
		if _, fresh := t.reached(); !fresh {
			return false
		}
	}
	return true
}

// replaced reports whether a kind is served from elsewhere, or only now, or no longer.
func (f *feed) replaced() bool {
	for _, t := range f.taps {
		if t.replaced() {
			return true
		}
	}
	return false
}

// bookmark returns what tells agents how far the spans have come.
func (f *feed) bookmark(end bool) (*message, error) {
	annotations := map[string]string{}
	if end {
		annotations[metav1.InitialEventsAnnotationKey] = "true"
	}
	for t := range f.present {
		if t != f.pods {
			version, _ := t.reached()
			annotations[reachedAnnotation+t.kind.kind.Name] = strconv.FormatUint(version, 10)
		}
	}
	version, _ := f.pods.reached()
	return f.packing.bookmark(version, annotations)
}

// beat tells agents how far the spans have come: all if they are to know soon, else those that were told a second ago.
func (f *feed) beat(now time.Time) error {
	var told *message
	for _, of := range f.streams {
		for s := range of {
			if !f.marking && now.Sub(s.beaten) < heartbeat {
				continue
			}
			if told == nil {
				if !f.isWhole() {
					return nil
				}
				var err error
				if told, err = f.bookmark(false); err != nil {
					return err
				}
			}
			s.beaten = now
			f.put(s, told)
		}
	}
	f.marking = false
	return nil
}

// admit begins the streams of those agents that the spans have caught up with, some at once.
func (f *feed) admit(now time.Time) {
	computed, begun, left := f.isComputed(now), 0, f.waiting[:0]
	for _, r := range f.waiting {
		switch {
		case r.ctx.Err() != nil:
		case computed && begun < admitted && f.has(r):
			begun++
			r.reply <- f.begin(r, now)
		case !computed && now.Sub(r.arrived) > computation, computed && now.Sub(r.arrived) > catchUp && now.Sub(f.computed) > catchUp && !f.has(r):
			r.reply <- apierrors.NewTimeoutError("the relay has not come as far as the agent", 0) // clients are not to try again here
		default:
			left = append(left, r)
		}
	}
	clear(f.waiting[len(left):])
	f.waiting = left
}

// has reports whether the spans have taken in what an agent has been told elsewhere.
func (f *feed) has(r *spanRequest) bool {
	if version, _ := f.pods.reached(); version < r.version {
		return false
	}
	for name, version := range r.after {
		found := false
		for t := range f.present {
			if t.kind.kind.Name == name {
				reached, _ := t.reached()
				found = reached >= version
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// begin begins the stream of an agent.
func (f *feed) begin(r *spanRequest, now time.Time) error {
	end, err := f.bookmark(true)
	if err != nil {
		return err
	}
	f.spans.Watch(r.node)
	s := newSpanStream(r.node, f.spans.Snapshot(r.node))
	s.beaten = now
	s.put(end)
	if f.streams[r.node] == nil {
		f.streams[r.node] = map[*spanStream]struct{}{}
	}
	f.streams[r.node][s] = struct{}{}
	f.agents++
	r.stream, r.reached = s, end.entry.version
	return nil
}

// leave ends the stream of an agent.
func (f *feed) leave(s *spanStream) {
	of := f.streams[s.node]
	if _, is := of[s]; !is {
		return
	}
	if delete(of, s); len(of) == 0 {
		delete(f.streams, s.node)
	}
	f.agents--
	f.spans.Unwatch(s.node)
	s.close()
}

// end ends everything, and all streams.
func (f *feed) end() {
	f.stop()
	for _, of := range f.streams {
		for s := range of {
			s.close()
		}
	}
}
