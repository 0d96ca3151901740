package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/relay"
)

// fleetSize is how many agents of a test there are, and kindsEach how many kinds each of them follows.
const fleetSize, kindsEach = 30, 3

// followedKinds returns the kinds that agents follow where no policy needs another one.
func followedKinds() []string { return []string{"namespaces", "pods", "networkpolicies"} }

// fleet is many agents with a relay, and one without.
type fleet struct {
	*harness
	agents []*agent
	direct *agent
}

// newFleet runs agents in a cluster that has some objects of each kind, and waits until they have listed everything.
func newFleet(t *testing.T, w *harness, direct kubernetes.Interface, spread time.Duration, relays ...*running) *fleet {
	t.Helper()
	f := &fleet{harness: w, direct: w.runAgent(t)}
	for range fleetSize {
		f.agents = append(f.agents, w.runAgentOf(t, direct, spread, relays...))
	}
	w.eventually("all agents have listed everything by a relay", func() bool {
		for _, a := range f.agents {
			if !a.synced.Load() || a.stats.Relay.Watches.Load() < kindsEach {
				return false
			}
		}
		return f.direct.synced.Load()
	})
	f.alike("at the start")
	if relayed, direct := f.watches(); relayed != fleetSize*kindsEach || direct != 0 {
		t.Fatalf("%d watches at relays, %d at the API server; want %d at relays", relayed, direct, fleetSize*kindsEach)
	}
	return f
}

// watches returns how many watches are open at relays, and how many at the API server.
func (f *fleet) watches() (relayed, direct int64) {
	for _, a := range f.agents {
		relayed += a.stats.Relay.Watches.Load()
		direct += a.stats.API.Watches.Load()
	}
	return relayed, direct
}

// lists returns how many lists there were, by the agent that made most and by all together.
func (f *fleet) lists() (most, all uint64) {
	for _, a := range f.agents {
		n := a.stats.Relay.Lists.Load() + a.stats.API.Lists.Load()
		most, all = max(most, n), all+n
	}
	return most, all
}

// moves returns how many watches went on at relays, and how many at the API server.
func (f *fleet) moves() (relayed, direct uint64) {
	for _, a := range f.agents {
		relayed += a.stats.Relay.Moves.Load()
		direct += a.stats.API.Moves.Load()
	}
	return relayed, direct
}

// at waits until all is watched at relays, or all at the API server.
func (f *fleet) at(relays bool, when string) {
	f.t.Helper()
	start := time.Now()
	f.eventually(when, func() bool {
		relayed, direct := f.watches()
		if !relays {
			relayed, direct = direct, relayed
		}
		return relayed == fleetSize*kindsEach && direct == 0
	})
	relayed, direct := f.moves()
	f.t.Logf("%s after %s; there were %d moves to relays and %d to the API server", when, time.Since(start).Round(100*time.Millisecond), relayed, direct)
}

// servedBy waits until all is watched at a relay.
func (f *fleet) servedBy(r *running) {
	f.t.Helper()
	start := time.Now()
	f.eventually("all are served by one relay", func() bool {
		metrics := r.get(f.t, "/metrics")
		for _, kind := range followedKinds() {
			if !strings.Contains(metrics, fmt.Sprintf("weavenpcrelay_watchers{kind=%q} %d\n", kind, fleetSize)) {
				return false
			}
		}
		return true
	})
	relayed, direct := f.moves()
	f.t.Logf("all are at one relay after %s; there were %d moves to relays and %d to the API server",
		time.Since(start).Round(100*time.Millisecond), relayed, direct)
}

// alike waits until all agents know what the one knows that asks the API server.
func (f *fleet) alike(when string) {
	f.t.Helper()
	f.eventually(when+": all agents know the same", func() bool {
		want := f.direct.state()
		for _, a := range f.agents {
			if !cmp.Equal(a.state(), want) {
				return false
			}
		}
		return len(want) >= 5
	})
}

// furnish creates an object of each kind that agents follow, besides the namespaces.
func (w *harness) furnish() {
	w.t.Helper()
	ctx := w.t.Context()
	_, err := w.client.NetworkingV1().NetworkPolicies("shop").Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}},
		metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.CoreV1().Pods("shop").Create(ctx, pod("restless"), metav1.CreateOptions{})
	w.must(err)
}

// touch changes one of each kind that agents follow.
func (w *harness) touch(value string) {
	w.t.Helper()
	ctx, patch := w.t.Context(), fmt.Appendf(nil, `{"metadata":{"labels":{"touched":%q}}}`, value)
	_, err := w.client.CoreV1().Namespaces().Patch(ctx, "shop", types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
	_, err = w.client.CoreV1().Pods("shop").Patch(ctx, "restless", types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
	spec := fmt.Appendf(nil, `{"spec":{"podSelector":{"matchLabels":{"touched":%q}}}}`, value)
	_, err = w.client.NetworkingV1().NetworkPolicies("shop").Patch(ctx, "policy", types.MergePatchType, spec, metav1.PatchOptions{})
	w.must(err)
}

// stir changes a pod several times a second until the test ends, and leaves the other kinds alone: the versions of a
// kind to which nothing happens fall behind those of the API server. Each version of the pod is passed to changed.
func (w *harness) stir(changed func(version string)) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"stirred":"%d"}}}`, i)
			p, err := w.client.CoreV1().Pods("shop").Patch(ctx, "restless", types.MergePatchType, patch, metav1.PatchOptions{})
			switch {
			case err == nil:
				changed(p.ResourceVersion)
			case ctx.Err() == nil:
				w.t.Log("changing a pod: ", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

// TestARolloutMakesNoLists: of two relays each is replaced by an empty one, the next when that is ready, while nothing
// happens to most kinds. Whoever loses its relay goes on at the other, which has its versions.
func TestARolloutMakesNoLists(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.furnish()
	first, second := w.start(w.config, ""), w.start(w.config, "")
	f := newFleet(t, w, w.client, time.Second, first, second)
	w.stir(func(string) {})
	_, lists := f.lists()
	first.stop()
	f.servedBy(second)
	w.readyAfter = relay.ReadyAfter
	first = w.again(first, w.config)
	second.stop()
	f.servedBy(first)
	w.touch("at-the-new-one")
	f.alike("after the rollout")
	if _, now := f.lists(); now != lists {
		t.Errorf("%d lists more than at the start", now-lists)
	}
	w.expiredNothing(first)
}

// expiredNothing checks that a relay had all versions that it was asked for.
func (w *harness) expiredNothing(r *running) {
	w.t.Helper()
	metrics := r.get(w.t, "/metrics")
	for _, kind := range followedKinds() {
		if !strings.Contains(metrics, `weavenpcrelay_expired_total{kind="`+kind+`"} 0`) {
			w.t.Errorf("the relay lacked versions of %s", kind)
		}
	}
}

// TestVersionsOfAQuietKindAreSecondsOld though nothing happens to it: what an agent has of it follows what the API
// server has of other kinds. The delay is shorter than the time until a new relay is ready.
func TestVersionsOfAQuietKindAreSecondsOld(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.furnish()
	client := clientFor(t, w.start(w.config, "").agent(w.token("weave-npc", audience)))
	list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	w.must(err)
	type moment struct {
		version string
		at      time.Time
	}
	moments := make(chan moment, 1000)
	w.stir(func(version string) { moments <- moment{version, time.Now()} })
	stream, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	w.must(err)
	defer stream.Stop()
	var unseen []moment // what the agent does not have yet, of the API server
	most := time.Duration(0)
	behind := func() {
		if len(unseen) > 0 {
			most = max(most, time.Since(unseen[0].at))
		}
	}
	for end := time.After(relay.ReadyAfter + 5*time.Second); ; {
		select {
		case m := <-moments:
			unseen = append(unseen, m)
		case e, ok := <-stream.ResultChan():
			if !ok || e.Type != watch.Bookmark {
				t.Fatalf("got %v", e)
			}
			behind()
			has := number(t, e.Object.(metav1.ObjectMetaAccessor).GetObjectMeta().GetResourceVersion())
			unseen = slices.DeleteFunc(unseen, func(m moment) bool { return number(t, m.version) <= has })
		case <-end:
			behind()
			if t.Logf("versions were %s old at most", most.Round(100*time.Millisecond)); most >= relay.ReadyAfter {
				t.Errorf("a relay is ready %s after its lists", relay.ReadyAfter)
			}
			return
		}
	}
}

// TestTheOnlyRelayDies and is away for a while: all agents go on at the API server, and come back to the one that takes
// its place, without a list.
func TestTheOnlyRelayDies(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.furnish()
	only := w.start(w.config, "")
	f := newFleet(t, w, w.client, time.Second, only)
	_, lists := f.lists()
	only.stop()
	w.touch("without-a-relay")
	f.at(false, "all are at the API server")
	f.alike("without a relay")
	w.again(only, w.config)
	w.touch("with-one-again")
	f.at(true, "all are back")
	w.touch("at-home")
	f.alike("with a relay again")
	if _, now := f.lists(); now != lists {
		t.Errorf("%d lists more than at the start", now-lists)
	}
}

// TestSeveralAPIServers of one etcd, each a bit behind or before the other, stand before the relays and the agents, as
// in a cluster whose control plane has several nodes. The connections of relays and agents are redirected from one to
// the other again and again, and one of the servers stops. No agent and no relay lists again.
func TestSeveralAPIServers(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.furnish()
	other, err := w.server.StartAlongside(t.Context())
	w.must(err)
	t.Cleanup(func() { w.must(other.Stop()) })
	servers := []*rest.Config{w.config, other.Client()}
	var lines [3]*link
	var through [3]*rest.Config
	for i := range lines {
		lines[i], through[i] = newLink(t, servers[i%2])
	}
	relays := []*running{w.start(through[0], ""), w.start(through[1], "")}
	f := newFleet(t, w, clientFor(t, through[2]), time.Second, relays...)
	w.stir(func(string) {})
	_, before := f.lists()
	for round := range 6 {
		for i, l := range lines {
			l.redirect(t, servers[(i+round+1)%2])
		}
		w.touch(fmt.Sprintf("round-%d", round))
		f.alike(fmt.Sprintf("round %d", round))
	}
	w.must(other.StopAPI())
	for _, l := range lines {
		l.redirect(t, w.config)
	}
	relays[0].stop()
	w.touch("one-of-each")
	f.servedBy(relays[1])
	f.alike("with one relay and one API server")
	w.expiredNothing(relays[1])
	relays[1].stop()
	f.at(false, "all are at the API server")
	w.touch("no-relay")
	f.alike("without a relay")
	if _, now := f.lists(); now != before {
		t.Errorf("%d lists more than at the start", now-before)
	}
}

// TestListsAreSpread when neither the relay nor the API server has the versions of agents any more: the API server has
// been restarted, and the relay is dead, or had to list itself. Each kind of each agent is listed once, and not all at the same time; by the
// relay, if there is one.
func TestListsAreSpread(t *testing.T) {
	t.Run("without_a_relay", func(t *testing.T) { listsAreSpread(t, false) })
	t.Run("by_the_relay", func(t *testing.T) { listsAreSpread(t, true) })
}

func listsAreSpread(t *testing.T, relayed bool) {
	t.Parallel()
	const spread = 10 * time.Second
	w := newHarness(t)
	w.furnish()
	line, config := newLink(t, w.config)
	only := w.start(config, "")
	f := newFleet(t, w, clientFor(t, config), spread, only)
	_, before := f.lists()
	line.set(true, false)
	w.touch("unseen")
	w.must(w.server.StopAPI())
	w.must(w.server.StartAPI(t.Context()))
	if !relayed {
		only.stop()
	}
	line.set(false, false)

	var first, last time.Time
	seen := before
	w.eventually("everything is listed", func() bool {
		if _, now := f.lists(); now > seen {
			seen, last = now, time.Now()
			if first.IsZero() {
				first = last
			}
		}
		return seen >= before+fleetSize*kindsEach
	})
	t.Logf("%d agents listed %d kinds each within %s", fleetSize, kindsEach, last.Sub(first).Round(100*time.Millisecond))
	if last.Sub(first) < spread/2 { // reflectors wait for a second by themselves, which makes the first ones late
		t.Errorf("all was listed within %s; it was to be spread over %s", last.Sub(first), spread)
	}
	f.alike("after the lists")
	if most, all := f.lists(); most != 2*kindsEach || all != before+fleetSize*kindsEach {
		t.Errorf("%d lists at most and %d together, after %d: more than one of each kind", most, all, before)
	}
	direct := uint64(0)
	for _, a := range f.agents {
		direct += a.stats.API.Lists.Load()
	}
	if relayed != (direct == 0) {
		t.Errorf("%d lists were at the API server", direct)
	}
}
