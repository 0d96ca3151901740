package relayclient

import (
	"context"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// fallSpread is the time over which agents spread their way to the API server when no replica is left. Watches are
	// cheap, and without one new pods are closed.
	fallSpread = 2 * time.Second
	// retryFirst and retryMost are the times, at most, after which all servers are asked again.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// route finds the server where a stream goes on.
type route struct {
	of   *record
	was  *link // that was lost last; nil before the first
	why  error // it was lost, or no replica agreed
	gone map[string]error
	// tried are the replicas that failed since anything was delivered.
	tried    map[string]bool
	failures int  // of all servers, one after another
	rest     bool // all have failed: a pause is due before they are asked again, one after another without any
}

func newRoute(of *record) *route {
	return &route{of: of, tried: map[string]bool{}, gone: map[string]error{}}
}

// reconnect opens the next watch. It retries indefinitely; an error is an answer for the reflector.
func (r *route) reconnect(ctx context.Context, o metav1.ListOptions) (*link, error) {
	for {
		if r.rest {
			if err := pause(ctx, r.backoff()); err != nil {
				return nil, err
			}
			r.rest = false
		}
		l, err := r.connect(ctx, o)
		if err == nil || ctx.Err() != nil || final(err) {
			return l, err
		}
		if expired := r.expired(ctx); expired != nil { // the API server does not answer, and no replica can go on
			return nil, expired
		}
		r.exhausted()
		r.of.reports.Failed(ctx, err)
	}
}

// backoff returns a random time to wait before all servers are asked again.
func (r *route) backoff() time.Duration {
	most := min(retryFirst<<min(r.failures-1, 10), retryMost)
	return most/2 + random(most/2)
}

// expired returns why no replica can go on; nil unless all have said so.
func (r *route) expired(ctx context.Context) error {
	var why error
	for _, replica := range r.of.candidates(ctx) {
		if why = r.gone[replica]; why == nil {
			return nil
		}
	}
	return why
}

// connect opens a watch at the first server that agrees, the API server last. The error is that of the API server, or
// of a server that does not list as a stream.
func (r *route) connect(ctx context.Context, o metav1.ListOptions) (*link, error) {
	for _, replica := range r.of.candidates(ctx) {
		if r.gone[replica] != nil || r.tried[replica] && !r.again(replica) ||
			o.SendInitialEvents != nil && r.of.breaksOff(replica) {
			continue
		}
		l, err := r.of.open(ctx, replica, o)
		switch {
		case err == nil || ctx.Err() != nil || o.SendInitialEvents != nil && unlisted(err):
			return l, err
		case gone(err):
			r.gone[replica] = err
		default:
			r.fail(replica)
		}
		r.why = err
	}
	if r.was != nil && !r.was.direct() { // many agents may have lost it at once
		if err := pause(ctx, random(fallSpread)); err != nil {
			return nil, err
		}
	}
	return r.of.open(ctx, "", o)
}

// again reports whether a replica may be tried once more: it worked until now, and no other one is known to have
// failed.
func (r *route) again(replica string) bool {
	return r.was != nil && r.was.replica == replica && r.was.alive && len(r.tried) == 1
}

func (r *route) fail(replica string) {
	r.of.failed(replica)
	r.tried[replica] = true
}

// lost records how a link was lost.
func (r *route) lost(l *link, why error) {
	r.was, r.why = l, why
	ended := errors.Is(why, errEnded) && time.Since(l.opened) >= tooShort
	switch {
	case gone(why):
		r.gone[l.replica] = why
	case l.direct() && !ended:
		r.exhausted()
	case !l.direct() && (!ended || !l.alive):
		r.fail(l.replica)
	}
}

// exhausted records that the last server has failed, too.
func (r *route) exhausted() {
	r.failures++
	r.rest = true
	clear(r.tried)
}

// worked records that a link gives what is asked for.
func (r *route) worked() {
	r.failures, r.rest = 0, false
	clear(r.tried)
}
