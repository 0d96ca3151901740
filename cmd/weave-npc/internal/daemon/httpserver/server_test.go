package httpserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestABusyModelDelaysNoAnswer holds the lock behind metrics and readiness: one call at a time waits for it, a few
// requests wait for that call, and health does not wait.
func TestABusyModelDelaysNoAnswer(t *testing.T) {
	var lock sync.Mutex
	var waiting, most atomic.Int64
	locked := func() {
		most.Store(max(most.Load(), waiting.Add(1)))
		lock.Lock()
		defer lock.Unlock()
		waiting.Add(-1)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "test_gauge", Help: "A gauge that is behind a lock."},
		func() float64 { locked(); return 1 }))
	s, err := Listen("--metrics-addr", "127.0.0.1:0", r, Prompt(func() string { locked(); return "" }), func() string { return "a notice" })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ask := func(path string) (int, string) {
		response, err := http.Get("http://" + s.addr + path)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(body)
	}

	lock.Lock()
	if status, body := ask("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "busy") {
		t.Errorf("before anything is known, readiness is %d %q", status, body)
	}
	lock.Unlock()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		ready, _ := ask("/readyz")
		metrics, body := ask("/metrics")
		if ready == http.StatusOK && metrics == http.StatusOK && strings.Contains(body, "test_gauge 1") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("ready %d, metrics %d", ready, metrics)
		}
	}
	time.Sleep(scrapeFresh)

	lock.Lock()
	defer lock.Unlock()
	var statuses [600]atomic.Int64
	var requests sync.WaitGroup
	for range 50 {
		requests.Go(func() {
			status, _ := ask("/metrics")
			statuses[status].Add(1)
		})
	}
	var took time.Duration
	for range 20 { // on a busy machine an answer may be late for other reasons
		start := time.Now()
		if status, _ := ask("/healthz"); status != http.StatusOK {
			t.Errorf("health is %d", status)
		}
		if took = time.Since(start); took < answerTimeout/2 {
			break
		}
	}
	if took >= answerTimeout/2 {
		t.Errorf("health is known after %s", took)
	}
	if status, _ := ask("/readyz"); status != http.StatusOK {
		t.Errorf("what was known a moment ago is forgotten: readiness is %d", status)
	}
	requests.Wait()
	if ok, refused := statuses[http.StatusOK].Load(), statuses[http.StatusServiceUnavailable].Load(); ok < 1 || refused < 1 || ok+refused != 50 {
		t.Errorf("of 50 requests for metrics, %d are answered and %d refused", ok, refused)
	}
	if n := most.Load(); n > 2 {
		t.Errorf("%d calls wait for the lock at a time", n)
	}
}

// TestAReadinessOfLongAgoDoesNotCount checks the age of the last known value while a call blocks, and that a fresh
// value is not computed again.
func TestAReadinessOfLongAgoDoesNotCount(t *testing.T) {
	l := &latest[string]{compute: func() string { select {} }, at: time.Now().Add(-time.Hour), value: "old"}
	if value, at := l.get(); value != "old" || time.Since(at) < time.Minute {
		t.Errorf("%q of %s", value, at)
	}
	calls := 0
	fresh := &latest[string]{fresh: time.Hour, timeout: time.Minute, compute: func() string { calls++; return fmt.Sprint(calls) }}
	for range 3 {
		if value, _ := fresh.get(); value != "1" {
			t.Errorf("computed again: %s", value)
		}
	}
}

// get asks a server with an empty registry.
func get(t *testing.T, path, notReady string) (int, string) {
	t.Helper()
	s, err := Listen("--metrics-addr", "127.0.0.1:0", prometheus.NewRegistry(), func() string { return notReady }, func() string { return "a notice" })
	if err != nil {
		t.Fatal(err)
	}
	return request(t, s, path)
}

// request starts a server, sends one request and stops it.
func request(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, slog.New(slog.DiscardHandler)) }()
	response, err := http.Get("http://" + s.addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(body)
}

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		path, notReady string
		status         int
		want           string
	}{
		{"/healthz", "the kernel refuses", http.StatusOK, "ok"},
		{"/readyz", "", http.StatusOK, "ok: a notice"},
		{"/readyz", "the kernel refuses", http.StatusServiceUnavailable, "the kernel refuses"},
		{"/debug/pprof/", "", http.StatusNotFound, "not found"},
	} {
		t.Run(c.path+" "+c.notReady, func(t *testing.T) {
			if status, text := get(t, c.path, c.notReady); status != c.status || !strings.Contains(text, c.want) {
				t.Errorf("status %d: %s", status, text)
			}
		})
	}
}

func TestProfilesAreServedOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "localhost.example:0", "127.0.0.1"} {
		if _, err := ListenProfiles("--pprof-addr", addr); err == nil || !strings.Contains(err.Error(), "--pprof-addr") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		s, err := ListenProfiles("--pprof-addr", addr)
		if err != nil {
			t.Fatal(err)
		}
		if status, text := request(t, s, "/debug/pprof/"); status != http.StatusOK || !strings.Contains(text, "goroutine") {
			t.Errorf("status %d: %s", status, text)
		}
	}
}

// TestNothingIsServedWithoutAnAddress checks that an empty address opens no port instead of a random one.
func TestNothingIsServedWithoutAnAddress(t *testing.T) {
	nothing := func() string { return "" }
	metrics, err := Listen("--metrics-addr", "", prometheus.NewRegistry(), nothing, nothing)
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := ListenProfiles("--pprof-addr", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Server{metrics, profiles} {
		if s.listener != nil || s.Addr() != "" {
			t.Errorf("%s is open", s.Addr())
		}
		if err := s.Run(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	}
}

// TestS76_ASlowReaderKeepsNoOtherFromMetrics: clients that read nothing of answers that no buffer holds keep no turn.
func TestS76_ASlowReaderKeepsNoOtherFromMetrics(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 16<<20)) })
	server := httptest.NewServer(rendered(large))
	defer server.Close()
	defer server.CloseClientConnections()
	for range 2 * maxScrapes {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK || n != 16<<20 {
		t.Errorf("status %d, %d bytes, %v", answer.StatusCode, n, err)
	}
}
