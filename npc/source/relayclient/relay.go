package relayclient

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/npc/source/apiclient/answers"
)

// Config is where the relay is, and how it and this agent know each other.
type Config struct {
	// Address is NAMESPACE/SERVICE, or HOST:PORT of each replica with commas between.
	Address string
	// CA is a file with the certificates that may have signed the relay's, and Token one with what this agent shows to
	// the relay. Both are read whenever they are needed.
	CA, Token string
	// Jitter is the time over which agents spread what they do at once after an outage.
	Jitter time.Duration
	// Version is that of the program.
	Version string
	Log     *slog.Logger
}

// Relay is a relay as one agent knows it. New returns one. Its methods may be called by several goroutines.
type Relay struct {
	agent     *agent
	transport http.RoundTripper
	version   string
}

// New returns the relay at an address. It sends no request. It fails if the address is none.
func New(c Config) (*Relay, error) {
	where, err := parse(c.Address)
	if err != nil {
		return nil, err
	}
	if c.Jitter < 0 {
		return nil, errors.Errorf("%s is no time over which anything can be spread", c.Jitter)
	}
	return &Relay{agent: &agent{replicas: newReplicas(where), spread: c.Jitter, log: c.Log},
		transport: newTransport(where.serverName(), c.CA, c.Token), version: c.Version}, nil
}

// Client returns a client of the relay with its configuration. Only the calls that Follow got reach a replica with it.
func (r *Relay) Client() (kubernetes.Interface, *rest.Config, error) {
	config := &rest.Config{
		Host:      "https://relay",
		Transport: answers.Reduced(r.transport),
		UserAgent: "weave-npc/" + r.version,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
		QPS: -1, // what is repeated waits by itself
	}
	client, err := kubernetes.NewForConfig(config)
	return client, config, errors.Wrap(err, "making a client of the relay")
}

// Follow returns the follower of one kind. relayed are the calls by the client of the relay, direct those of the API
// server.
func (r *Relay) Follow(kind string, relayed, direct Calls, reports Reports) *Follower {
	return &Follower{&record{agent: r.agent, kind: kind, relayed: relayed, direct: direct, reports: reports,
		failures: map[string]time.Time{}, broken: map[string]time.Time{}}}
}

// Run follows the addresses of the replicas until ctx ends. client is that of the API server.
func (r *Relay) Run(ctx context.Context, client kubernetes.Interface) {
	r.agent.replicas.run(ctx, client, r.agent.log)
}

// Stats returns the counters, which go on to count.
func (r *Relay) Stats() *Stats { return &r.agent.stats }
