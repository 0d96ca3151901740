package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

func apiPod(name, version, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid),
		ResourceVersion: version, Labels: map[string]string{"v": version}}}
}

// line is the connection between a fake API server and its client, which can be cut.
type line struct {
	*fake.Clientset
	mu      sync.Mutex
	down    bool
	calls   int // that failed
	streams []watch.Interface
}

func newLine(objects ...runtime.Object) *line {
	l := &line{Clientset: fake.NewClientset(objects...)}
	l.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := l.err()
		return err != nil, nil, err
	})
	l.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if err := l.err(); err != nil {
			return true, nil, err
		}
		stream, err := l.Tracker().Watch(action.GetResource(), action.GetNamespace())
		l.mu.Lock()
		defer l.mu.Unlock()
		l.streams = append(l.streams, stream)
		return true, stream, err
	})
	return l
}

func (l *line) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		l.calls++
		return errors.New("no route to host")
	}
	return nil
}

// end ends all streams, and lets everything fail until it is called with down = false.
func (l *line) end(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for _, s := range l.streams {
		s.Stop()
	}
	l.streams = nil
}

func (l *line) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func TestAPIIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		client := newLine(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "n", ResourceVersion: "1"}},
			apiPod("web", "1", "a"),
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny", UID: "p", ResourceVersion: "1"}},
		)
		r := start(t, FromAPI(client, nil, ""), slog.New(slog.DiscardHandler))
		if got, want := r.names(), "ns shop, pod shop/web, policy shop/deny"; got != want {
			t.Errorf("synced with %s, want %s", got, want)
		}
		for i, call := range r.made() {
			if call == "synced" && i < 3 {
				t.Errorf("synced before the first list was handled: %v", r.made())
			}
		}
		for _, kind := range []string{Namespaces, Pods, NetworkPolicies} {
			sourcetest.Eventually(t, kind+" connected", func() bool { return slices.Equal(r.connections(kind), []string{"true"}) })
		}
		synctest.Wait()

		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		_, err := client.CoreV1().Pods("shop").Create(ctx, apiPod("db", "2", "b"), metav1.CreateOptions{})
		check(err)
		_, err = client.CoreV1().Pods("shop").Update(ctx, apiPod("web", "3", "a"), metav1.UpdateOptions{})
		check(err)
		if got := r.pod("shop/web").Labels["v"]; got != "3" {
			t.Errorf("update is not followed: %s", got)
		}
		check(client.CoreV1().Pods("shop").Delete(ctx, "db", metav1.DeleteOptions{}))
		check(client.NetworkingV1().NetworkPolicies("shop").Delete(ctx, "deny", metav1.DeleteOptions{}))
		check(client.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}))
		if got, want := r.names(), "pod shop/web"; got != want {
			t.Errorf("sink has %s, want %s", got, want)
		}
	})
}

func TestS64_WhatWasMissedIsMadeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		client := newLine(apiPod("gone", "1", "a"), apiPod("changed", "2", "b"), apiPod("again", "3", "c"))
		log, logger := sourcetest.NewJournal()
		r := start(t, FromAPI(client, nil, ""), logger)
		synctest.Wait()

		client.end(true)
		sourcetest.Eventually(t, "broken", func() bool { return slices.Equal(r.connections(Pods), []string{"true", "false"}) })
		pods := client.CoreV1().Pods("shop")
		for _, name := range []string{"gone", "again"} {
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := pods.Create(ctx, apiPod("again", "4", "d"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pods.Update(ctx, apiPod("changed", "5", "b"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := client.failures(); n < 30 {
			t.Errorf("tried only %d times in ten minutes", n)
		}
		if n := log.Count("watch is broken"); n != 3 {
			t.Errorf("the outage of three kinds is logged %d times:\n%s", n, log)
		}
		if got := r.names(); got != "pod shop/again, pod shop/changed, pod shop/gone" {
			t.Errorf("forgotten in the outage: %s", got)
		}

		client.end(false)
		sourcetest.Eventually(t, "works again", func() bool { return slices.Equal(r.connections(Pods), []string{"true", "false", "true"}) })
		if got := r.names(); got != "pod shop/again, pod shop/changed" {
			t.Errorf("after the outage: %s", got)
		}
		if r.pod("shop/again").UID != "d" || r.pod("shop/changed").Labels["v"] != "5" {
			t.Errorf("after the outage: %v, %v", r.pod("shop/again"), r.pod("shop/changed"))
		}
		if n := log.Count("watch works again"); n == 0 {
			t.Errorf("the end is not logged:\n%s", log)
		}
	})
}

func TestAStreamThatEndsIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newLine(apiPod("web", "1", "a"))
		r := start(t, FromAPI(client, nil, ""), slog.New(slog.DiscardHandler))
		for range 5 {
			// Longer than what client-go takes for a watch that never came about.
			time.Sleep(10 * time.Minute)
			client.end(false)
		}
		time.Sleep(time.Minute)
		if got := r.connections(Pods); !slices.Equal(got, []string{"true"}) {
			t.Errorf("connected: %v", got)
		}
	})
}

func TestUnreachableFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newLine()
		client.end(true)
		r := newRecorder(t)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- FromAPI(client, nil, "").Run(ctx, r, slog.New(slog.DiscardHandler)) }()
		time.Sleep(time.Minute)
		if r.isSynced() || !slices.Equal(r.connections(Pods), []string{"false"}) {
			t.Errorf("synced %v, connected %v", r.isSynced(), r.connections(Pods))
		}
		client.end(false)
		time.Sleep(2 * time.Minute)
		if !r.isSynced() || !slices.Equal(r.connections(Pods), []string{"false", "true"}) {
			t.Errorf("synced %v, connected %v", r.isSynced(), r.connections(Pods))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestIdentityOfDeletedObjects(t *testing.T) {
	fact, err := transformPod(apiPod("web", "1", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		obj  any
		want []string
	}{
		{"seen", fact, []string{"shop", "web", "a"}},
		{"unseen", cache.DeletedFinalStateUnknown{Key: "shop/web", Obj: fact}, []string{"shop", "web", "a"}},
		{"name alone", cache.DeletedFinalStateUnknown{Key: "shop/web"}, []string{"shop", "web", ""}},
		{"name alone, no namespace", cache.DeletedFinalStateUnknown{Key: "shop"}, []string{"", "shop", ""}},
	} {
		namespace, name, uid := identity(test.obj)
		if diff := cmp.Diff(test.want, []string{namespace, name, string(uid)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
