package relayclient

import (
	"context"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// openTimeout is how long a replica may take to begin an answer, and directTimeout the API server, which may queue
	// requests; listsTimeout is how long a list may take, or the beginning of one that the API server gives as a
	// stream.
	openTimeout   = 2 * time.Second
	directTimeout = 10 * time.Second
	listsTimeout  = time.Minute
	// beginTimeout is the longest silence of a replica while it lists: it may have to ask the API server first.
	// firstTimeout is that before the first sign: a replica may be behind another one by as long as it goes without
	// news itself.
	beginTimeout = 10 * time.Second
	firstTimeout = 5 * time.Second
	// tooShort is how long a watch holds at least that is no failure.
	tooShort = time.Second
)

// errEnded and errSilent are how a watch is lost without a word.
var (
	errEnded  = errors.New("the stream ended")
	errSilent = errors.New("the relay is silent")
)

// link is one watch that is open.
type link struct {
	watch.Interface
	replica string // empty for the API server
	cancel  context.CancelFunc
	opened  time.Time
	alive   bool // it has delivered, or given a sign
}

// direct reports whether the link leads to the API server.
func (l *link) direct() bool { return l.replica == "" }

// timeout returns the longest silence that is none. The API server may be silent.
func (l *link) timeout(initial bool) time.Duration {
	switch {
	case initial:
		return beginTimeout
	case !l.alive:
		return firstTimeout
	}
	return freshness
}

func (l *link) close() {
	l.cancel()
	l.Stop()
}

// open opens a watch at a replica, or at the API server for none.
func (r *record) open(ctx context.Context, replica string, o metav1.ListOptions) (*link, error) {
	calls, timeout, list := r.direct, directTimeout, listsTimeout
	if replica != "" {
		ctx = at(ctx, replica)
		calls, timeout, list = r.relayed, openTimeout, beginTimeout
	}
	if o.SendInitialEvents != nil {
		timeout = list
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(timeout, func() { cancel(errors.Errorf("no answer for %s", timeout)) })
	w, err := calls.Watch(ctx, o)
	if err == nil && !late.Stop() {
		w.Stop()
		err = context.Cause(ctx)
	}
	late.Stop()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err // with its status, which callers ask for
	}
	return &link{Interface: w, replica: replica, cancel: func() { cancel(nil) }, opened: time.Now()}, nil
}
