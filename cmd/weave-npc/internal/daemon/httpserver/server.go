package httpserver

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
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/internal/connlimit"
)

// retryInterval is the wait before an address is tried again that another process has.
const retryInterval = time.Second

// Server serves metrics and health, or profiles.
type Server struct {
	flag, addr string       // the flag that gave the address, and the address
	listener   net.Listener // nil while another process has the address
	http       *http.Server // nil if nothing is served
}

// Addr returns the address that is served; it is empty if none is.
func (s *Server) Addr() string { return s.addr }

// Listen opens the address for metrics and health; an empty one serves nothing. The function notReady returns why the
// node is not ready, or an empty string; see Prompt. The function notice returns what there is to say when it is ready.
func Listen(flag, addr string, registry prometheus.Gatherer, notReady, notice func() string) (*Server, error) {
	if addr == "" {
		return &Server{}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", rendered(promhttp.HandlerFor(newGatherer(registry), promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := notReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		if text := notice(); text != "" {
			fmt.Fprintln(w, "ok: "+text)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return newServer(flag, addr, mux)
}

// ListenProfiles opens a loopback address for pprof; an empty one serves nothing.
func ListenProfiles(flag, addr string) (*Server, error) {
	if addr == "" {
		return &Server{}, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errors.Errorf("%s: %q is no address and port such as 127.0.0.1:6060", flag, addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
		return nil, errors.Errorf("%s: %q is no loopback address such as 127.0.0.1:6060", flag, addr)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	s, err := newServer(flag, addr, mux)
	if err != nil {
		return nil, err
	}
	s.http.WriteTimeout = 0 // a profile takes as long as the request asks for
	return s, nil
}

// CheckAddr returns an error if the value of a flag is not empty and is no address and port.
func CheckAddr(flag, addr string) error {
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

// newServer opens an address. An address that another process has is no error: that may be a weave-npc that is about to
// end, and policies do not wait for it.
func newServer(flag, addr string, h http.Handler) (*Server, error) {
	s := &Server{flag: flag, addr: addr, http: &http.Server{
		Handler:           h,
		ReadTimeout:       5 * time.Second,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         connlimit.Node().Track,
	}}
	if err := s.listen(); err != nil && !errors.Is(err, unix.EADDRINUSE) {
		return nil, errors.Wrapf(err, "%s: give an address of this node, or an empty one", flag)
	}
	return s, nil
}

func (s *Server) listen() error {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	s.listener, s.addr = l, l.Addr().String()
	return nil
}

// Run serves until the context ends. Failures are logged and tried again.
func (s *Server) Run(ctx context.Context, log *slog.Logger) error {
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
			log.Warn("cannot serve, trying again; does another weave-npc run on this node?", "flag", s.flag, "err", err)
			warned = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
	return nil
}
