package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
)

const (
	// maxScrapes is how many requests for metrics are answered at a time; others are refused.
	maxScrapes = 8
	// scrapeFresh is how long gathered metrics count: scrapes take the model's lock no more often.
	scrapeFresh = 100 * time.Millisecond
	// answerPatience is how long an answer waits for what holds the model's lock, before it tells what was known before.
	answerPatience = 2 * time.Second
	// answerOutdated is from what age on an answer of before does not count as readiness.
	answerOutdated = 15 * time.Second
)

// listenAgain is how long to wait before an address is tried again that somebody else has.
const listenAgain = time.Second

// server serves metrics and health, or profiles. It changes nothing.
type server struct {
	flag, addr string       // the flag that gave the address
	listener   net.Listener // nil while somebody else has the address
	http       *http.Server // nil if nothing is served
}

// gathered is what a registry had, all in one.
type gathered struct {
	families []*dto.MetricFamily
	err      error
}

// newGatherer gathers from a registry for one scrape at a time, however many there are.
func newGatherer(registry prometheus.Gatherer) prometheus.Gatherer {
	l := &latest[gathered]{fresh: scrapeFresh, patience: answerPatience, compute: func() (g gathered) {
		g.families, g.err = registry.Gather()
		return g
	}}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		g, at := l.get()
		if at.IsZero() {
			return nil, errors.New("the metrics are not known yet: what they come from is busy")
		}
		return g.families, g.err
	})
}

// neverLate returns notReady as a function that answers soon, whatever holds the locks that it needs.
func neverLate(notReady func() string) func() string {
	l := &latest[string]{compute: notReady, patience: answerPatience}
	return func() string {
		why, at := l.get()
		if at.IsZero() || time.Since(at) > answerOutdated {
			return "it is not known whether policies are enforced: weave-npc has been busy for too long"
		}
		return why
	}
}

// listen opens the address for metrics and health; an empty one serves nothing.
func listen(addr string, registry *prometheus.Registry, notReady func() string) (*server, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(newGatherer(registry), promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := notReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return newServer("--metrics-addr", addr, mux)
}

// listenProfiles opens a loopback address to serve pprof on; an empty one serves nothing.
func listenProfiles(addr string) (*server, error) {
	if addr == "" {
		return &server{}, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errors.Errorf("--pprof-addr: %q is no address and port such as 127.0.0.1:6060", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
		return nil, errors.Errorf("--pprof-addr: %q is no loopback address such as 127.0.0.1:6060", addr)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	s, err := newServer("--pprof-addr", addr, mux)
	if err != nil {
		return nil, err
	}
	s.http.WriteTimeout = 0 // a profile takes as long as is asked for
	return s, nil
}

// checkAddr refuses what is no address and port; an empty one serves nothing.
func checkAddr(flag, addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return errors.Errorf("%s: %q is no address and port such as :6781 or 127.0.0.1:6781", flag, addr)
	}
	return nil
}

// newServer opens an address. That somebody else has it is no error: it may be a weave-npc that is about to end, and policies do not wait
// for that.
func newServer(flag, addr string, h http.Handler) (*server, error) {
	s := &server{flag: flag, addr: addr, http: &http.Server{
		Handler:           h,
		ReadTimeout:       5 * time.Second,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}}
	if err := s.listen(); err != nil && !errors.Is(err, unix.EADDRINUSE) {
		return nil, errors.Wrapf(err, "%s: give an address of this node, or an empty one", flag)
	}
	return s, nil
}

func (s *server) listen() error {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	s.listener, s.addr = l, l.Addr().String()
	return nil
}

// run serves until the context ends. Whatever fails is logged and tried again.
func (s *server) run(ctx context.Context, log *slog.Logger) error {
	if s.http == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	warned := false
	for ctx.Err() == nil {
		var err error
		if s.listener == nil {
			err = s.listen()
		}
		if err == nil {
			if warned {
				log.Info("serving now", "flag", s.flag, "address", s.addr)
			}
			warned = false
			err = s.http.Serve(s.listener)
			s.listener = nil
		}
		if ctx.Err() == nil && !warned {
			log.Warn("cannot serve, trying again; does another weave-npc run on this node?", "flag", s.flag, "error", err)
			warned = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
	return nil
}
