package relayclient

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// failer is a test that can fail.
type failer interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

// cluster is an API server, some replicas of a relay, and an agent.
type cluster struct {
	t        failer
	harness  *harness
	api      *server
	replicas map[string]*server // by address
	addrs    []string           // in the preferred order of the agent
	relay    *Relay
}

func newCluster(t failer, replicas int) *cluster {
	t.Helper()
	c := &cluster{t: t, harness: newHarness(), replicas: map[string]*server{}}
	c.api = newServer(c.harness, false)
	all := ""
	for i := range replicas {
		addr := fmt.Sprintf("192.0.2.%d:443", i+1)
		c.replicas[addr] = newServer(c.harness, true)
		all += "," + addr
	}
	r, err := New(Config{Address: all[1:], Jitter: 30 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%v", err)
	}
	c.relay, c.addrs = r, r.agent.replicas.list(context.Background())
	for i := range 10 {
		c.harness.change(strconv.Itoa(i), false)
	}
	return c
}

// replica returns a replica by its place in the preferred order of the agent.
func (c *cluster) replica(i int) *server { return c.replicas[c.addrs[i]] }

// all calls f with each replica.
func (c *cluster) all(f func(*server)) {
	for _, s := range c.replicas {
		f(s)
	}
}

// of returns the replica that the context of a call names.
func (c *cluster) of(ctx context.Context) *server {
	return c.replicas[ctx.Value(replicaKey{}).(string)]
}

// lists returns the number of lists of all servers.
func (c *cluster) lists() int {
	n := c.api.listed()
	c.all(func(s *server) { n += s.listed() })
	return n
}

// agent follows a cluster with a reflector.
type follow struct {
	c     *cluster
	store cache.Store
	stop  func()

	mu      sync.Mutex
	version int // the last that was passed up by a watch or list
	up      bool
	reports []bool
	failed  int
}

// follow starts an agent.
func (c *cluster) follow() *follow {
	a := &follow{c: c}
	relayed := Calls{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.of(ctx).list(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.of(ctx).watch(ctx, o)
		},
	}
	report := func(up bool) func() {
		return func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.up, a.reports = up, append(a.reports, up)
		}
	}
	f := c.relay.Follow("pods", relayed, Calls{List: c.api.list, Watch: c.api.watch}, Reports{Started: report(true), Ended: report(false),
		Failed: func(context.Context, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.failed++
		}})
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := f.List(ctx, o)
			if err == nil {
				a.passed(listVersion(list), true)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := f.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return a.tap(w, o.SendInitialEvents != nil), nil
		},
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	done := make(chan struct{})
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, nil), &corev1.Pod{}, cache.SharedIndexInformerOptions{})
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		c.t.Fatalf("%v", err)
	}
	a.store = informer.GetStore()
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	a.stop = func() {
		cancel()
		<-done
		synctest.Wait()
	}
	return a
}

// passed checks that a version that is passed up is newer than all before.
func (a *follow) passed(version string, same bool) {
	n, err := strconv.Atoi(version)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || n < a.version || n == a.version && !same {
		a.c.t.Errorf("version %q after %d", version, a.version)
	}
	a.version = n
}

// tap returns a watch with all that is passed up checked.
func (a *follow) tap(w watch.Interface, initial bool) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		for {
			select {
			case <-proxy.StopChan():
				return
			case e, ok := <-w.ResultChan():
				if !ok {
					return
				}
				if m, err := meta.Accessor(e.Object); err == nil && e.Type != watch.Error {
					_, ends := endsList(e)
					if !initial || ends {
						a.passed(m.GetResourceVersion(), ends)
					}
					initial = initial && !ends
				}
				select {
				case events <- e:
				case <-proxy.StopChan():
					return
				}
			}
		}
	}()
	return proxy
}

// has returns what the agent has.
func (a *follow) has() map[string]int {
	objects := map[string]int{}
	for _, o := range a.store.List() {
		p := o.(*corev1.Pod)
		objects[p.Name], _ = strconv.Atoi(p.ResourceVersion)
	}
	return objects
}

// expect checks what the agent has after some time.
func (a *follow) expect(after time.Duration) {
	a.c.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got, want := a.has(), a.c.harness.at(a.c.harness.now()); !maps.Equal(got, want) {
		a.c.t.Errorf("agent has %v, want %v", got, want)
	}
}

// connected checks whether what the agent has counts as what the API server has.
func (a *follow) connected(want bool) {
	a.c.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up != want {
		a.c.t.Errorf("connected is %t, want %t: %v", a.up, want, a.reports)
	}
}

// TestS64_AReplicaThatFails is left for another one, and without a list.
func TestS64_AReplicaThatFails(t *testing.T) {
	status := func(n int) func(*server) {
		return func(s *server) {
			s.set(func(s *server) { s.answer = n })
			s.cut()
		}
	}
	within := func(n int) func(*server) {
		return func(s *server) {
			e := refusal(n).(interface{ Status() metav1.Status }).Status()
			s.set(func(s *server) {
				s.oldest = s.now() + 1
				s.insert = append(s.insert, watch.Event{Type: watch.Error, Object: &e})
			})
			s.cut()
		}
	}
	sends := func(e watch.EventType, o runtime.Object) func(*server) {
		return func(s *server) {
			s.set(func(s *server) { s.insert = append(s.insert, watch.Event{Type: e, Object: o}) })
			s.cut()
		}
	}
	for _, test := range []struct {
		name  string
		fails func(*server)
		after time.Duration // until it is noticed
		stays bool          // at the replica
	}{
		{"is_killed", (*server).kill, 100 * time.Millisecond, false},
		{"is_killed_and_comes_back_empty", func(s *server) { s.kill(); s.forget() }, 100 * time.Millisecond, false},
		{"ends_its_streams", (*server).cut, 100 * time.Millisecond, true},
		{"is_overloaded", status(http.StatusServiceUnavailable), 100 * time.Millisecond, false},
		{"limits", status(http.StatusTooManyRequests), 100 * time.Millisecond, false},
		{"takes_too_long", status(http.StatusGatewayTimeout), 100 * time.Millisecond, false},
		{"refuses_the_token", status(http.StatusUnauthorized), 100 * time.Millisecond, false},
		{"does_not_know_the_kind", status(http.StatusNotFound), 100 * time.Millisecond, false},
		{"has_no_such_version", status(http.StatusGone), 100 * time.Millisecond, false},
		{"has_no_such_version_any_more", within(http.StatusGone), 100 * time.Millisecond, false},
		{"breaks_off", within(http.StatusInternalServerError), 100 * time.Millisecond, false},
		{"hangs", func(s *server) { s.set(func(s *server) { s.hangs = true }); s.cut() }, openTimeout + 100*time.Millisecond, false},
		{"is_mute", func(s *server) { s.set(func(s *server) { s.mute = true }) }, freshness + 100*time.Millisecond, false},
		{"hears_nothing", func(s *server) { s.set(func(s *server) { s.frozen = true }) }, freshness + 100*time.Millisecond, false},
		{"sends_an_old_event", sends(watch.Modified, pod("1", 50)), 100 * time.Millisecond, true},
		{"sends_an_old_bookmark", sends(watch.Bookmark, pod("", 50)), 100 * time.Millisecond, true},
		{"sends_what_has_no_version", sends(watch.Modified, &corev1.Pod{}), 100 * time.Millisecond, false},
		{"sends_what_is_no_object", sends(watch.Modified, &metav1.APIGroup{}), 100 * time.Millisecond, false},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/plain_%t", test.name, plain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2)
					c.all(func(s *server) { s.plain = plain })
					a := c.follow()
					defer a.stop()
					a.expect(2 * time.Second)
					a.connected(true)
					lists, first := c.lists(), c.replica(0)
					if lists != 1 || first.open() != 1 {
						t.Fatalf("%d lists, %d streams", lists, first.open())
					}
					c.harness.change("before", false)
					time.Sleep(time.Second)
					test.fails(first)
					c.harness.change("after", false)
					c.harness.change("3", true)
					a.expect(test.after)
					time.Sleep(time.Second)
					a.connected(true)
					c.harness.change("later", false)
					a.expect(100 * time.Millisecond)
					if c.lists() != lists || c.api.open() != 0 || (first.open() == 1) != test.stays {
						t.Errorf("%d lists, %d streams at the API server, %d at the first replica", c.lists(), c.api.open(), first.open())
					}
				})
			})
		}
	}
}

// TestS64_NoReplicaIsLeft shows that the API server is watched then, at the same version, and the relay when it is
// back.
func TestS64_NoReplicaIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a := c.follow()
		defer a.stop()
		a.expect(2 * time.Second)
		c.all((*server).kill)
		c.harness.change("a", false)
		a.expect(fallSpread + 100*time.Millisecond)
		a.connected(true)
		if c.lists() != 1 || c.api.open() != 1 {
			t.Errorf("%d lists, %d streams at the API server", c.lists(), c.api.open())
		}
		time.Sleep(5 * time.Minute)
		c.harness.change("b", false)
		a.expect(100 * time.Millisecond)
		marked := len(a.reports)
		c.replica(1).restart()
		for range 500 {
			c.harness.change(strconv.Itoa(rand.IntN(20)), rand.IntN(2) == 0)
			a.expect(100 * time.Millisecond)
		}
		if c.lists() != 1 || c.api.open() != 0 || c.replica(1).open() != 1 {
			t.Errorf("%d lists, %d streams at the API server, %d at the replica", c.lists(), c.api.open(), c.replica(1).open())
		}
		if len(a.reports) != marked {
			t.Errorf("the way back is an outage: %v", a.reports)
		}
		if s := c.relay.Stats(); s.API.Moves.Load() != 1 || s.Relay.Moves.Load() != 1 || s.Relay.Watches.Load() != 1 || s.API.Watches.Load() != 0 ||
			s.Relay.Lists.Load() != 1 || s.API.Lists.Load() != 0 {
			t.Errorf("counted %v", s)
		}
	})
}

// TestS64_AReplicaThatIsBehind does not take over before it is not, and nothing goes back in time.
func TestS64_AReplicaThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		a := c.follow()
		defer a.stop()
		a.expect(2 * time.Second)
		c.replica(0).kill()
		a.expect(fallSpread + 100*time.Millisecond)
		c.replica(0).set(func(s *server) { s.down, s.frozen, s.reached = false, true, s.now() })
		for range 1200 {
			c.harness.change(strconv.Itoa(rand.IntN(20)), rand.IntN(2) == 0)
			a.expect(100 * time.Millisecond)
			a.connected(true)
		}
		if c.api.open() != 1 {
			t.Errorf("the API server is not watched")
		}
		c.replica(0).set(func(s *server) { s.frozen = false })
		a.expect(2 * time.Minute)
		if c.api.open() != 0 || c.lists() != 1 {
			t.Errorf("%d streams at the API server, %d lists", c.api.open(), c.lists())
		}
	})
}

// TestS59_ARelayThatLagsIsNoConnection shows that what no replica confirms within three seconds does not count as what
// the API server has.
func TestS59_ARelayThatLagsIsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a := c.follow()
		defer a.stop()
		a.expect(2500 * time.Millisecond)
		a.connected(true)
		c.api.kill() // none hears anything
		c.all(func(s *server) { s.set(func(s *server) { s.frozen = true }) })
		time.Sleep(freshness - time.Second)
		a.connected(true)
		time.Sleep(1100 * time.Millisecond)
		a.connected(false)
		time.Sleep(10 * time.Minute)
		a.connected(false)
		if a.failed == 0 {
			t.Error("that no server answers is not reported")
		}
		c.all(func(s *server) { s.set(func(s *server) { s.frozen = false }) })
		c.harness.change("new", false)
		a.expect(retryMost + 10*time.Second)
		a.connected(true)
		if c.lists() != 1 {
			t.Errorf("%d lists", c.lists())
		}
	})
}

// TestS64_NoServerHasTheVersion shows that agents list again then, once each and not all at once.
func TestS64_NoServerHasTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 100
		c := newCluster(t, 1)
		all := make([]*follow, agents)
		for i := range all {
			all[i] = c.follow()
			defer all[i].stop()
		}
		time.Sleep(2 * time.Second)
		c.harness.change("a", false)
		c.replica(0).kill()
		c.api.forget()
		started := time.Now()
		c.replica(0).forget()
		time.Sleep(time.Minute)
		for _, a := range all {
			a.expect(0)
		}
		c.replica(0).guard.Lock()
		defer c.replica(0).guard.Unlock()
		again := c.replica(0).lists[agents:]
		if len(again) != agents || c.api.listed() != 0 {
			t.Fatalf("%d lists by %d agents, %d of the API server", len(again), agents, c.api.listed())
		}
		if last := again[agents-1].Sub(started); last < 20*time.Second || again[agents/2].Sub(started) < 10*time.Second {
			t.Errorf("half of the lists within %s, all within %s", again[agents/2].Sub(started), last)
		}
	})
}

// TestS64_TheFirstList is made wherever it can be.
func TestS64_TheFirstList(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*cluster)
		api  int // lists of the API server
	}{
		{"the_relay_works", func(*cluster) {}, 0},
		{"a_replica_is_down", func(c *cluster) { c.replica(0).kill() }, 0},
		{"the_relay_is_down", func(c *cluster) { c.all((*server).kill) }, 1},
		{"the_relay_hangs", func(c *cluster) { c.all(func(s *server) { s.hangs = true }) }, 1},
		{"the_relay_refuses", func(c *cluster) { c.all(func(s *server) { s.answer = http.StatusForbidden }) }, 1},
		{"the_api_server_is_down", func(c *cluster) { c.api.kill() }, 0},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/plain_%t", test.name, plain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2)
					c.all(func(s *server) { s.plain = plain })
					test.set(c)
					a := c.follow()
					defer a.stop()
					a.expect(2*listsTimeout + 10*time.Second)
					a.connected(true)
					if c.api.listed() != test.api || c.lists() != 1 {
						t.Errorf("%d lists, %d of the API server", c.lists(), c.api.listed())
					}
				})
			})
		}
	}
}

// TestS64_RandomOutages changes objects while replicas and the API server come and go, and compares the objects of an
// agent with the existing ones.
func TestS64_RandomOutages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			replicas := rapid.IntRange(1, 3).Draw(rt, "replicas")
			c := newCluster(rt, replicas)
			plain := rapid.Bool().Draw(rt, "plain")
			c.all(func(s *server) { s.plain = plain })
			agents := []*follow{c.follow(), c.follow()}
			defer func() {
				for _, a := range agents {
					a.stop()
				}
			}()
			time.Sleep(2 * time.Second) // the first lists
			forgot := false
			servers := []*server{c.api}
			for _, addr := range c.addrs {
				servers = append(servers, c.replicas[addr])
			}
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				s := servers[rapid.IntRange(0, len(servers)-1).Draw(rt, "server")]
				switch what := rapid.SampledFrom([]string{"change", "change", "change", "delete", "kill", "restart", "cut", "mute", "freeze", "hang",
					"answer", "forget", "heal", "old", "wait"}).Draw(rt, "what"); what {
				case "change", "delete":
					c.harness.change(strconv.Itoa(rapid.IntRange(0, 5).Draw(rt, "object")), what == "delete")
				case "kill":
					s.kill()
				case "restart":
					forgot = true
					s.cut()
					s.restart()
				case "cut":
					s.cut()
				case "mute":
					s.set(func(s *server) { s.mute = s.relay })
				case "freeze":
					s.set(func(s *server) { s.frozen = s.relay })
				case "hang":
					s.set(func(s *server) { s.hangs = true })
				case "answer":
					forgot = true // some answer that they did
					s.set(func(s *server) {
						s.answer = rapid.SampledFrom([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGone,
							http.StatusInternalServerError, http.StatusUnauthorized}).Draw(rt, "status")
					})
				case "forget":
					forgot = true
					s.set(func(s *server) { s.oldest = s.now() })
				case "heal":
					s.set(func(s *server) { s.down, s.frozen, s.mute, s.hangs, s.answer = false, false, false, false, 0 })
				case "old":
					s.set(func(s *server) { s.insert = append(s.insert, watch.Event{Type: watch.Modified, Object: pod("2", 10)}) })
				case "wait":
					time.Sleep(time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds")) * time.Second)
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "milliseconds")) * time.Millisecond)
			}
			for _, s := range servers {
				s.set(func(s *server) { s.down, s.frozen, s.mute, s.hangs, s.answer = false, false, false, false, 0 })
			}
			for _, a := range agents {
				a.expect(5 * time.Minute)
				a.connected(true)
			}
			if n := c.lists(); !forgot && n != len(agents) {
				rt.Errorf("%d lists by %d agents", n, len(agents))
			}
		})
	})
}
