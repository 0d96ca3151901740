package serve

import (
	"context"
	"sync"
	"time"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/span"
)

const (
	// glance is how often it is looked whether an agent can begin, or is to be told how far the spans have come.
	glance = 20 * time.Millisecond
	// unused is how long spans are computed on after the last agent has gone.
	unused = 5 * time.Minute
	// crowd is how many objects may wait to be taken in.
	crowd = 10_000
)

// SpanKinds are the kinds that spans depend on.
type SpanKinds struct{ Namespaces, Pods, Policies, ClusterPolicies *Kind }

// Spans serves agents the pods that they need. Nothing is computed until the first of them asks.
type Spans struct {
	kinds     SpanKinds
	observer  SpanObserver
	encodings encodings
	packing   *packing
	mail      mailbox

	// The goroutine of Run alone uses these.
	feed   *feed          // nil while no agent needs spans
	asking []*spanRequest // that the feed does not know yet
	used   time.Time      // when there was an agent last
}

// NewSpans returns the spans of the pods that are served. Run computes them.
func NewSpans(kinds SpanKinds, observer SpanObserver) (*Spans, error) {
	s := &Spans{kinds: kinds, observer: observer, encodings: encodings{kind: kinds.Pods.kind, codecs: kinds.Pods.codecs, by: map[string]*frames{}}, mail: newMailbox()}
	var err error
	s.packing, err = newPacking(&s.encodings)
	return s, err
}

// mailbox holds what the goroutine of Run is to do, in order.
type mailbox struct {
	some chan struct{} // has room for one: there is something to do
	room *sync.Cond

	mu    *sync.Mutex
	tasks []func()
	over  bool
}

func newMailbox() mailbox {
	mu := &sync.Mutex{}
	return mailbox{some: make(chan struct{}, 1), mu: mu, room: sync.NewCond(mu)}
}

// put adds a task. One that is not urgent waits until there are few.
func (m *mailbox) put(task func(), urgent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !urgent && !m.over && len(m.tasks) >= crowd {
		m.room.Wait()
	}
	if m.over {
		return
	}
	m.tasks = append(m.tasks, task)
	select {
	case m.some <- struct{}{}:
	default:
	}
}

// take returns all tasks.
func (m *mailbox) take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	tasks := m.tasks
	m.tasks = nil
	m.room.Broadcast()
	return tasks
}

// close has all tasks lost, from now on too.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks, m.over = nil, true
	m.room.Broadcast()
}

// Run computes spans for those who ask until ctx ends.
func (s *Spans) Run(ctx context.Context) {
	ticker := time.NewTicker(glance)
	ticker.Stop()
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.drop()
			s.mail.close()
			return
		case <-ticker.C:
		case <-s.mail.some:
			for _, task := range s.mail.take() {
				task()
			}
		}
		before := s.feed
		s.turn(ctx, time.Now())
		switch {
		case before == nil && s.feed != nil:
			ticker.Reset(glance)
		case s.feed == nil:
			ticker.Stop()
		}
	}
}

// turn does what is due after objects have changed, and again and again.
func (s *Spans) turn(ctx context.Context, now time.Time) {
	if f := s.feed; f != nil && (f.lost || f.replaced()) {
		s.drop()
		s.asking = append(s.asking, f.waiting...)
	}
	if s.feed == nil {
		if len(s.asking) == 0 {
			return
		}
		s.feed = s.start(ctx)
	}
	f := s.feed
	f.waiting, s.asking = append(f.waiting, s.asking...), nil
	f.admit(now)
	if err := f.beat(now); err != nil {
		f.lost = true // as if a kind could not be read
	}
	if f.agents > 0 || len(f.waiting) > 0 {
		s.used = now
	}
	if now.Sub(s.used) > unused {
		s.drop()
		return
	}
	s.observer.Spans(f.agents, f.spans.Pods())
}

// drop ends what is computed.
func (s *Spans) drop() {
	if s.feed != nil {
		s.feed.end()
		s.feed = nil
		s.observer.Spans(0, 0)
	}
}

// start begins to compute.
func (s *Spans) start(ctx context.Context) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{spans: span.New(), packing: s.packing, streams: map[string]map[*spanStream]struct{}{}, stop: cancel, observer: s.observer,
		slow: s.kinds.Pods.observer.Slow}
	put := func(t *tap, d drop) {
		s.mail.put(func() {
			if s.feed == f {
				f.take(t, d)
			}
		}, false)
	}
	for _, from := range []struct {
		kind *Kind
		read reader
	}{{s.kinds.Namespaces, readNamespace}, {s.kinds.Policies, readPolicy}, {s.kinds.ClusterPolicies, readClusterPolicy}, {s.kinds.Pods, s.packing.pods}} {
		t := &tap{kind: from.kind, read: from.read, put: put}
		t.source, t.cache = from.kind.serving()
		f.taps, f.pods = append(f.taps, t), t // the last are the pods
		if t.source != nil {
			go t.run(ctx)
		}
	}
	return f
}

// ask asks for a span. Leave is to be called at the end.
func (s *Spans) ask(r *spanRequest) {
	s.mail.put(func() { s.asking = append(s.asking, r) }, true)
}

// leave ends what an agent has asked for.
func (s *Spans) leave(r *spanRequest) {
	s.mail.put(func() {
		if s.feed != nil && r.stream != nil {
			s.feed.leave(r.stream)
		}
	}, true)
}
