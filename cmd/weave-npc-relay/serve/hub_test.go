package serve

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
)

// listed is the version of the list with which a churning kind begins.
const listed = 100

// churning is a source whose pods change as a test says.
type churning struct {
	source
	events  *watch.FakeWatcher
	pods    map[string]bool
	version uint64
	event   uint64 // version of the last event
}

// GetList implements storage.Interface.
func (c *churning) GetList(_ context.Context, _ string, _ storage.ListOptions, into runtime.Object) error {
	into.(*corev1.PodList).ResourceVersion = strconv.Itoa(listed)
	return nil
}

// Watch implements storage.Interface.
func (c *churning) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return c.events, nil
}

// GetCurrentResourceVersion implements storage.Interface.
func (c *churning) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return c.Reached().Version, nil
}

// RequestWatchProgress implements storage.Interface.
func (c *churning) RequestWatchProgress(context.Context) error { return nil }

// EnableResourceSizeEstimation implements storage.Interface.
func (c *churning) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (c *churning) CompactRevision() int64 { return 0 }

// ReadinessCheck implements storage.Interface.
func (c *churning) ReadinessCheck() error { return nil }

// IsWatchListSemanticsUnSupported makes the cache list.
func (c *churning) IsWatchListSemanticsUnSupported() bool { return true }

// change adds, changes or deletes a pod, and skips some versions, which are those of other kinds.
func (c *churning) change(random *rand.Rand) {
	c.version += 1 + uint64(random.IntN(3))
	c.event = c.version
	name := fmt.Sprintf("p%d", random.IntN(20))
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", ResourceVersion: strconv.FormatUint(c.version, 10)}}
	c.set(upstream.Reached{Event: c.version, Version: c.version, Fresh: true, Listed: time.Now()})
	switch {
	case !c.pods[name]:
		c.pods[name] = true
		c.events.Add(o)
	case random.IntN(4) == 0:
		delete(c.pods, name)
		c.events.Delete(o)
	default:
		c.events.Modify(o)
	}
	if random.IntN(10) == 0 { // nothing that matters happened
		c.version++
		c.set(upstream.Reached{Event: c.event, Version: c.version, Fresh: true, Listed: time.Now()})
	}
}

// newChurning returns a kind that serves a churning source.
func newChurning(t *testing.T) (*Kind, *churning, *frames) {
	t.Helper()
	codecs, err := kinds.NewCodecs()
	if err != nil {
		t.Fatal(err)
	}
	c := &churning{events: watch.NewFakeWithChanSize(1000, false), pods: map[string]bool{}, version: listed}
	c.set(upstream.Reached{Event: listed, Version: listed, Fresh: true, Listed: time.Now()})
	k := NewKind(kinds.All()[1], codecs, &counts{})
	if err := k.Start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	for deadline := time.Now().Add(time.Minute); !ready(k); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the cache does not become ready")
		}
	}
	e := encodings{kind: k.kind, codecs: codecs, by: map[string]*frames{}}
	return k, c, jsonFrames(t, &e)
}

func ready(k *Kind) bool {
	reached, ok := k.Serving()
	return ok && reached.Fresh
}

// agent is what an agent has got that began to watch at a version. Its watches go on where the one before ended.
type agent struct {
	from   uint64
	got    []string
	joined int // watches that have caught up
}

// follow watches until the agent has a version, or as many events and bookmarks as it wants. It pauses
// between reads if pause is set.
func (a *agent) follow(t *testing.T, k *Kind, f *frames, until *atomic.Uint64, want int, pause time.Duration) {
	done := func() bool { return len(a.got) >= want || until.Load() > 0 && a.version() >= until.Load() }
	for !done() {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := k.watch(ctx, &metainternalversion.ListOptions{ResourceVersion: strconv.FormatUint(a.version(), 10), AllowWatchBookmarks: true}, f)
		if err != nil {
			t.Error(err)
			cancel()
			return
		}
		end := s.begin(ctx, cancel)
		for bursts := s.out.take(nil); len(bursts) > 0; bursts = s.out.take(bursts) {
			a.got = append(a.got, decode(t, bursts)...)
			if done() {
				break
			}
			time.Sleep(pause)
		}
		end()
		cancel()
		if s.hub != nil {
			a.joined++
		}
	}
}

// version returns the version that the agent has.
func (a *agent) version() uint64 {
	if len(a.got) == 0 {
		return a.from
	}
	return versionOf(a.got[len(a.got)-1])
}

// versionOf returns the version of an event as decode returns it.
func versionOf(event string) uint64 {
	_, text, _ := strings.Cut(event, " ")
	version, _ := strconv.ParseUint(text, 10, 64)
	return version
}

// events returns what an agent has got without bookmarks, and fails if anything goes back, or an event comes that a
// bookmark said was there.
func (a *agent) events(t *testing.T) []string {
	t.Helper()
	var events []string
	last := a.from
	for _, e := range a.got {
		version, bookmark := versionOf(e), strings.HasPrefix(e, "BOOKMARK ")
		if version < last || version == last && !bookmark {
			t.Errorf("%s comes after version %d", e, last)
		}
		last = version
		if !bookmark {
			events = append(events, e)
		}
	}
	return events
}

// direct returns the events that a watch of the cache gives from a version until another.
func direct(t *testing.T, k *Kind, f *frames, version, until uint64) []string {
	t.Helper()
	_, cache := k.serving()
	everything := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes}
	w, err := cache.Watch(t.Context(), "/pods", storage.ListOptions{ResourceVersion: strconv.FormatUint(version, 10), Predicate: everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var events []string
	for {
		select {
		case e := <-w.ResultChan():
			frame, err := f.of(e)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, decode(t, [][]byte{frame})...)
			if v, err := (storage.APIObjectVersioner{}).ObjectResourceVersion(e.Object); err != nil || v >= until {
				return events
			}
		case <-time.After(time.Minute):
			t.Fatalf("a watch of the cache from %d does not come to %d", version, until)
		}
	}
}

// TestAgentsThatJoinUnderChurn begin watches at any version while pods change. Each gets what a watch of the cache
// gives from there, nothing twice, nothing out of order, and bookmarks of no more than that.
func TestAgentsThatJoinUnderChurn(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // for a test
	k, c, f := newChurning(t)
	var agents []*agent
	var following sync.WaitGroup
	var final atomic.Uint64
	for len(agents) < 80 {
		c.change(random)
		if random.IntN(8) == 0 {
			time.Sleep(time.Duration(random.IntN(4000)) * time.Microsecond)
		}
		if random.IntN(10) != 0 {
			continue
		}
		a := &agent{from: listed + uint64(random.IntN(int(c.version-listed)+1))}
		if random.IntN(2) == 0 { // many are nearly up to date, and some ahead of this relay
			a.from = max(listed, c.version-3+uint64(random.IntN(5)))
		}
		agents = append(agents, a)
		want := math.MaxInt
		if random.IntN(4) == 0 {
			want = random.IntN(200)
		}
		pause := time.Duration(random.IntN(2)*random.IntN(20)) * time.Millisecond
		following.Go(func() { a.follow(t, k, f, &final, want, pause) })
	}
	for range 20 {
		c.change(random)
	}
	final.Store(c.event)
	following.Wait()
	joined := 0
	all := direct(t, k, f, listed, c.event)
	for i, a := range agents {
		got, want := a.events(t), all
		for len(want) > 0 && versionOf(want[0]) <= a.from {
			want = want[1:]
		}
		if a.version() < c.event {
			want = want[:min(len(got), len(want))] // it left
		}
		if !slices.Equal(got, want) {
			t.Fatalf("agent %d got from %d\n%v\nwant\n%v", i, a.from, a.got, want)
		}
		joined += a.joined
	}
	if joined < 60 {
		t.Errorf("%d watches of %d agents caught up", joined, len(agents))
	}
	if k.hubs[f] == nil || !k.hubs[f].over() {
		t.Error("the hub does not end with its last agent")
	}
}

// TestAHubIsMadeAgain watches the cache again when the cache has ended its watch, as it does when a watch takes no event
// in time: agents do not notice. They do if it cannot.
func TestAHubIsMadeAgain(t *testing.T) {
	s := start(t, 10, upstream.Reached{Event: 10, Version: 10}, caughtUp)
	for v := 11; v < 31; v++ {
		s.cache.Modify(pod(v))
		if got, want := s.next(t, inTime), fmt.Sprintf("MODIFIED %d", v); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if v == 30 {
			s.refuses.Store(true)
		}
		ended := s.cache
		s.cache = watch.NewFakeWithChanSize(200, false)
		s.caches <- s.cache
		ended.Stop()
	}
	if got := s.next(t, inTime); got != "end" {
		t.Errorf("got %q", got)
	}
	for i := range 20 {
		if got, want := <-s.opened, uint64(10+i); got != want {
			t.Errorf("watch %d of the cache is from %d, not %d", i, got, want)
		}
	}
}
