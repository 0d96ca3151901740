package source

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/source/relayclient"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// relayed is a server that passes on lists and watches of namespaces, which it has from a real API server, as a relay
// does: with a bookmark each second. It knows no other kind.
type relayed struct {
	*httptest.Server
	client kubernetes.Interface
	broken atomic.Bool
	lists  atomic.Int32
	events atomic.Int32
}

func startRelay(t *testing.T, client kubernetes.Interface) *relayed {
	r := &relayed{client: client}
	r.Server = httptest.NewUnstartedServer(r)
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// fail ends all connections, and answers no more.
func (r *relayed) fail() {
	r.broken.Store(true)
	r.CloseClientConnections()
}

func (r *relayed) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	query := q.URL.Query()
	o := metav1.ListOptions{ResourceVersion: query.Get("resourceVersion"), AllowWatchBookmarks: true}
	if r.broken.Load() || q.URL.Path != "/api/v1/namespaces" || q.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if query.Get("sendInitialEvents") == "true" {
		yes := true
		o.SendInitialEvents, o.ResourceVersionMatch = &yes, metav1.ResourceVersionMatchNotOlderThan
		r.lists.Add(1)
	}
	if query.Get("watch") == "" {
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	stream, err := r.client.CoreV1().Namespaces().Watch(q.Context(), o)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer stream.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	r.pass(q.Context(), w, stream, o.ResourceVersion)
}

// pass passes a stream on.
func (r *relayed) pass(ctx context.Context, w http.ResponseWriter, stream watch.Interface, version string) {
	send := func(kind watch.EventType, n *corev1.Namespace) {
		n.TypeMeta = metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": n})
		w.(http.Flusher).Flush()
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-stream.ResultChan():
			n, is := e.Object.(*corev1.Namespace)
			if !ok || !is {
				return
			}
			r.events.Add(1)
			version = n.ResourceVersion
			send(e.Type, n)
		case <-second.C:
			if version != "" && !r.broken.Load() {
				send(watch.Bookmark, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}})
			}
		}
	}
}

// TestS64_RelaysOfARealAPIServer come and go while namespaces do, and the sink has in the end what the API server has,
// from one list.
func TestS64_RelaysOfARealAPIServer(t *testing.T) {
	c := newCluster(t)
	c.grant("granted")
	first, second := startRelay(t, c.client), startRelay(t, c.client)
	var ca strings.Builder
	for _, s := range []*relayed{first, second} {
		_ = pem.Encode(&ca, &pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	dir := sourcetest.WriteFiles(t, map[string]string{"ca.crt": ca.String(), "token": "secret\n"})
	log, logger := sourcetest.NewJournal()
	r, err := relayclient.New(relayclient.Config{Address: first.Listener.Addr().String() + "," + second.Listener.Addr().String(),
		CA: filepath.Join(dir, "ca.crt"), Token: filepath.Join(dir, "token"), Jitter: time.Second, Version: "test", Log: logger})
	c.must(err)
	client, _, err := r.Client()
	c.must(err)
	s := FromAPI(c.client, nil, "")
	s.Through(r, client, nil)
	sink := start(t, s, slog.New(slog.DiscardHandler))

	made := 0
	create := func() {
		t.Helper()
		made++
		name := fmt.Sprintf("n%d", made)
		_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.must(err)
		sourcetest.Eventually(t, name, func() bool { return strings.Contains(sink.names()+",", "ns "+name+",") })
	}
	create()
	if first.events.Load()+second.events.Load() == 0 {
		t.Errorf("nothing came through a relay:\n%s", log)
	}
	first.fail()
	create()
	second.fail()
	create()
	moved := r.Stats().API.Moves.Load()
	first.broken.Store(false)
	before := first.events.Load()
	sourcetest.Eventually(t, "the relay is back", func() bool { return r.Stats().Relay.Watches.Load() == 1 })
	create()
	if moved == 0 || first.events.Load() == before {
		t.Errorf("%d moves to the API server, %d events through the relay since", moved, first.events.Load()-before)
	}
	if n := first.lists.Load() + second.lists.Load(); n != 1 || r.Stats().Relay.Lists.Load() != 1 {
		t.Errorf("%d lists by the relays, %d counted", n, r.Stats().Relay.Lists.Load())
	}
	calls := strings.Join(sink.made(), "\n")
	for i := 1; i <= made; i++ {
		if n := strings.Count(calls+"\n", fmt.Sprintf("set namespace n%d\n", i)); n != 1 {
			t.Errorf("namespace n%d was delivered %d times", i, n)
		}
	}
}
