package relay

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc/source/span"
)

// field is an API server with pods and policies, replicas that compute spans, and agents of a node.
type field struct {
	t        failer
	world    *manifold
	api      *place
	replicas []*place
}

func newField(t failer, replicas int, plain bool) *field {
	f := &field{t: t, world: &manifold{version: 100}}
	for i := range 12 {
		f.world.change(false, fmt.Sprintf("p%d", i), i%6)
	}
	f.world.change(true, "a", 1)
	f.world.change(true, "b", 2)
	f.api = newPlace(f.world, false)
	f.api.plain = plain
	for range replicas {
		f.replicas = append(f.replicas, newPlace(f.world, true))
	}
	return f
}

func (f *field) spans() int {
	n := 0
	for _, r := range f.replicas {
		r.set(func(r *place) { n += r.spans })
	}
	return n
}

// observer is an agent that handles pods, and policies when it may.
type observer struct {
	f     *field
	of    *Follower
	gate  *span.Gate
	stop  func()
	delay time.Duration // of its policies
	read  *record       // of them

	mu      sync.Mutex
	pods    map[string]string // name -> version
	newest  map[string]int    // name -> the newest version, or that of the deletion
	passed  map[string]int    // policy -> version
	up      bool
	reports []bool
	order   []string // the replicas
}

// observe starts an agent whose policies arrive with a delay.
func (f *field) observe(delay time.Duration) *observer {
	all, byAddr := "", map[string]*place{}
	for i, r := range f.replicas {
		addr := fmt.Sprintf("192.0.2.%d:443", i+1)
		all, byAddr[addr] = all+","+addr, r
	}
	r, err := New(Config{Address: all[1:], Spread: 30 * time.Second, Span: "here", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatalf("%v", err)
	}
	a := &observer{f: f, gate: r.Gate(), delay: delay, read: &record{}, pods: map[string]string{}, newest: map[string]int{}, passed: map[string]int{},
		order: r.agent.replicas.list(context.Background())}
	of := func(ctx context.Context) *place { return byAddr[ctx.Value(replicaKey{}).(string)] }
	report := func(up bool) func() {
		return func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.up, a.reports = up, append(a.reports, up)
		}
	}
	a.of = r.Follow("pods", Calls{
		List:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of(ctx).list(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return of(ctx).watch(ctx, o) },
	}, Calls{List: f.api.list, Watch: f.api.watch}, Reports{Started: report(true), Ended: report(false), Failed: func(context.Context, error) {}})
	r.agent.follows(policies, a.read.delivered)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	var tasks sync.WaitGroup
	a.inform(ctx, &tasks)
	tasks.Go(func() { a.readPolicies(ctx) })
	a.stop = func() {
		cancel()
		tasks.Wait()
		synctest.Wait()
	}
	return a
}

// inform handles the pods, as a reflector and an informer pass them on.
func (a *observer) inform(ctx context.Context, tasks *sync.WaitGroup) {
	lw := &cache.ListWatch{ListWithContextFunc: a.of.List, WatchFuncWithContext: a.of.Watch}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, nil), &corev1.Pod{}, cache.SharedIndexInformerOptions{})
	err := informer.SetTransform(func(obj any) (any, error) {
		if m := span.MarkOf(obj); m != nil {
			return m, nil
		}
		return obj, nil
	})
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	}
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: a.set, UpdateFunc: func(_, obj any) { a.set(obj) }, DeleteFunc: a.remove})
	}
	if err != nil {
		a.f.t.Fatalf("%v", err)
	}
	tasks.Go(func() { informer.RunWithContext(ctx) })
}

func (a *observer) set(obj any) {
	if m, is := obj.(*span.Mark); is {
		a.gate.Reach(m)
		return
	}
	p := obj.(*corev1.Pod)
	version, _ := strconv.Atoi(p.ResourceVersion)
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.Name == "" || version < a.newest[p.Name] {
		a.f.t.Errorf("pod %q of version %d after %d", p.Name, version, a.newest[p.Name])
	}
	a.pods[p.Name], a.newest[p.Name] = p.ResourceVersion, version
}

func (a *observer) remove(obj any) {
	if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
		obj = gone.Obj
	}
	p, is := obj.(*corev1.Pod)
	if !is {
		return
	}
	version, _ := strconv.Atoi(p.ResourceVersion)
	now := a.f.world.now()
	there := a.f.world.at(false, now)[p.Name]
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, named := range a.f.world.at(true, now) {
		if there.version == version && named.group == there.group && a.passed[name] == named.version {
			a.f.t.Errorf("pod %s of version %d went, which policy %s of version %d names", p.Name, version, name, named.version)
		}
	}
	delete(a.pods, p.Name)
	a.newest[p.Name] = max(a.newest[p.Name], version)
}

// readPolicies handles the policies, one after another, each when the gate lets it through.
func (a *observer) readPolicies(ctx context.Context) {
	read := 0
	for pause(ctx, 50*time.Millisecond+a.delay) == nil {
		upTo := a.f.world.now()
		a.read.deliver(strconv.Itoa(upTo))
		for _, p := range a.f.world.since(true, read, upTo) {
			if p.group >= 0 && !a.gate.Await(ctx, policies, strconv.Itoa(p.version)) {
				return
			}
			a.pass(p)
		}
		read = upTo
	}
}

// pass checks that the pods that a policy names were handled before it is.
func (a *observer) pass(p fact) {
	delivered, _ := strconv.Atoi(a.of.delivered())
	now := a.f.world.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.passed[p.name] = p.version; p.group < 0 {
		delete(a.passed, p.name)
		return
	}
	if a.f.world.at(true, now)[p.name].version != p.version || a.f.api.open() > 0 {
		return // it is followed by another one, or all pods are, where there is no order
	}
	for name, pod := range a.f.world.at(false, now) {
		if _, has := a.pods[name]; !has && pod.group == p.group && pod.version <= min(delivered, p.version) {
			a.f.t.Errorf("policy %s of version %d was passed on before pod %s of version %d", p.name, p.version, name, pod.version)
		}
	}
}

// expect checks that the agent has the span, or all pods, and has passed on all policies.
func (a *observer) expect(after time.Duration, want func(version int) map[string]fact) {
	time.Sleep(after)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.f.world.now()
	if d := differences(a.pods, versions(want(now))); d != "" {
		a.f.t.Errorf("the agent's pods differ: %s", d)
	}
	for name, p := range a.f.world.at(true, now) {
		if a.passed[name] != p.version {
			a.f.t.Errorf("policy %s is that of version %d, want %d", name, a.passed[name], p.version)
		}
	}
}

func (a *observer) expectSpan(after time.Duration) {
	a.expect(after, func(version int) map[string]fact { return a.f.world.span(version, version) })
}

func (a *observer) expectAll(after time.Duration) {
	a.expect(after, func(version int) map[string]fact { return a.f.world.at(false, version) })
}

func (a *observer) connected(want bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up != want {
		a.f.t.Errorf("connected is %t, want %t: %v", a.up, want, a.reports)
	}
}

// TestS64_ASpan shows what an agent of a node has of the pods, and that policies come after the pods that they name.
func TestS64_ASpan(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newField(t, 2, plain)
			a := f.observe(0)
			defer a.stop()
			a.expectSpan(3 * time.Second)
			a.connected(true)
			f.world.change(true, "c", 3) // pods enter
			a.expectSpan(200 * time.Millisecond)
			f.world.change(true, "a", 4) // others leave
			a.expectSpan(3 * time.Second)
			f.world.change(false, "p1", 4)
			f.world.change(false, "p2", 5)
			f.world.change(false, "p3", -1)
			f.world.change(false, "p0", -1)
			f.world.change(false, "p0", 0) // of the same name
			a.expectSpan(3 * time.Second)
			f.world.change(true, "c", -1)
			a.expectSpan(3 * time.Second)
			if f.api.listed() != 0 || f.api.open() != 0 {
				t.Errorf("%d lists, %d streams at the API server", f.api.listed(), f.api.open())
			}
		})
	}
}

// TestS64_AReplicaOfASpanThatFails is left for another one, and nothing else is listed.
func TestS64_AReplicaOfASpanThatFails(t *testing.T) {
	for name, fails := range map[string]func(*place){
		"is_killed":               (*place).kill,
		"ends_its_streams":        (*place).cut,
		"is_mute":                 func(p *place) { p.set(func(p *place) { p.mute = true }) },
		"hears_nothing":           func(p *place) { p.set(func(p *place) { p.frozen = true }) },
		"hears_of_no_policies":    func(p *place) { p.set(func(p *place) { p.blind = true }) },
		"knows_no_spans_any_more": func(p *place) { p.set(func(p *place) { p.refuses = true }); p.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newField(t, 2, false)
				a := f.observe(0)
				defer a.stop()
				a.expectSpan(3 * time.Second)
				for _, r := range f.replicas {
					if r.open() > 0 {
						fails(r)
						break
					}
				}
				for i := range 200 { // as a cluster in which pods come and go
					f.world.change(false, fmt.Sprintf("p%d", i%12), i%6)
					f.world.change(true, "c", i%5)
					time.Sleep(100 * time.Millisecond)
				}
				a.expectSpan(8 * time.Second)
				a.connected(true)
				if f.api.listed() != 0 || f.api.open() != 0 {
					t.Errorf("%d lists, %d streams at the API server", f.api.listed(), f.api.open())
				}
			})
		})
	}
}

// TestS64_NoReplicaHasTheSpan shows that an agent has what it has for a while then, lists all pods once, and returns to the span.
func TestS64_NoReplicaHasTheSpan(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newField(t, 2, plain)
			a := f.observe(0)
			defer a.stop()
			a.expectSpan(3 * time.Second)
			for _, r := range f.replicas {
				r.kill()
			}
			time.Sleep(fallSpread)
			f.world.change(false, "p0", -1) // which it knows
			f.world.change(false, "new", 5) // which it does not
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if f.api.listed() == 0 && f.api.open() == 1 { // or the random time is short after which it lists all pods
				a.connected(false)
				a.mu.Lock()
				if d := differences(a.pods, versions(f.world.span(f.world.now(), f.world.now()))); d != "" {
					t.Error(d)
				}
				a.mu.Unlock()
			}
			f.world.change(true, "c", 5)
			a.expectAll(45 * time.Second)
			a.connected(true)
			f.world.change(true, "d", 5)
			f.world.change(false, "later", 5)
			a.expectAll(200 * time.Millisecond)
			marked := len(a.reports)
			f.replicas[1].heal()
			for i := range 600 {
				f.world.change(false, fmt.Sprintf("p%d", i%12), i%6)
				f.world.change(true, "c", i%5)
				time.Sleep(100 * time.Millisecond)
			}
			a.expectSpan(8 * time.Second)
			if f.api.listed() != 1 || f.api.open() != 0 || len(a.reports) != marked {
				t.Errorf("%d lists and %d streams at the API server, reports %v", f.api.listed(), f.api.open(), a.reports)
			}
		})
	}
}

// TestS64_ReplicasThatDoNotKnowPolicies holds a policy up for no longer than a few minutes: the agent then lists all pods.
func TestS64_ReplicasThatDoNotKnowPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newField(t, 2, false)
		a := f.observe(0)
		defer a.stop()
		a.expectSpan(3 * time.Second)
		for _, r := range f.replicas {
			r.set(func(r *place) { r.unread = true })
		}
		f.world.change(true, "new", 5)
		time.Sleep(30 * time.Second)
		if a.mu.Lock(); a.passed["new"] != 0 {
			t.Error("a policy was passed on before the pods that it names")
		}
		a.mu.Unlock()
		a.expectAll(3 * time.Minute)
		a.connected(true)
		for range 100 { // the replicas know of pods all the while
			f.world.change(false, "p0", -1)
			time.Sleep(5 * time.Second)
		}
		a.expectAll(time.Second)
		if n := f.api.listed(); n != 1 {
			t.Errorf("%d lists", n)
		}
		for _, r := range f.replicas {
			r.set(func(r *place) { r.unread = false })
		}
		for i := range 120 {
			f.world.change(false, fmt.Sprintf("p%d", i%12), i%6)
			time.Sleep(time.Second)
		}
		a.expectSpan(8 * time.Second)
	})
}

// TestS64_TheSpanReturnsBeforeAList shows that an agent goes on with a replica that returns soon, without a list.
func TestS64_TheSpanReturnsBeforeAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newField(t, 1, false)
		agents := make([]*observer, 30)
		for i := range agents {
			agents[i] = f.observe(0)
		}
		time.Sleep(3 * time.Second)
		f.replicas[0].kill()
		time.Sleep(fallSpread / 2)
		f.world.change(true, "c", 5)
		f.world.change(false, "p0", 3)
		f.replicas[0].heal()
		for _, a := range agents {
			defer a.stop()
		}
		time.Sleep(time.Minute)
		for _, a := range agents {
			a.expectSpan(0)
			a.connected(true)
		}
		if n := f.api.listed(); n > len(agents)/3 { // whoever was to list within these seconds
			t.Errorf("%d agents of %d listed all", n, len(agents))
		}
	})
}

// TestS64_TheFirstSpan is that of whoever answers.
func TestS64_TheFirstSpan(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newField(t, 2, plain)
			for _, r := range f.replicas {
				r.refuses = true // they are of a version before spans
			}
			a := f.observe(0)
			defer a.stop()
			a.expectAll(15 * time.Second)
			a.connected(true)
			if f.api.listed() != 1 {
				t.Errorf("%d lists", f.api.listed())
			}
		})
	}
}

// TestS64_RandomOutagesOfSpans changes pods and policies while replicas and the API server come and go: nothing goes back in time, no policy
// comes before its pods, and in the end each agent has its span.
func TestS64_RandomOutagesOfSpans(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			f := newField(rt, rapid.IntRange(1, 3).Draw(rt, "replicas"), rapid.Bool().Draw(rt, "plain"))
			agents := []*observer{f.observe(0), f.observe(rapid.SampledFrom([]time.Duration{10 * time.Millisecond, 700 * time.Millisecond}).Draw(rt, "delay"))}
			defer func() {
				for _, a := range agents {
					a.stop()
				}
			}()
			time.Sleep(3 * time.Second)
			places := append([]*place{f.api}, f.replicas...)
			served, forgot := true, false // a replica has worked all the time
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				f.step(rt, places[rapid.IntRange(0, len(places)-1).Draw(rt, "place")], &forgot)
				works := false
				for _, r := range f.replicas {
					works = works || r.works()
				}
				served = served && works
				time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "milliseconds")) * time.Millisecond)
			}
			for _, p := range places {
				p.set(func(p *place) { p.lag = 0 })
				p.heal()
			}
			time.Sleep(3 * time.Minute)
			for _, a := range agents {
				a.expectSpan(0)
				a.connected(true)
			}
			if n := f.api.listed(); served && f.replicas[0].works() && len(f.replicas) == 1 && n != 0 {
				rt.Errorf("%d lists while the replica stood", n)
			}
			if f.spans() == 0 {
				rt.Errorf("no span was asked for")
			}
		})
	})
}

// step does something.
func (f *field) step(rt *rapid.T, p *place, forgot *bool) {
	switch what := rapid.SampledFrom([]string{"pod", "pod", "pod", "policy", "policy", "kill", "heal", "cut", "mute", "freeze", "blind", "lag", "refuse", "forget",
		"wait"}).Draw(rt, "what"); what {
	case "pod", "policy":
		name := strconv.Itoa(rapid.IntRange(0, 11).Draw(rt, "object"))
		group := rapid.IntRange(-1, 5).Draw(rt, "group")
		if what == "policy" {
			f.world.change(true, []string{"a", "b", "c", "d"}[rapid.IntRange(0, 3).Draw(rt, "policy")], group)
			return
		}
		f.world.change(false, "p"+name, group)
	case "kill":
		p.kill()
	case "heal":
		p.heal()
	case "cut":
		p.cut()
	case "mute":
		p.set(func(p *place) { p.mute = p.relay })
	case "freeze":
		p.set(func(p *place) { p.frozen = p.relay })
	case "blind":
		p.set(func(p *place) { p.blind = p.relay })
	case "lag":
		p.set(func(p *place) { p.lag = time.Duration(rapid.IntRange(0, 2000).Draw(rt, "lag")) * time.Millisecond })
	case "refuse":
		p.set(func(p *place) { p.refuses = p.relay })
	case "forget":
		*forgot = true
		p.set(func(p *place) { p.oldest = p.now() + 1 })
		p.cut()
	case "wait":
		time.Sleep(time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds")) * time.Second)
	}
}
