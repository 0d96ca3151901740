package relayclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pkg/errors"
)

const (
	// dialTimeout is how long it may take to reach a replica and to agree on keys with it.
	dialTimeout = 2 * time.Second
	// pingEvery is the silence of a connection after which it is asked whether it stands, and how long the answer may
	// take.
	pingEvery = 2 * time.Second
)

// replicaKey is the key of the replica's address in the context of a request.
type replicaKey struct{}

// at returns a context whose requests go to a replica.
func at(ctx context.Context, replica string) context.Context {
	return context.WithValue(ctx, replicaKey{}, replica)
}

// transport sends requests to the replica that their context names. All requests to one share a connection.
type transport struct {
	base  *http.Transport
	name  string // that replicas must have; empty for that in their address
	token string // a file
}

func newTransport(name, ca, token string) *transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &transport{name: name, token: token, base: &http.Transport{
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingEvery},
		IdleConnTimeout:   time.Minute,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			config, err := trust(name, ca, addr)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, addr)
		},
	}}
}

// trust returns how a replica is known: by the certificates that the file has now, which may have changed since the
// last connection.
func trust(name, ca, addr string) (*tls.Config, error) {
	if name == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Wrapf(err, "finding the name of the relay in %q", addr)
		}
		name = host
	}
	text, err := os.ReadFile(ca) //nolint:gosec // the path is a flag's
	if err != nil {
		return nil, errors.Wrap(err, "reading the certificates by which the relay is known")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.Errorf("%s has no certificates by which the relay could be known", ca)
	}
	return &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"}}, nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	replica, _ := request.Context().Value(replicaKey{}).(string)
	if replica == "" {
		return nil, errors.Errorf("%s goes to no replica", request.URL.Path)
	}
	token, err := os.ReadFile(t.token)
	if err != nil {
		return nil, errors.Wrap(err, "reading the token for the relay")
	}
	request = request.Clone(request.Context())
	request.URL.Host, request.Host = replica, t.name
	if t.name == "" {
		request.Host = replica
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return t.base.RoundTrip(request)
}
