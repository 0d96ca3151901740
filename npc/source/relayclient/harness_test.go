package relayclient

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// blockTimeout is how long a relay waits for a version that it does not have.
const blockTimeout = 3 * time.Second

// change is one change of an object.
type change struct {
	version int
	kind    watch.EventType
	name    string
}

// harness is what is in the store of an API server, of one kind.
type harness struct {
	mu      sync.Mutex
	version int
	objects map[string]int // name -> version
	changes []change
}

func newHarness() *harness { return &harness{version: 100, objects: map[string]int{}} }

// change changes an object, or deletes it.
func (w *harness) change(name string, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version += 2 // something else changes, too
	_, is := w.objects[name]
	kind := watch.Modified
	switch {
	case gone && !is:
		return
	case gone:
		kind = watch.Deleted
	case !is:
		kind = watch.Added
	}
	w.changes = append(w.changes, change{w.version, kind, name})
	w.objects[name] = w.version
	if gone {
		delete(w.objects, name)
	}
}

func (w *harness) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}

// at returns the objects at a version.
func (w *harness) at(version int) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := map[string]int{}
	for _, c := range w.changes {
		if c.version > version {
			break
		}
		objects[c.name] = c.version
		if c.kind == watch.Deleted {
			delete(objects, c.name)
		}
	}
	return objects
}

func pod(name string, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: strconv.Itoa(version)}}
}

// server is a replica of a relay, or the API server. It can fail in each of these ways.
type server struct {
	*harness
	relay bool
	// plain servers do not list as a stream.
	plain bool

	guard   sync.Mutex
	down    bool           // none answers
	hangs   bool           // it takes requests and never answers
	mute    bool           // streams stay open and carry nothing
	breaks  int            // lists fail, those that come as streams late, with their event of this number; 0 never
	frozen  bool           // it hears nothing from its upstream
	reached int            // what it has heard so far
	oldest  int            // versions before that are gone
	answer  int            // a status that it answers instead
	insert  []watch.Event  // events that it sends before all others
	streams map[*feed]bool // that are open
	lists   []time.Time
	opened  int
}

func newServer(w *harness, relay bool) *server {
	return &server{harness: w, relay: relay, reached: w.now(), streams: map[*feed]bool{}}
}

// set changes how the server behaves.
func (s *server) set(change func(s *server)) {
	s.guard.Lock()
	defer s.guard.Unlock()
	change(s)
}

// cut ends all streams.
func (s *server) cut() {
	s.guard.Lock()
	defer s.guard.Unlock()
	for f := range s.streams {
		f.Stop()
	}
}

// kill ends the server: it answers no more, and knows nothing from before when it comes back.
func (s *server) kill() {
	s.set(func(s *server) { s.down = true })
	s.cut()
}

// restart starts the server again. It has no changes from before.
func (s *server) restart() {
	s.set(func(s *server) {
		s.down, s.frozen, s.mute, s.hangs, s.answer, s.reached, s.oldest = false, false, false, false, 0, s.now(), s.now()
	})
}

// forget has the server answer, without the version that is the newest now.
func (s *server) forget() {
	s.set(func(s *server) { s.down, s.reached, s.oldest = false, s.now(), s.now()+1 })
}

// listed returns the number of lists.
func (s *server) listed() int {
	s.guard.Lock()
	defer s.guard.Unlock()
	return len(s.lists)
}

func (s *server) open() int {
	s.guard.Lock()
	defer s.guard.Unlock()
	return len(s.streams)
}

// begin answers as the server's state demands, or lets a request pass.
func (s *server) begin(ctx context.Context, o metav1.ListOptions) error {
	s.guard.Lock()
	down, hangs, answer := s.down, s.hangs, s.answer
	if !s.frozen {
		s.reached = s.now()
	}
	s.guard.Unlock()
	switch {
	case down:
		return fmt.Errorf("connection refused")
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case answer != 0 && (answer != http.StatusGone || numbered(o.ResourceVersion)): // every server has its own version
		return refusal(answer)
	}
	return nil
}

// refusal returns an error with a status.
func refusal(status int) error {
	switch status {
	case http.StatusGone:
		return apierrors.NewResourceExpired("too old")
	case http.StatusNotFound:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "")
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests("later", 1)
	}
	return apierrors.NewGenericServerResponse(status, "get", schema.GroupResource{Resource: "pods"}, "", "", 0, true)
}

func (s *server) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := s.begin(ctx, o); err != nil {
		return nil, err
	}
	s.guard.Lock()
	defer s.guard.Unlock()
	if wanted, _ := strconv.Atoi(o.ResourceVersion); wanted > s.reached || s.breaks > 0 {
		return nil, apierrors.NewTimeoutError("Too large resource version", 1)
	}
	s.lists = append(s.lists, time.Now())
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.reached)}}
	for name, version := range s.at(s.reached) {
		list.Items = append(list.Items, *pod(name, version))
	}
	return list, nil
}

func (s *server) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := s.begin(ctx, o); err != nil {
		return nil, err
	}
	s.guard.Lock()
	defer s.guard.Unlock()
	s.opened++
	f := &feed{server: s, ctx: ctx, result: make(chan watch.Event), done: make(chan struct{})}
	f.at, _ = strconv.Atoi(o.ResourceVersion)
	if o.SendInitialEvents != nil {
		if s.plain {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		s.lists = append(s.lists, time.Now())
		objects := s.at(s.reached)
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			f.first = append(f.first, watch.Event{Type: watch.Added, Object: pod(name, objects[name])})
		}
		end := pod("", s.reached)
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		f.at = s.reached
		f.first = append(f.first, watch.Event{Type: watch.Bookmark, Object: end})
		if s.breaks > 0 {
			status := apierrors.NewTimeoutError("Too large resource version", 1).Status()
			f.late = blockTimeout
			f.first = append(f.first[:s.breaks-1], watch.Event{Type: watch.Error, Object: &status})
		}
	} else if f.at < s.oldest { // within the stream, as an API server does
		status := refusal(http.StatusGone).(apierrors.APIStatus).Status()
		f.first = append(f.first, watch.Event{Type: watch.Error, Object: &status})
	}
	f.first = append(f.first, s.insert...)
	s.insert = nil
	s.streams[f] = true
	go f.run()
	return f, nil
}

// feed is one watch.
type feed struct {
	server *server
	ctx    context.Context
	first  []watch.Event
	at     int           // the version up to which it has been fed
	late   time.Duration // how long its errors take
	result chan watch.Event
	once   sync.Once
	done   chan struct{}
}

func (f *feed) ResultChan() <-chan watch.Event { return f.result }

func (f *feed) Stop() { f.once.Do(func() { close(f.done) }) }

func (f *feed) run() {
	defer close(f.result)
	defer f.server.set(func(s *server) { delete(s.streams, f) })
	every := time.Minute
	if f.server.relay {
		every = time.Second
	}
	marked := time.Now()
	for {
		events := f.next()
		if f.first == nil && time.Since(marked) >= every {
			marked = time.Now()
			events = append(events, f.mark()...)
		}
		if !f.send(events) {
			return
		}
	}
}

// send sends events and rests; errors take a while; it returns false at the end of a stream.
func (f *feed) send(events []watch.Event) bool {
	for _, e := range events {
		if f.stopped() { // what happened after the end is not sent, though a receiver waits
			return false
		}
		if e.Type == watch.Error {
			time.Sleep(f.late)
		}
		select {
		case f.result <- e:
		case <-f.done:
			return false
		case <-f.ctx.Done():
			return false
		}
	}
	select {
	case <-f.done:
		return false
	case <-f.ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// next returns what happened since the last call.
func (f *feed) next() []watch.Event {
	f.server.guard.Lock()
	defer f.server.guard.Unlock()
	if f.stopped() || f.server.mute { // what happens after the end is for other streams
		return nil
	}
	events := f.first
	f.first = nil
	if !f.server.frozen {
		f.server.reached = f.server.now()
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	for _, c := range f.server.changes {
		if c.version > f.at && c.version <= f.server.reached {
			events = append(events, watch.Event{Type: c.kind, Object: pod(c.name, c.version)})
			f.at = c.version
		}
	}
	return events
}

// mark returns a bookmark, unless the server is behind or hears nothing.
func (f *feed) mark() []watch.Event {
	f.server.guard.Lock()
	defer f.server.guard.Unlock()
	if f.server.mute || f.server.frozen || f.server.reached < f.at {
		return nil
	}
	f.at = f.server.reached
	return []watch.Event{{Type: watch.Bookmark, Object: pod("", f.at)}}
}

// stopped reports whether the feed was stopped. It sends nothing of what happens after that.
func (f *feed) stopped() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}
