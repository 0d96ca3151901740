package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
	"github.com/weave-npc/weave-npc/test/await"
)

// source is a source that has reached what a test says.
type source struct {
	storage.Interface
	mu sync.Mutex
	at upstream.Reached
}

func (s *source) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }
func (s *source) Close()                       {}
func (s *source) Reached() upstream.Reached {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *source) set(at upstream.Reached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
}

// counts is an Observer.
type counts struct{ watching, delivered, heartbeats, written, expired, slow atomic.Int64 }

func (c *counts) Watching(delta int) { c.watching.Add(int64(delta)) }
func (c *counts) Delivered(n int)    { c.delivered.Add(int64(n)) }
func (c *counts) Heartbeat()         { c.heartbeats.Add(1) }
func (c *counts) Written()           { c.written.Add(1) }
func (c *counts) Expired()           { c.expired.Add(1) }
func (c *counts) Slow()              { c.slow.Add(1) }

func pod(version int) runtime.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: fmt.Sprint(version)}}
}

// started is a stream with its ends.
type started struct {
	*stream
	source *source
	cache  *watch.FakeWatcher
	counts *counts
	read   []string // what has been handed on and not been looked at
	bursts int

	opened  chan uint64             // version of each watch of the hub
	caches  chan *watch.FakeWatcher // which those are
	refuses atomic.Bool             // no more of them
}

// how a stream begins.
type how int

const (
	behind   how = iota // it has a watch of its own, and never another
	listing             // the same, and it begins with all objects
	caughtUp            // a hub has taken over
)

func start(t *testing.T, from uint64, at upstream.Reached, h how) *started {
	t.Helper()
	codecs, err := kinds.NewCodecs()
	if err != nil {
		t.Fatal(err)
	}
	f := jsonFrames(t, &encodings{kind: kinds.All()[1], codecs: codecs, by: map[string]*frames{}})
	s := &started{source: &source{at: at}, cache: watch.NewFakeWithChanSize(200, false), counts: &counts{}, opened: make(chan uint64, 100),
		caches: make(chan *watch.FakeWatcher, 100)}
	s.stream = &stream{bookmarker: bookmarker{kind: kinds.All()[1], source: s.source, frames: f}, observer: s.counts, out: newSendQueue(), listed: func() {},
		last: from, bookmarks: h != listing, listing: h == listing, catchUp: never}
	if h == caughtUp {
		s.last = min(from, at.Event)
		hub := newHub(s.stream, s.open)
		s.last = from
		s.caches <- s.cache
		if !hub.join(s.stream) {
			t.Fatal("the stream cannot join")
		}
	} else {
		s.from = s.cache
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(s.begin(ctx, cancel))
	return s
}

// open is how a hub watches the cache.
func (s *started) open(_ context.Context, version uint64) (watch.Interface, error) {
	s.opened <- version
	cache := <-s.caches
	if s.refuses.Load() {
		return nil, errors.New("the version is too old")
	}
	return cache, nil
}

func jsonFrames(t *testing.T, e *encodings) *frames {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Accept", "application/json")
	f, err := e.of(request)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// inTime is how long to wait for what has to come: longer than a busy machine needs.
var inTime = await.Scaled(time.Minute)

// next returns the next event, as TYPE VERSION; empty if there is none within a time.
func (s *started) next(t *testing.T, within time.Duration) string {
	t.Helper()
	for deadline := time.Now().Add(within); len(s.read) == 0; {
		if !s.out.waits() {
			if time.Now().After(deadline) {
				return ""
			}
			time.Sleep(100 * time.Microsecond)
			continue
		}
		bursts := s.out.take(nil)
		if len(bursts) == 0 {
			return "end"
		}
		s.bursts += len(bursts)
		s.read = decode(t, bursts)
	}
	first := s.read[0]
	s.read = s.read[1:]
	return first
}

// waits reports whether take would not wait.
func (o *sendQueue) waits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed || len(o.bursts) > 0
}

// decode returns the events of bursts, as TYPE VERSION.
func decode(t *testing.T, bursts [][]byte) []string {
	t.Helper()
	var events []string
	for d := json.NewDecoder(bytes.NewReader(bytes.Join(bursts, nil))); ; {
		var e struct {
			Type   string
			Object struct {
				Kind     string
				Metadata struct{ ResourceVersion string }
			}
		}
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return events
		} else if err != nil || e.Object.Kind != "Pod" {
			t.Fatalf("%s: %v", bursts, err)
		}
		events = append(events, e.Type+" "+e.Object.Metadata.ResourceVersion)
	}
}

// both are how an agent's watch can be fed.
var both = map[string]how{"behind": behind, "caught_up": caughtUp}

// TestBookmarks are of what the agent has been sent, never ahead of it, never back, and only while the API server's
// watch stands.
func TestBookmarks(t *testing.T) {
	const soon = 1500 * time.Millisecond // longer than the time between bookmarks
	for _, c := range []struct {
		name string
		from uint64
		at   upstream.Reached
		want string
	}{
		{"nothing_to_come", 10, upstream.Reached{Event: 10, Version: 12, Fresh: true}, "BOOKMARK 12"},
		{"at_the_same_version", 10, upstream.Reached{Event: 5, Version: 10, Fresh: true}, "BOOKMARK 10"},
		{"an_event_is_on_its_way", 10, upstream.Reached{Event: 11, Version: 12, Fresh: true}, ""},
		{"the_agent_is_ahead", 100, upstream.Reached{Event: 80, Version: 90, Fresh: true}, ""},
		{"the_watch_is_broken", 10, upstream.Reached{Event: 10, Version: 12}, ""},
	} {
		for name, h := range both {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := start(t, c.from, c.at, h)
				within := soon
				if c.want != "" {
					within = inTime
				}
				if got := s.next(t, within); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
	t.Run("not_before_the_initial_events", func(t *testing.T) {
		t.Parallel()
		s := start(t, 0, upstream.Reached{Event: 5, Version: 12, Fresh: true}, listing)
		s.cache.Add(pod(7))
		s.cache.Action(watch.Bookmark, pod(9)) // the end of the initial events
		for _, want := range []string{"ADDED 7", "BOOKMARK 9", "BOOKMARK 12"} {
			if got := s.next(t, inTime); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// TestBookmarksAfterAnEvent follow it, stop while the API server's watch is broken, and come back.
func TestBookmarksAfterAnEvent(t *testing.T) {
	const soon = 1500 * time.Millisecond // longer than the time between bookmarks
	for name, h := range both {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, 10, upstream.Reached{Event: 11, Version: 12, Fresh: true}, h)
			s.cache.Modify(pod(11))
			for _, want := range []string{"MODIFIED 11", "BOOKMARK 12"} {
				if got := s.next(t, inTime); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			s.source.set(upstream.Reached{Event: 11, Version: 20})
			got := s.next(t, soon)
			for i := 0; got == "BOOKMARK 12" && i < 3; i++ { // it was on its way
				got = s.next(t, soon)
			}
			if got != "" {
				t.Errorf("got %q while the watch is broken", got)
			}
			s.source.set(upstream.Reached{Event: 11, Version: 20, Fresh: true})
			if got := s.next(t, inTime); got != "BOOKMARK 20" {
				t.Errorf("got %q when it works again", got)
			}
		})
	}
}

// TestEventsThatAreCloseTogether are passed on together, all of them and in their order, and the cache's own bookmarks
// are not.
func TestEventsThatAreCloseTogether(t *testing.T) {
	for name, h := range both {
		t.Run(name, func(t *testing.T) {
			s := start(t, 10, upstream.Reached{Event: 10, Version: 10}, h)
			for v := 11; v <= 150; v++ {
				s.cache.Modify(pod(v))
				if v%10 == 0 {
					s.cache.Action(watch.Bookmark, pod(v))
				}
			}
			for v := 11; v <= 150; v++ {
				if got, want := s.next(t, inTime), fmt.Sprintf("MODIFIED %d", v); got != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
			s.refuses.Store(true)
			close(s.caches)
			s.cache.Stop()
			if got := s.next(t, inTime); got != "end" {
				t.Errorf("got %q", got)
			}
			if s.bursts > 20 {
				t.Errorf("they came in %d bursts", s.bursts)
			}
			if s.counts.delivered.Load() != 140 {
				t.Errorf("%d delivered", s.counts.delivered.Load())
			}
		})
	}
}

// TestAnAgentThatFallsFarBehind loses its watch, and the cache none of its time.
func TestAnAgentThatFallsFarBehind(t *testing.T) {
	for name, h := range both {
		t.Run(name, func(t *testing.T) {
			s := start(t, 10, upstream.Reached{Event: 10, Version: 10}, h)
			sent := make(chan int)
			go func() {
				defer close(sent)
				for v := range backlog + 1 { // the fake watcher drops nothing: it blocks without a reader
					s.cache.Modify(pod(11 + v))
				}
			}()
			select {
			case <-sent:
			case <-time.After(inTime):
				t.Fatal("the cache waits")
			}
			await.That(t, "ending the watch", func() bool { return s.counts.slow.Load() > 0 })
			if s.counts.slow.Load() != 1 {
				t.Errorf("ended %d times", s.counts.slow.Load())
			}
		})
	}
}

// TestAnAgentThatDoesNotRead loses its connection.
func TestAnAgentThatDoesNotRead(t *testing.T) {
	c := &counts{}
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		g := &writer{ResponseWriter: w, control: http.NewResponseController(w), observer: c, timeout: 300 * time.Millisecond}
		defer g.end()
		chunk := []byte(strings.Repeat("x", 1<<20))
		for range 64 {
			if _, err := g.Write(chunk); err != nil {
				ended <- err
				return
			}
			g.Flush()
		}
		ended <- nil
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), inTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	select {
	case err := <-ended:
		if err == nil || c.slow.Load() != 1 {
			t.Errorf("error %v, ended %d times", err, c.slow.Load())
		}
	case <-ctx.Done():
		t.Error("the write waits indefinitely")
	}
}
