package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// server serves metrics and health. It changes nothing.
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
	return &server{addr: l.Addr().String(), listener: l, http: &http.Server{
		Handler:           mux,
		ReadTimeout:       5 * time.Second,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}}, nil
}

// run serves until the context ends.
func (s *server) run(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); ctx.Err() == nil {
		return errors.Wrapf(err, "serving metrics on %s", s.addr)
	}
	return nil
}
