package serve

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
)

// slots is in how many parts the streams of a hub get their bookmarks: to write to all at once would hold up the next
// event.
const slots = 10

// hub is one watch of the cache for all streams in one encoding that have caught up: each burst is made once, and an
// agent's goroutine only writes it. With a watch for each stream the cache would have to wake a thousand goroutines in
// a tenth of a second, and each delivery would wake three.
type hub struct {
	bookmarker
	observer Observer
	open     func(ctx context.Context, version uint64) (watch.Interface, error)
	stop     context.CancelFunc

	mu      sync.Mutex       // guards the fields below, and last of the members
	members map[*stream]bool // value: is owed a bookmark
	// handed is the version of the last event that members have been handed. They will be handed all later events. Run
	// alone changes it, and so may read it without mu.
	handed uint64
	ended  bool

	// of run
	collected []collected
	at        upstream.Reached // when bookmarks became due
	slot      int
}

// collected is an event that is to be handed on.
type collected struct {
	version uint64
	frame   []byte
}

// newHub begins a hub at the version that a stream has.
func newHub(s *stream, open func(context.Context, uint64) (watch.Interface, error)) *hub {
	ctx, stop := context.WithCancel(context.Background())
	h := &hub{bookmarker: bookmarker{kind: s.kind, source: s.source, frames: s.frames}, observer: s.observer,
		open: open, stop: stop, members: map[*stream]bool{}, handed: s.last}
	go h.run(ctx)
	return h
}

// join makes a stream a member if it has everything that members have been handed; what it has beyond that it will not
// be handed again.
func (h *hub) join(s *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || s.last < h.handed {
		return false
	}
	s.handOn()
	s.hub, s.slot = h, rand.N(slots) //nolint:gosec // spreads bookmarks
	h.members[s] = false
	return true
}

// leave ends the membership of a stream; the hub ends with the last one.
func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.members, s)
	if len(h.members) == 0 {
		h.ended = true
		h.stop()
	}
}

// over reports whether no stream can join any more.
func (h *hub) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// run hands on events until ctx ends, or the cache refuses to go on; then the streams of all members end. A watch that
// the cache ended because it could not wait is made again: what members have is not its matter.
func (h *hub) run(ctx context.Context) {
	defer h.end()
	version := h.handed // none else changes it
	for {
		from, err := h.open(ctx, version)
		if err != nil {
			return
		}
		reached, ok := h.follow(ctx, from)
		if !ok {
			return
		}
		if reached == version {
			time.Sleep(coalescing) // the processor is needed elsewhere
		}
		version = reached
	}
}

// end ends the streams of all members, once they have what has been handed on.
func (h *hub) end() {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for s := range h.members {
		s.out.close()
	}
	clear(h.members)
}

// follow hands on the events of a watch until it ends; it returns the last version, and whether another watch can go on
// from there.
func (h *hub) follow(ctx context.Context, from watch.Interface) (uint64, bool) {
	defer from.Stop()
	ticker := time.NewTicker(heartbeat / slots)
	defer ticker.Stop()
	p := newPace()
	defer p.timer.Stop()
	in := from.ResultChan()
	for {
		select {
		case <-ctx.Done():
			return 0, false
		case e, ok := <-in:
			if !ok {
				h.handOn()
				return h.handed, true
			}
			if !h.collect(e) {
				return 0, false
			}
			if len(h.collected) == 1 && p.now() {
				h.handOn()
				p.handed()
			}
		case <-p.timer.C:
			h.handOn()
			p.handed()
		case <-ticker.C:
			h.tick()
		}
	}
}

// collect takes an event; it returns false if the watch is at its end.
func (h *hub) collect(e watch.Event) bool {
	switch e.Type {
	case watch.Bookmark:
		return true // the cache is not asked for them
	case watch.Error:
		return false
	}
	version, err := h.source.Versioner().ObjectResourceVersion(e.Object)
	if err != nil {
		return false
	}
	frame, err := h.frames.of(e)
	h.collected = append(h.collected, collected{version, frame})
	return err == nil
}

// handOn hands all members what has been collected.
func (h *hub) handOn() {
	if len(h.collected) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	first, last := h.collected[0].version, h.collected[len(h.collected)-1].version
	burst, all := together(h.collected), 0
	for s := range h.members {
		mine, events := burst, len(h.collected)
		if s.last >= first {
			rest := h.collected
			for len(rest) > 0 && rest[0].version <= s.last {
				rest = rest[1:]
			}
			mine, events = together(rest), len(rest)
		}
		if events == 0 {
			continue
		}
		if !s.put(mine, events) {
			delete(h.members, s)
			continue
		}
		s.last = last
		all += events
	}
	h.observer.Delivered(all)
	h.handed = last
	clear(h.collected)
	h.collected = h.collected[:0]
	h.beat()
}

// together returns the frames of events as one.
func together(events []collected) []byte {
	if len(events) == 1 {
		return events[0].frame
	}
	size := 0
	for _, e := range events {
		size += len(e.frame)
	}
	all := make([]byte, 0, size)
	for _, e := range events {
		all = append(all, e.frame...)
	}
	return all
}

// tick makes the bookmarks of a part of the members due.
func (h *hub) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot = (h.slot + 1) % slots
	for s := range h.members {
		if s.bookmarks && s.slot == h.slot {
			h.members[s] = true
		}
	}
	h.at = h.source.Reached()
	h.beat()
}

// beat gives the bookmarks that are due, if members have been handed everything that there was when they became so.
func (h *hub) beat() {
	for s, due := range h.members {
		if !due {
			continue
		}
		frame, version := h.bookmark(h.at, h.handed, s.last)
		if frame == nil {
			continue
		}
		h.members[s] = false
		if s.out.keepsUp() && s.put(frame, 0) {
			s.last = version
			h.observer.Heartbeat()
		}
	}
}
