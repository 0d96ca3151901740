package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
)

// api is an API server that answers as a test says; what it says is text of JSON.
type api struct {
	mu      sync.Mutex
	lists   []string // status and body of each list, in their order; the last is repeated
	watches []string // lines of each watch, in their order; after them watches stand and bring nothing
	from    []string // the versions that were watched from
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	answers, isWatch := &a.lists, r.URL.Query().Get("watch") != ""
	if isWatch {
		answers = &a.watches
		a.from = append(a.from, r.URL.Query().Get("resourceVersion"))
	}
	var text string
	if len(*answers) > 0 {
		text = (*answers)[0]
		if isWatch || len(*answers) > 1 {
			*answers = (*answers)[1:]
		}
	}
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status, body, ok := strings.Cut(text, "|"); ok {
		code := 500
		_, _ = fmt.Sscan(status, &code)
		w.WriteHeader(code)
		text = body
	}
	_, _ = fmt.Fprintln(w, strings.TrimSuffix(text, " CUT"))
	w.(http.Flusher).Flush()
	if strings.HasSuffix(text, " CUT") {
		panic(http.ErrAbortHandler)
	}
	if isWatch {
		select {
		case <-r.Context().Done():
		case <-time.After(2 * time.Second): // far less than the silence that ends freshness
		}
	}
}

// counts is an Observer.
type counts struct {
	mu                  sync.Mutex
	reconnected, failed int
}

func (c *counts) Reconnected()         { c.mu.Lock(); defer c.mu.Unlock(); c.reconnected++ }
func (c *counts) Failed(string, error) { c.mu.Lock(); defer c.mu.Unlock(); c.failed++ }

const (
	empty  = `{"kind":"ClusterNetworkPolicyList","apiVersion":"policy.networking.k8s.io/v1alpha2","metadata":{"resourceVersion":"10"},"items":[]}`
	two    = `{"kind":"ClusterNetworkPolicyList","apiVersion":"policy.networking.k8s.io/v1alpha2","metadata":{"resourceVersion":"10"},"items":[` + object1 + `]}`
	object = `{"kind":"ClusterNetworkPolicy","apiVersion":"policy.networking.k8s.io/v1alpha2","metadata":{"name":"%s","resourceVersion":"%d","annotations":{"x":"%d"}},` +
		`"spec":{"priority":%d}}`
	object1 = `{"kind":"ClusterNetworkPolicy","apiVersion":"policy.networking.k8s.io/v1alpha2","metadata":{"name":"a","resourceVersion":"5"},"spec":{"priority":1}}`
	gone    = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`
)

// event returns the line of an event.
func event(typ, name string, version, priority int) string {
	return `{"type":"` + typ + `","object":` + fmt.Sprintf(object, name, version, version, priority) + `}` + "\n"
}

// listed lists from an API server, and returns the source and what it listed.
func listed(t *testing.T, a *api) (upstream.Source, *counts, string) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	codecs, err := kinds.NewCodecs()
	if err != nil {
		t.Fatal(err)
	}
	kind := kinds.All()[4]
	client, err := codecs.Client(kind, &rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	c := &counts{}
	s := upstream.New(kind, client, c)
	t.Cleanup(s.Close)
	list := kind.NewList()
	if err := s.GetList(t.Context(), "/", storage.ListOptions{}, list); err != nil {
		t.Fatal(err)
	}
	return s, c, list.(metav1.ListInterface).GetResourceVersion()
}

// TestWatch passes on what an API server sends, whatever breaks on the way, and nothing twice.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		lists   []string
		watches []string
		want    string // the events
		from    string // the versions that were watched from, first ones
	}{
		{"events", []string{empty}, []string{event("ADDED", "a", 11, 1) + event("MODIFIED", "a", 12, 2) + event("DELETED", "a", 13, 2)},
			"ADDED a 11, MODIFIED a 12, DELETED a 13", "10"},
		{"an_update_that_changes_nothing", []string{two}, []string{event("MODIFIED", "a", 11, 1) + event("MODIFIED", "a", 12, 2) + event("MODIFIED", "a", 13, 2)},
			"BOOKMARK 11, MODIFIED a 12, BOOKMARK 13", "10"},
		{"deleted_and_made_again", []string{two}, []string{event("DELETED", "a", 11, 1) + event("ADDED", "a", 12, 1)}, "DELETED a 11, ADDED a 12", "10"},
		{"a_bookmark_renews", []string{empty}, []string{event("BOOKMARK", "", 15, 0), event("ADDED", "a", 16, 1)}, "BOOKMARK 15, ADDED a 16", "10 15"},
		{"a_bookmark_of_the_past", []string{empty}, []string{event("BOOKMARK", "", 9, 0), event("ADDED", "a", 11, 1)}, "ADDED a 11", "10 10"},
		{"cut_between_events", []string{empty}, []string{event("ADDED", "a", 11, 1) + " CUT", event("ADDED", "b", 12, 1)}, "ADDED a 11, ADDED b 12", "10 11"},
		{"cut_within_an_event", []string{empty}, []string{event("ADDED", "a", 11, 1) + event("ADDED", "b", 12, 1)[:60] + " CUT", event("ADDED", "b", 12, 1)},
			"ADDED a 11, ADDED b 12", "10 11"},
		{"an_event_of_the_past", []string{empty}, []string{event("ADDED", "a", 11, 1) + event("ADDED", "b", 9, 1), event("ADDED", "c", 12, 1)},
			"ADDED a 11, ADDED c 12", "10 11"},
		{"an_error", []string{empty}, []string{`500|{}`, `503|{}`, event("ADDED", "a", 11, 1)}, "ADDED a 11", "10"},
		{"garbage", []string{empty}, []string{`}{`, event("ADDED", "a", 11, 1)}, "ADDED a 11", "10 10"},
		{"too_old", []string{empty}, []string{event("ADDED", "a", 11, 1) + gone}, "ADDED a 11, ERROR", "10"},
		{"too_old_at_once", []string{empty}, []string{`410|{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`}, "ERROR", "10"},
		{"a_list_that_fails", []string{`500|{}`, `403|{}`, empty}, []string{event("ADDED", "a", 11, 1)}, "ADDED a 11", "10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &api{lists: c.lists, watches: c.watches}
			s, counts, version := listed(t, a)
			w, err := s.Watch(t.Context(), "/", storage.ListOptions{ResourceVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			var got []string
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for len(got) < strings.Count(c.want, ",")+1 {
				select {
				case e, ok := <-w.ResultChan():
					if !ok {
						t.Fatalf("ended after %v", got)
					}
					got = append(got, text(e))
				case <-ctx.Done():
					t.Fatalf("got %v", got)
				}
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), c.want)
			}
			a.mu.Lock()
			if from := strings.Join(a.from, " "); !strings.HasPrefix(from, c.from) {
				t.Errorf("watched from %s, want %s", from, c.from)
			}
			a.mu.Unlock()
			counts.mu.Lock()
			if failing := strings.Contains(c.name, "error") || strings.Contains(c.name, "fails"); failing && counts.failed < 2 {
				t.Errorf("%d failures were reported", counts.failed)
			}
			counts.mu.Unlock()
		})
	}
}

// text returns the type, name and version of an event.
func text(e watch.Event) string {
	m, ok := e.Object.(metav1.ObjectMetaAccessor)
	if !ok {
		return string(e.Type)
	}
	return strings.Join(strings.Fields(fmt.Sprint(e.Type, " ", m.GetObjectMeta().GetName(), " ", m.GetObjectMeta().GetResourceVersion())), " ")
}

// TestFreshness follows the watch: it is fresh while it stands, also with nothing to say, and not when it is broken.
func TestFreshness(t *testing.T) {
	a := &api{lists: []string{empty}, watches: []string{event("ADDED", "a", 11, 1)}}
	s, _, version := listed(t, a)
	if s.Reached().Fresh {
		t.Error("fresh without a watch")
	}
	w, err := s.Watch(t.Context(), "/", storage.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range w.ResultChan() { //nolint:revive // only read
		}
	}()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if at := s.Reached(); at.Fresh && at.Event == 11 && at.Version == 11 {
			break
		}
	}
	for range 70 { // over the renewals of watches without events
		time.Sleep(100 * time.Millisecond)
		if at := s.Reached(); !at.Fresh || at.Version != 11 {
			t.Fatalf("%+v", at)
		}
	}
	a.mu.Lock()
	for range 1000 {
		a.watches = append(a.watches, "503|{}")
	}
	a.mu.Unlock()
	for end := time.Now().Add(time.Minute); s.Reached().Fresh; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("fresh although every watch fails")
		}
	}
	w.Stop()
}

// TestListedIsTheFirstTime that a kind was listed: a second list, since the API server no longer has a version, is
// not another start.
func TestListedIsTheFirstTime(t *testing.T) {
	s, _, _ := listed(t, &api{lists: []string{empty}})
	first := s.Reached().Listed
	if err := s.GetList(t.Context(), "/", storage.ListOptions{}, kinds.All()[4].NewList()); err != nil {
		t.Fatal(err)
	}
	if now := s.Reached().Listed; first.IsZero() || !now.Equal(first) {
		t.Errorf("listed at %s, then at %s", first, now)
	}
}
