package source

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// brokenServer is an API server behind a proxy that may answer lists with something else. It ends watches soon, as too
// old, so that lists are asked for again.
type brokenServer struct {
	mu     sync.Mutex // guards the fields below
	answer string     // of all lists; empty for the right ones
	lists  int        // that were asked for since the answer was set
}

func (s *brokenServer) set(answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.lists = answer, 0
}

func (s *brokenServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (s *brokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") != "":
		time.Sleep(10 * time.Millisecond)
		_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lists++
		text := s.answer
		if text == "" {
			text = map[string]string{
				"namespaces":      `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"shop"}}]}`,
				"pods":            `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"shop","name":"web"}}]}`,
				"networkpolicies": `{"kind":"NetworkPolicyList","apiVersion":"networking.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"shop","name":"deny"}}]}`,
			}[filepath.Base(r.URL.Path)]
		}
		_, _ = io.WriteString(w, text)
	}
}

// TestS74_AListThatIsNoneIsABrokenWatch: nothing that was known goes, the connection counts as broken, and readiness
// names what never was read.
func TestS74_AListThatIsNoneIsABrokenWatch(t *testing.T) {
	for _, c := range []struct{ name, answer string }{
		{"null", "null"},
		{"another_kind", `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`},
		{"no_items", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`},
		{"no_version", `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &brokenServer{answer: c.answer}
			listener := httptest.NewServer(s)
			t.Cleanup(listener.Close)
			path := filepath.Join(t.TempDir(), "kubeconfig")
			sourcetest.WriteFile(t, path, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
				"clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n", listener.URL))
			client, _, err := apiclient.New(path, "test")
			if err != nil {
				t.Fatal(err)
			}
			from := FromAPI(client, nil, "")
			r := newRecorder(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- from.Run(ctx, r, slog.New(slog.DiscardHandler)) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			sourcetest.Eventually(t, "named", func() bool { return strings.Contains(from.WhyUnsynced(), Pods+" cannot be listed: ") })
			if r.isSynced() {
				t.Error("what is no list counts as read")
			}
			s.set("")
			sourcetest.Eventually(t, "synced", r.isSynced)
			s.set(c.answer)
			sourcetest.Eventually(t, "listed again, and broken", func() bool {
				last := r.connections(Pods)
				return s.asked() > 3 && len(last) > 0 && last[len(last)-1] == "false"
			})
			if got := r.names(); got != "ns shop, pod shop/web, policy shop/deny" {
				t.Errorf("the sink has %s", got)
			}
		})
	}
}

// TestS74_AnEventThatMakesNoSenseLosesNoChange: what is about another kind, or has no version, is listed.
func TestS74_AnEventThatMakesNoSenseLosesNoChange(t *testing.T) {
	for name, event := range map[string]watch.Event{
		"another_kind": {Type: watch.Modified, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "9"}}},
		"no_version":   {Type: watch.Deleted, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}},
		"no_name":      {Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}},
		"a_bookmark":   {Type: watch.Bookmark, Object: &corev1.Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(apiPod("web", "1", "a"))
				sent := make(chan watch.Event, 1)
				first := true
				w := watches(l)[Pods]
				open := checked(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					if o.SendInitialEvents == nil && first {
						first = false
						return &oneEvent{result: sent}, nil
					}
					return w.watch(ctx, o)
				}, isA[*corev1.Pod])
				from := FromAPI(l, nil, "")
				from.api.watches[Pods] = listWatcher{list: w.list, watch: open}
				r := start(t, from, slog.New(slog.DiscardHandler))
				synctest.Wait()
				if _, err := l.CoreV1().Pods("shop").Update(t.Context(), apiPod("web", "2", "a"), metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				sent <- event
				time.Sleep(time.Minute)
				if got := r.names(); got != "pod shop/web" || r.pod("shop/web").Labels["v"] != "2" {
					t.Errorf("the sink has %s, %v", got, r.pod("shop/web").Labels)
				}
			})
		})
	}
}

// oneEvent is a watch that has one event and stays open.
type oneEvent struct {
	result chan watch.Event
	once   sync.Once
}

func (w *oneEvent) ResultChan() <-chan watch.Event { return w.result }

func (w *oneEvent) Stop() { w.once.Do(func() { close(w.result) }) }
