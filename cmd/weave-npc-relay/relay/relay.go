// Package relay is the whole of a relay: it follows an API server and serves agents what they would get there.
//
//	r, err := relay.New(relay.Config{...}, log)
//	err = r.Run(ctx)
//
//	API server ─▶ upstream.Source ─▶ serve.Kind (watch cache) ─▶ serve.Handler ─▶ auth.Tokens ─▶ agents
//
// Each of kinds.All has a source and a server. certificate reads the server's certificate again when it changes.
package relay

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/serve"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
	"github.com/weave-npc/weave-npc/internal/connlimit"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// ReadyAfter is how long after its lists a relay is ready, so that agents that come from another one that stands have
// versions from after the lists. Those versions are behind the API server by five seconds from one question for it to
// the next, by five more if one of them fails, by the three seconds of an upstream watch and by the second from one
// bookmark to the next. The rest is for an API server that answers slowly.
const ReadyAfter = 20 * time.Second

// Config is what a relay needs.
type Config struct {
	// API leads to the API server.
	API *rest.Config
	// CertFile and KeyFile are the relay's certificate; they are read again when they change.
	CertFile, KeyFile string
	// Tokens is whose tokens are accepted.
	Tokens auth.Config
	// ReadyAfter is how long after its lists the relay is ready, so that others are not ended while it cannot go on
	// from their agents' versions.
	ReadyAfter time.Duration
	// AskKinds is how often the API server is asked which kinds it has.
	AskKinds time.Duration
}

// Relay follows an API server and serves agents.
type Relay struct {
	config   Config
	log      *slog.Logger
	codecs   *kinds.Codecs
	presence *apiclient.PolicyClient
	tokens   *auth.Tokens
	cert     *certificate
	registry *prometheus.Registry
	metrics  *metrics
	kinds    []*followed

	connections connections
}

// followed is a kind that the relay follows.
type followed struct {
	kind     *kinds.Kind
	served   *serve.Kind
	client   rest.Interface
	observer *observer

	mu      sync.Mutex // guards the fields below
	unknown bool       // it is not known whether the API server has the kind
	late    bool       // the API server did not have it when it was asked before, so that no agent has a version of it
}

// New returns a relay. It makes no requests.
func New(config Config, log *slog.Logger) (*Relay, error) {
	r := &Relay{config: config, log: log, registry: prometheus.NewRegistry(), connections: newConnections()}
	client, err := kubernetes.NewForConfig(config.API)
	if err != nil {
		return nil, errors.Wrap(err, "making a client")
	}
	if r.presence, err = apiclient.NewPolicyClient(client, config.API); err != nil {
		return nil, err
	}
	if r.codecs, err = kinds.NewCodecs(); err != nil {
		return nil, err
	}
	if r.cert, err = newCertificate(config.CertFile, config.KeyFile, log); err != nil {
		return nil, err
	}
	r.metrics = newMetrics(r.registry, r.unready)
	r.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.tokens = auth.New(reviewer{client}, config.Tokens,
		func(reason string) { r.metrics.refused.WithLabelValues(reason).Inc() })
	for _, k := range kinds.All() {
		f := &followed{kind: k, observer: r.metrics.observer(k, log), unknown: k.Optional}
		if f.client, err = r.codecs.Client(k, config.API); err != nil {
			return nil, err
		}
		f.served = serve.NewKind(k, r.codecs, f.observer)
		r.kinds = append(r.kinds, f)
	}
	return r, nil
}

// reviewer asks the API server for tokens.
type reviewer struct{ client kubernetes.Interface }

// Review implements auth.Reviewer.
func (r reviewer) Review(ctx context.Context, review *authenticationv1.TokenReview,
) (*authenticationv1.TokenReview, error) {
	return r.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
}

// Follow follows the API server until ctx ends.
func (r *Relay) Follow(ctx context.Context) error {
	defer func() {
		for _, f := range r.kinds {
			f.served.Stop()
		}
	}()
	for _, f := range r.kinds {
		if f.kind.Optional {
			continue
		}
		if err := f.start(); err != nil {
			return err
		}
	}
	ask := time.NewTicker(r.config.AskKinds)
	defer ask.Stop()
	measure := time.NewTicker(time.Second)
	defer measure.Stop()
	r.askKinds(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ask.C:
			r.askKinds(ctx)
		case <-measure.C:
			for _, f := range r.kinds {
				reached, ok := f.served.Serving()
				r.metrics.lags(f.kind.Name, reached, ok)
			}
		}
	}
}

func (f *followed) start() error { return f.served.Start(upstream.New(f.kind, f.client, f.observer)) }

// askKinds asks the API server for the kinds that it may lack, and serves those that it has.
func (r *Relay) askKinds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	presence, err := r.presence.Discover(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("the API server does not report whether it has cluster network policies", "err", err)
		}
		return
	}
	for _, f := range r.kinds {
		if !f.kind.Optional {
			continue
		}
		_, serving := f.served.Serving()
		switch {
		case presence.Served && !serving:
			if err := f.start(); err != nil {
				r.log.Error("cannot serve a kind", "kind", f.kind.Name, "err", err)
				continue
			}
			r.log.Info("serves a kind that the API server has", "kind", f.kind.Name)
		case !presence.Served && serving:
			f.served.Stop()
			r.log.Info("no longer serves a kind that the API server lacks", "kind", f.kind.Name)
		}
		f.mu.Lock()
		f.unknown, f.late = false, f.late || !presence.Served
		f.mu.Unlock()
	}
}

// unready returns why agents may not use the relay yet; empty if they may.
func (r *Relay) unready() string {
	var reasons []string
	for _, f := range r.kinds {
		if why := r.unreadyFor(f); why != "" {
			reasons = append(reasons, f.kind.Name+": "+why)
		}
	}
	return strings.Join(reasons, "; ")
}

func (r *Relay) unreadyFor(f *followed) string {
	reached, ok := f.served.Serving()
	f.mu.Lock()
	unknown, late := f.unknown, f.late
	f.mu.Unlock()
	switch {
	case unknown:
		return "it is not known whether the API server has them"
	case !ok && f.kind.Optional:
		return ""
	case !ok, reached.Listed.IsZero():
		return "not listed yet"
	case !reached.Fresh:
		return fmt.Sprintf("the API server's watch is broken, or has been silent for %s",
			reached.Silent.Round(time.Second))
	}
	if left := r.config.ReadyAfter - time.Since(reached.Listed); left > 0 && !late {
		return fmt.Sprintf("agents' versions may be older than the list, for another %s", left.Round(time.Second))
	}
	return ""
}

// agents returns the handler of agents' requests.
func (r *Relay) agents() http.Handler {
	mux, turns := http.NewServeMux(), serve.NewTurns()
	for _, f := range r.kinds {
		mux.Handle(f.kind.Path(), serve.Handler(f.served, turns))
	}
	return unread(r.tokens.Protect(r.connections.authenticated(mux)))
}

// unread returns a handler of requests whose bodies are never read. Else the server would wait for them in the end.
func unread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // cannot fail on a connection
		}
		next.ServeHTTP(w, r)
	})
}

// Metrics returns the handler of /metrics, /livez and /readyz.
func (r *Relay) Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := r.unready(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// server returns the server of agents, without an address.
func (r *Relay) server() *http.Server {
	return &http.Server{
		Handler: r.agents(),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: r.cert.get,
			// With HTTP/2 all watches of an agent would share a connection, and closing one that is full would end the
			// others; each write would cost more.
			NextProtos: []string{"http/1.1"}},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ConnState: r.connections.track, ConnContext: withConn,
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// Run follows the API server, and serves agents and metrics, until ctx ends.
func (r *Relay) Run(ctx context.Context, agents, metrics net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { cancel(r.Follow(ctx)) })
	servers := []*http.Server{r.server(), {Handler: r.Metrics(), ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ConnState: connlimit.Node().Track}}
	running.Go(func() { cancel(servers[0].ServeTLS(agents, "", "")) })
	running.Go(func() { cancel(servers[1].Serve(metrics)) })
	<-ctx.Done()
	for _, s := range servers {
		_ = s.Close() // agents move at once; nothing is worth waiting for
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
