package relay

import (
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/npc/source/span"
)

// markPatience is how long a replica may send pods and not say how far it is.
const markPatience = 10 * time.Second

// errNarrow has the reflector list all pods: what is known is not enough for long.
var errNarrow = apierrors.NewResourceExpired("no replica of the relay knows what this node needs") //nolint:errname // as errEnded

// enterSpan begins with the link of a stream of which only a span is followed.
func (s *stream) enterSpan() {
	switch {
	case !s.link.direct():
		s.link.comparing = true
		s.view.known.Begin()
		s.leaving = span.NewLeaving()
		s.narrowed.Stop()
	case s.initial:
	case s.view.whole:
		_ = s.pass(watch.Event{Type: watch.Modified, Object: s.of.span.gate.MarkWhole(s.version)}) // fails as all else does when the stream ends
	default:
		if s.link.narrow = true; s.due.IsZero() {
			s.due = time.Now().Add(random(s.of.agent.spread))
		}
		s.narrowed.Reset(time.Until(s.due))
	}
}

// handleSpan handles one event of the link.
func (s *stream) handleSpan(e watch.Event) error {
	if e.Type == watch.Error {
		return errors.WithStack(apierrors.FromObject(e.Object))
	}
	m, is := e.Object.(metav1.Object)
	switch {
	case !is && !s.link.direct():
		return errors.Errorf("an event of type %s is about a %T", e.Type, e.Object)
	case !is:
		return nil // the API server knows what it does
	case s.link.direct():
		return s.handleWhole(e, m.GetResourceVersion())
	case e.Type != watch.Bookmark:
		s.attend()
		if !s.link.comparing && s.leaving.Keep(e, time.Now()) {
			return nil
		}
		return s.take(e)
	}
	_, ends := endsList(e)
	return s.handleBookmark(e, m, ends)
}

// handleBookmark handles that a replica has said how far it is.
func (s *stream) handleBookmark(e watch.Event, m metav1.Object, ends bool) error {
	version := m.GetResourceVersion()
	switch {
	case !numbered(version):
		return errors.Errorf("a bookmark of version %q", version)
	case s.link.comparing && !ends, !s.link.comparing && older(version, s.version):
		return nil
	case s.link.comparing && older(version, s.of.span.newest()):
		return errors.Errorf("a span of version %q after %q", version, s.of.span.newest())
	case s.link.comparing:
		if err := s.compared(e, version); err != nil {
			return err
		}
	}
	upTo := span.Reached(m.GetAnnotations())
	if kind := s.of.span.gate.Overdue(upTo); kind != "" {
		return errors.Errorf("the replica does not know what there is of %s", kind)
	}
	s.reach(version)
	s.alive()
	for _, e := range s.leaving.Due(s.of.agent.delivered(), upTo, time.Now()) {
		if err := s.take(e); err != nil {
			return err
		}
	}
	return s.pass(watch.Event{Type: watch.Modified, Object: s.of.span.gate.Mark(version, upTo)})
}

// compared handles that a replica has sent all pods of the span.
func (s *stream) compared(end watch.Event, version string) error {
	gone := s.view.known.End()
	if s.initial { // the reflector forgets what it had by itself
		gone = []watch.Event{end}
		s.complete(version)
	}
	for _, e := range gone {
		if err := s.pass(e); err != nil {
			return err
		}
	}
	s.link.comparing, s.view.whole, s.due = false, false, time.Time{}
	return nil
}

// handleWhole handles an event of the API server, which tells of all pods.
func (s *stream) handleWhole(e watch.Event, version string) error {
	bookmark := e.Type == watch.Bookmark
	if s.initial {
		_, ends := endsList(e)
		if !bookmark {
			return s.take(e)
		}
		if err := s.pass(e); err != nil || !ends || !numbered(version) {
			return err
		}
		s.complete(version)
		s.reach(version)
		s.view.whole = true
		s.alive()
		return s.pass(watch.Event{Type: watch.Modified, Object: s.of.span.gate.MarkWhole(version)})
	}
	if what, _, err := read(e, s.version); err == nil && what == stale {
		return nil
	}
	if !bookmark && (s.view.whole || s.view.known.Has(e.Object)) {
		if err := s.take(e); err != nil {
			return err
		}
	}
	s.reach(version)
	s.alive()
	return nil
}

// take passes an event of a pod on, unless it tells nothing new.
func (s *stream) take(e watch.Event) error {
	if m, is := e.Object.(metav1.Object); is {
		s.of.span.tell(m.GetResourceVersion())
	}
	if news, is := s.view.known.Take(e); is {
		return s.pass(news)
	}
	return nil
}

// reach records that all has been passed on up to a version.
func (s *stream) reach(version string) {
	s.version = version
	s.of.deliver(version)
	s.of.span.tell(version)
	clear(s.route.gone)
}

// comeBackToSpan handles an event of the replica that is to take over from the API server. When it has sent the span, the API server is not read
// on until the replica is where that was, and with it every policy that has been passed on.
func (s *stream) comeBackToSpan(e watch.Event, ok bool) error {
	h := s.home
	if !ok || e.Type == watch.Error {
		s.of.failed(h.link.replica)
		return s.remain(h.rest)
	}
	m, is := e.Object.(metav1.Object)
	if !is || e.Type != watch.Bookmark {
		h.fold.Put(e)
		return nil
	}
	if _, ends := endsList(e); ends && !h.paused {
		h.paused, h.goal = true, s.of.span.gate.Limit()
		h.timer.Reset(freshness)
	}
	if !h.paused || !numbered(m.GetResourceVersion()) || older(m.GetResourceVersion(), s.of.span.newest()) ||
		!span.Reached(m.GetAnnotations()).Covers(h.goal) {
		return nil
	}
	pods := h.fold.Events()
	s.change(h.take())
	for _, e := range pods {
		if err := s.take(e); err != nil {
			return err
		}
	}
	return s.handleBookmark(e, m, true)
}

// remain does something by which the way home may end, and the API server be followed for another while.
func (s *stream) remain(something func()) error {
	paused := s.home.paused
	something()
	if paused && s.view.whole {
		return s.pass(watch.Event{Type: watch.Modified, Object: s.of.span.gate.MarkWhole(s.version)})
	}
	return nil
}
