package relayclient

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// stay is how long the API server is followed at least before the relay is tried again; the spread of agents comes
	// to it.
	stay = 10 * time.Second
	// failbackTimeout is how long a replica may be behind the API server before it is left.
	failbackTimeout = 10 * time.Second
)

// failback moves a stream from the API server back to the relay: it opens a watch there, too, and the stream changes
// over when that is not behind. Until then the API server is followed.
type failback struct {
	of     *record
	ctx    context.Context //nolint:containedctx // of the stream
	timer  *time.Timer     // until the next step
	opened chan *link      // receives nil if the relay could not be reached; nil if it is not tried
	open   context.CancelFunc
	link   *link // nil unless one is open
}

func newFailback(ctx context.Context, of *record) *failback {
	h := &failback{of: of, ctx: ctx, timer: time.NewTimer(time.Hour)}
	h.timer.Stop()
	return h
}

// rest waits for a random time before the relay is tried.
func (h *failback) rest() {
	h.stop()
	h.timer.Reset(stay + random(h.of.agent.spread))
}

// stop ends whatever is under way.
func (h *failback) stop() {
	h.timer.Stop()
	if h.open != nil {
		h.open()
		h.open, h.opened = nil, nil
	}
	if h.link != nil {
		h.link.close()
		h.link = nil
	}
}

// next tries a replica from a version on, or gives up the one that was tried. There is no way back before a list is
// complete.
func (h *failback) next(version string, initial bool) {
	if h.link != nil {
		h.of.failed(h.link.replica)
	}
	if h.link != nil || initial || !numbered(version) {
		h.rest()
		return
	}
	ctx, cancel := context.WithCancel(h.ctx)
	opened := make(chan *link)
	h.open, h.opened = cancel, opened
	o := metav1.ListOptions{AllowWatchBookmarks: true, ResourceVersion: version}
	go func() {
		var l *link // the open one lives longer than this
		for _, replica := range h.of.candidates(ctx) {
			if ctx.Err() != nil {
				return
			}
			var err error
			if l, err = h.of.open(h.ctx, replica, o); err == nil {
				break
			}
			h.of.failed(replica)
			h.of.agent.log.Debug("the relay cannot be reached yet", "kind", h.of.kind, "replica", replica, "err", err)
		}
		select {
		case opened <- l:
		case <-ctx.Done():
			if l != nil {
				l.close()
			}
		}
	}()
}

// use waits for the first sign on a link.
func (h *failback) use(l *link) {
	h.open()
	h.open, h.opened = nil, nil
	if l == nil {
		h.rest()
		return
	}
	h.link = l
	h.timer.Reset(failbackTimeout)
}

// events returns the events of the link; nil if there is none.
func (h *failback) events() <-chan watch.Event {
	if h.link == nil {
		return nil
	}
	return h.link.ResultChan()
}

// take returns the link, which is the caller's from then on.
func (h *failback) take() *link {
	l := h.link
	h.link = nil
	h.stop()
	return l
}
