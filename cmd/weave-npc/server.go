package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// server serves metrics and health, or profiles. It changes nothing.
type server struct {
	addr     string
	listener net.Listener
	http     *http.Server
}

// listen opens the address; an empty one serves nothing.
func listen(addr string, registry *prometheus.Registry, notReady func() string) (*server, error) {
	if addr == "" {
		return &server{}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Wrap(err, "--metrics-addr: give an address that is free, or an empty one")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := notReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return serve(l, mux), nil
}

// listenProfiles opens a loopback address to serve pprof on; an empty one serves nothing.
func listenProfiles(addr string) (*server, error) {
	if addr == "" {
		return &server{}, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errors.Wrap(err, "--pprof-addr")
	}
	if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
		return nil, errors.Errorf("--pprof-addr: %q is no loopback address such as 127.0.0.1:6060", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Wrap(err, "--pprof-addr: give an address that is free, or an empty one")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	s := serve(l, mux)
	s.http.WriteTimeout = 0 // a profile takes as long as is asked for
	return s, nil
}

func serve(l net.Listener, h http.Handler) *server {
	return &server{addr: l.Addr().String(), listener: l, http: &http.Server{
		Handler:           h,
		ReadTimeout:       5 * time.Second,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}}
}

// run serves until the context ends.
func (s *server) run(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); ctx.Err() == nil {
		return errors.Wrapf(err, "serving on %s", s.addr)
	}
	return nil
}
