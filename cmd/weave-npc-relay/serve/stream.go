package serve

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// heartbeat is the period of bookmarks. An agent takes the relay for broken if three of them are missing.
const heartbeat = time.Second

// stream is the watch of one agent. Until it has caught up it has a watch of the cache, from which it takes events at
// once, for the cache ends watchers that do not, and hands them on in bursts, encoded, with a bookmark each second of
// what has been handed on, as long as the upstream watch stands. Then a hub does that.
type stream struct {
	bookmarker
	observer  Observer
	from      watch.Interface // nil if it had caught up at its start
	catchUp   func(*stream) bool
	listed    func() // called, maybe again and again, once all initial events have been handed on
	out       *sendQueue
	last      uint64 // the version that the agent has, once everything is written that is waiting
	listing   bool   // initial events are being passed on, or their end is not known
	bookmarks bool   // bookmarks are wanted, and can be given
	hub       *hub   // once it has caught up
	slot      int    // of the hub

	waiting []byte
	events  int // of those that wait, without bookmarks
}

// begin begins to fill the send queue, until ctx ends. What it returns ends that, and waits for it.
func (s *stream) begin(ctx context.Context, cancel context.CancelFunc) func() {
	closing := context.AfterFunc(ctx, s.out.close)
	var running sync.WaitGroup
	if s.from != nil {
		running.Go(func() { s.run(ctx) })
	}
	return func() {
		closing()
		cancel()
		running.Wait()
		if s.hub != nil {
			s.hub.leave(s)
		}
	}
}

// run hands on events until ctx ends, the cache ends the watch, or a hub has taken over.
func (s *stream) run(ctx context.Context) {
	defer s.from.Stop()
	second := time.NewTicker(heartbeat)
	defer second.Stop()
	p := newPace()
	defer p.timer.Stop()
	p.timer.Reset(coalescing) // to catch up without an event
	in := s.from.ResultChan()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-in:
			first := len(s.waiting) == 0
			if !ok || !s.take(e) {
				s.handOn()
				s.out.close()
				return
			}
			if first && len(s.waiting) > 0 && p.now() {
				s.handedOn(p)
			}
		case <-p.timer.C:
			if len(s.waiting) == 0 && len(in) == 0 { // none for a while: only the end may be missing, for seconds
				s.listed()
			}
			s.handedOn(p)
		case <-second.C:
			s.beat()
		}
		if s.listing {
			continue
		}
		s.listed()
		if len(in) == 0 && s.catchUp(s) { // that the version is too old would wait there
			return
		}
	}
}

// handedOn hands on what waits. While the end of the initial events is not known, it has the timer fire again.
func (s *stream) handedOn(p *pace) {
	s.handOn()
	p.handed()
	if s.listing {
		p.timer.Reset(coalescing)
	}
}

// take takes an event from the cache; it returns false if the watch is at its end.
func (s *stream) take(e watch.Event) bool {
	goesOn := true
	switch e.Type {
	case watch.Bookmark:
		if !s.listing {
			return true // ours are more frequent, and stop with the upstream watch
		}
		if version, err := s.source.Versioner().ObjectResourceVersion(e.Object); err == nil {
			s.last, s.listing, s.bookmarks = version, false, true
		}
	case watch.Error:
		goesOn = false
		if err := apierrors.FromObject(e.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			s.observer.Expired()
		}
	default:
		s.events++
		if version, err := s.source.Versioner().ObjectResourceVersion(e.Object); err == nil && !s.listing {
			s.last = max(s.last, version)
		}
	}
	frame, err := s.frames.of(e)
	if err != nil {
		return false
	}
	s.waiting = append(s.waiting, frame...)
	return goesOn
}

// handOn hands on what waits.
func (s *stream) handOn() {
	if len(s.waiting) == 0 {
		return
	}
	if s.put(s.waiting, s.events) {
		s.observer.Delivered(s.events)
	}
	s.waiting, s.events = nil, 0
}

// put hands on a burst; it ends the stream of an agent that is too far behind and returns false.
func (s *stream) put(burst []byte, events int) bool {
	if s.out.put(burst, events) {
		return true
	}
	s.observer.Slow()
	s.out.discard()
	return false
}

// beat adds a bookmark if the agent has, or is about to get, everything that the relay has, and the relay has what the
// API server has.
func (s *stream) beat() {
	if s.listing || !s.bookmarks || len(s.waiting) > 0 {
		return
	}
	if frame, version := s.bookmark(s.source.Reached(), 0, s.last); frame != nil && s.out.keepsUp() && s.put(frame, 0) {
		s.last = version
		s.observer.Heartbeat()
	}
}
