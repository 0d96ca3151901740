package flowsocket_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
)

// store is a fake, whose records are numbered by their count.
type store struct {
	mu      sync.Mutex
	records []flowlog.Record
	hits    flowlog.Hits
}

func (s *store) add(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range number {
		s.records = append(s.records, flowlog.Record{Count: uint64(len(s.records) + 1), Verdict: flowlog.Allowed, Port: flow.Service{Protocol: 6, Port: 80},
			From: flowlog.End{Namespace: "shop", Workload: "Pod/web", Addr: netip.MustParseAddr("10.32.1.2")}, To: flowlog.End{Addr: netip.MustParseAddr("10.32.2.1")}})
	}
}

func (s *store) Since(version uint64) ([]flowlog.Record, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[version:], uint64(len(s.records))
}

func (s *store) Hits() flowlog.Hits { return s.hits }

// serve runs a server until the test ends or stop is called.
func serve(t *testing.T, path string, s *store) (stop func()) {
	t.Helper()
	server, err := flowsocket.Listen(path, s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		server.Run(ctx, slog.New(slog.DiscardHandler))
		close(ended)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

func read(t *testing.T, path string) (numbers []uint64) {
	t.Helper()
	_, err := flowsocket.Client{Path: path}.Read(t.Context(), false, func(r flowlog.Record) error {
		numbers = append(numbers, r.Count)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

// TestReadersGetAllRecords, many at a time, whatever others do.
func TestReadersGetAllRecords(t *testing.T) {
	path, s := filepath.Join(t.TempDir(), "new", "flows.sock"), &store{}
	s.add(5000)
	serve(t, path, s)
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			if got := read(t, path); len(got) != 5000 || got[4999] != 5000 {
				t.Errorf("%d records", len(got))
			}
		})
	}
	readers.Wait()
}

// TestFollowersGetWhatIsAdded, once, until they or the server go.
func TestFollowersGetWhatIsAdded(t *testing.T) {
	path, s := filepath.Join(t.TempDir(), "flows.sock"), &store{}
	s.add(2)
	stop := serve(t, path, s)
	got, ended := make(chan uint64, 10), make(chan error, 1)
	go func() {
		_, err := flowsocket.Client{Path: path}.Read(t.Context(), true, func(r flowlog.Record) error {
			got <- r.Count
			return nil
		})
		ended <- err
	}()
	for want := uint64(1); want < 6; want++ {
		if number := <-got; number != want {
			t.Errorf("%d, want %d", number, want)
		}
		if want >= 2 {
			s.add(1)
		}
	}
	for range 20 { // those that go make room for others
		ctx, cancel := context.WithCancel(t.Context())
		_, err := flowsocket.Client{Path: path}.Read(ctx, true, func(flowlog.Record) error { cancel(); return nil })
		if err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestHitsAreRead shows that a server without hits differs from one that does not record them.
func TestHitsAreRead(t *testing.T) {
	path, s := filepath.Join(t.TempDir(), "flows.sock"), &store{}
	s.add(3)
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s.hits = flowlog.Hits{Node: "node1", Since: at, Complete: at, Rules: []flowlog.Hit{{Applied: flowlog.Applied{RuleRef: flowlog.RuleRef{Policy: "shop/p", Number: 1,
		Direction: "ingress"}, Content: "c"}, Verdict: flowlog.Allowed, Count: 7, First: at, Last: at}}}
	serve(t, path, s)
	got, err := flowsocket.Client{Path: path}.ReadHits(t.Context())
	if diff := cmp.Diff(s.hits, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	old := filepath.Join(t.TempDir(), "old.sock")
	l, err := net.Listen("unix", old)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // it takes what it does not know for the wish for all records
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 1)) // the request, which could not be sent any more after the end
		records, _ := s.Since(0)
		_ = flowlog.Write(conn, records...)
		_ = conn.Close()
	}()
	_, err = flowsocket.Client{Path: old}.ReadHits(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no hits") || errors.Is(err, flowsocket.ErrUnserved) {
		t.Error(err)
	}
	if _, err := (flowsocket.Client{Path: path + "x"}).ReadHits(t.Context()); !errors.Is(err, flowsocket.ErrUnserved) {
		t.Error(err)
	}
}

// TestOnlyRootReads what the socket gives, from the moment that it has its name.
func TestOnlyRootReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.sock")
	serve(t, path, &store{})
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestPathsOfSockets: a stale socket is replaced, and nothing else.
func TestPathsOfSockets(t *testing.T) {
	dir := t.TempDir()
	stale, file, used := filepath.Join(dir, "stale"), filepath.Join(dir, "file"), filepath.Join(dir, "used")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, used, &store{})
	for path, want := range map[string]string{stale: "", file: "no socket", used: "another process serves", "@flows": "no absolute path", "flows": "no absolute path",
		filepath.Join(dir, strings.Repeat("x", 100)): "at most 103 bytes", filepath.Join(file, "x"): "not a directory"} {
		s := &store{}
		s.add(1)
		server, err := flowsocket.Listen(path, s)
		if err == nil && want == "" {
			ctx, cancel := context.WithCancel(t.Context())
			go server.Run(ctx, slog.New(slog.DiscardHandler))
			if got := read(t, path); len(got) != 1 {
				t.Errorf("%v", got)
			}
			cancel()
			continue
		}
		if want == "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestReadErrors say what to do, in one line.
func TestReadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.sock")
	if _, err := (flowsocket.Client{Path: path}).Read(t.Context(), false, nil); err == nil || !strings.Contains(err.Error(), "--record-flows") {
		t.Error(err)
	}
	s := &store{}
	s.add(2)
	serve(t, path, s)
	failed := fmt.Errorf("full")
	if _, err := (flowsocket.Client{Path: path}).Read(t.Context(), false, func(flowlog.Record) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}
