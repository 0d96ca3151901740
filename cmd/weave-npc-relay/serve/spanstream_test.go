package serve

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/span"
)

// computed counts what a SpanObserver is told.
type computed struct{ agents, pods int }

func (c *computed) Applied(string, time.Duration) {}
func (c *computed) Spans(agents, pods int)        { c.agents, c.pods = agents, pods }

// spansOf returns the spans of the pods that a kind serves. The API server has no other kind.
func spansOf(t *testing.T, pods *Kind) (*Spans, *computed) {
	t.Helper()
	o := &computed{}
	all := kinds.All()
	s, err := NewSpans(SpanKinds{Namespaces: NewKind(all[0], pods.codecs, &counts{}), Pods: pods, Policies: NewKind(all[2], pods.codecs, &counts{}),
		ClusterPolicies: NewKind(all[3], pods.codecs, &counts{})}, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, o
}

// podEvent packs an event of a pod.
func podEvent(t *testing.T, s *Spans, typ watch.EventType, name, version string) *message {
	t.Helper()
	e, err := s.packing.entry(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &message{typ: typ, entry: e}
}

// TestASpanThatFallsFarBehind ends. Its agent is told nothing that comes after what it has not been told, though it reads again and the spans are
// computed on.
func TestASpanThatFallsFarBehind(t *testing.T) {
	codecs, err := kinds.NewCodecs()
	if err != nil {
		t.Fatal(err)
	}
	c := &counts{}
	pods := NewKind(kinds.All()[1], codecs, c)
	s, _ := spansOf(t, pods)
	f := &feed{spans: span.New(), packing: s.packing, streams: map[string]map[*spanStream]struct{}{}, slow: c.Slow}
	stream := newSpanStream("node", []any{podEvent(t, s, watch.Added, "first", "1").entry})
	change := podEvent(t, s, watch.Modified, "first", "2")
	for range backlog {
		f.put(stream, change)
	}
	if c.slow.Load() != 0 {
		t.Fatal("the agent counts as slow while there is room")
	}
	f.put(stream, podEvent(t, s, watch.Added, "lost", "3"))
	end, err := f.packing.bookmark(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.put(stream, podEvent(t, s, watch.Added, "after", "4"))
	f.put(stream, end)
	if c.slow.Load() != 1 {
		t.Errorf("ended %d times", c.slow.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer := httptest.NewRecorder()
	w := &writer{ResponseWriter: unlimited{answer}, observer: c, patience: time.Minute}
	w.control = http.NewResponseController(w.ResponseWriter)
	stream.write(ctx, w, jsonFrames(t, &s.encodings))
	if ctx.Err() != nil {
		t.Error("the stream does not end")
	}
	if text := answer.Body.String(); strings.Contains(text, "after") || strings.Contains(text, "BOOKMARK") {
		t.Errorf("the agent is told what came after what it lacks: %.300s", text)
	}
}

// unlimited is an answer to which it may take any time to write.
type unlimited struct{ http.ResponseWriter }

func (unlimited) SetWriteDeadline(time.Time) error { return nil }

// askFor asks for the span of a node, and computes until there is an answer.
func askFor(t *testing.T, s *Spans, node string, now time.Time) *spanRequest {
	t.Helper()
	r := &spanRequest{ctx: t.Context(), node: node, arrived: now, reply: make(chan error, 1)}
	s.ask(r)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		work(t, s, now)
		select {
		case err := <-r.reply:
			if err != nil {
				t.Fatal(err)
			}
			return r
		default:
		}
	}
	t.Fatal("no answer")
	return nil
}

// work does what Run does once.
func work(t *testing.T, s *Spans, now time.Time) {
	t.Helper()
	for _, task := range s.mail.take() {
		task()
	}
	s.turn(t.Context(), now)
}

// TestSpansThatNobodyNeeds are computed for some minutes, for agents that come back, and then no more.
func TestSpansThatNobodyNeeds(t *testing.T) {
	k, _, _ := newChurning(t)
	s, o := spansOf(t, k)
	now := time.Now()
	work(t, s, now)
	if s.feed != nil {
		t.Error("spans are computed before anybody asks")
	}
	first := askFor(t, s, "node-1", now)
	if s.feed == nil || o.agents != 1 {
		t.Errorf("%d agents have a span", o.agents)
	}
	work(t, s, now.Add(unused+time.Minute))
	if s.feed == nil {
		t.Fatal("spans are given up while an agent has one")
	}
	now = now.Add(unused + time.Minute)
	s.leave(first)
	work(t, s, now)
	kept := s.feed
	work(t, s, now.Add(unused-time.Second))
	if kept == nil || s.feed != kept || o.agents != 0 {
		t.Errorf("%d agents have a span; spans are given up: %t", o.agents, s.feed == nil)
	}
	now = now.Add(unused - time.Second)
	second := askFor(t, s, "node-2", now)
	if s.feed != kept {
		t.Error("spans are computed anew for an agent that comes back in time")
	}
	s.leave(second)
	work(t, s, now)
	work(t, s, now.Add(unused+time.Second))
	if s.feed != nil || o.agents != 0 || o.pods != 0 {
		t.Errorf("spans of %d pods are computed for nobody", o.pods)
	}
	third := askFor(t, s, "node-1", now.Add(2*unused))
	if s.feed == nil || s.feed == kept {
		t.Error("spans are not computed again")
	}
	s.leave(third)
	s.drop()
}

// TestSpansThatFallBehind keep no more events than they may, and have all of them in the end.
func TestSpansThatFallBehind(t *testing.T) {
	k, c, _ := newChurning(t)
	s, _ := spansOf(t, k)
	now := time.Now()
	r := askFor(t, s, "node", now)
	random := rand.New(rand.NewPCG(1, 2))
	for range 3 * crowd {
		c.change(random)
	}
	last := c.version
	waiting := func() int {
		s.mail.mu.Lock()
		defer s.mail.mu.Unlock()
		return len(s.mail.tasks)
	}
	for deadline := time.Now().Add(20 * time.Second); waiting() < crowd; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d events wait", waiting())
		}
	}
	time.Sleep(500 * time.Millisecond)
	if n := waiting(); n > crowd+len(s.feed.taps) {
		t.Errorf("%d events wait, want at most about %d", n, crowd)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		work(t, s, now)
		if s.feed.lost {
			t.Fatal("the spans are computed anew")
		}
		if reached, _ := s.feed.pods.reached(); reached >= last {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the spans do not catch up")
		}
	}
	if have := s.feed.spans.Pods(); have != len(c.pods) {
		t.Errorf("the spans have %d pods, want %d", have, len(c.pods))
	}
	s.leave(r)
	s.drop()
}
