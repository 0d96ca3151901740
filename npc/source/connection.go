package source

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/weave-npc/weave-npc/npc/source/relayclient"
)

// outageGrace is how long a watch may be absent between two streams without being broken, and how long it must hold
// after an outage before it counts as working: the changes in between have been delivered then.
const outageGrace = time.Second

// listWatcher lists and watches one kind.
type listWatcher struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch watchFunc
	// follow returns what does so through a relay; it is nil without one.
	follow func(relayclient.Reports) *relayclient.Follower
}

// through returns lw, with another one that asks a relay's replicas for the same.
func (lw listWatcher) through(r *relayclient.Relay, kind string, relayed listWatcher) listWatcher {
	lw.follow = func(reports relayclient.Reports) *relayclient.Follower {
		return r.Follow(kind, relayclient.Calls{List: relayed.list, Watch: relayed.watch},
			relayclient.Calls{List: lw.list, Watch: lw.watch}, reports)
	}
	return lw
}

// connection observes the calls of one reflector, and reports whenever its watch breaks or works again. What a relay
// follows it hears from that: there, an open watch that gives no sign is broken.
type connection struct {
	kind   string
	report func(ok bool)
	log    *slog.Logger
	grace  time.Duration
	// failing is called with every error; it may be nil.
	failing func(error)
	// mayVanish is set if the kind may be gone when it is not found. Whether it is turns out within the grace.
	mayVanish bool

	mu     sync.Mutex // guards the fields below; held during calls of report and failing
	state  connectionState
	timer  *time.Timer // pending change of state, or nil
	change int         // counts arming and disarming, so that a timer that fires too late has no effect
	closed bool
}

type connectionState int

const (
	unknown connectionState = iota
	working
	broken
)

// observe returns lw with every call observed.
func (c *connection) observe(lw listWatcher) *cache.ListWatch {
	if lw.follow != nil {
		f := lw.follow(relayclient.Reports{Started: c.started, Ended: c.ended, Failed: c.failed})
		return &cache.ListWatch{ListWithContextFunc: f.List, WatchFuncWithContext: f.Watch}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.list(ctx, o)
			if err != nil {
				c.failed(ctx, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.watch(ctx, o)
			if err != nil {
				c.failed(ctx, err)
				return nil, err
			}
			c.started()
			return &stream{Interface: w, ended: c.ended}, nil
		},
	}
}

// stream is a watch that reports its end: the reflector stops every watch that it no longer reads.
type stream struct {
	watch.Interface
	once  sync.Once
	ended func()
}

func (s *stream) Stop() {
	s.Interface.Stop()
	s.once.Do(s.ended)
}

// started handles that a stream has been established.
func (c *connection) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case unknown:
		c.become(working, nil)
	case working:
		c.disarm()
	case broken:
		c.arm(working)
	}
}

// ended handles that a stream has ended.
func (c *connection) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case working:
		c.arm(broken)
	case unknown, broken:
		c.disarm()
	}
}

// failed handles that a list or watch call has failed.
func (c *connection) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case answeredByOtherCall(err) && c.state == working:
		c.arm(broken)
	case answeredByOtherCall(err):
		c.disarm()
	case c.mayVanish && apierrors.IsNotFound(err) && c.state != broken:
		c.arm(broken)
	default:
		if c.failing != nil {
			c.failing(err)
		}
		c.become(broken, err)
	}
}

// answeredByOtherCall reports whether an error is part of normal operation: the server works, and the reflector makes
// another call at once, because the server does not stream lists or no longer has the version that was asked for.
func answeredByOtherCall(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// close stops all reports. None is in progress when it returns.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disarm()
	c.closed = true
}

// become changes the state, and reports and logs the change, once per outage. c.mu is held.
func (c *connection) become(state connectionState, cause error) {
	c.disarm()
	if c.closed || c.state == state {
		return
	}
	before := c.state
	c.state = state
	switch {
	case state == broken && cause != nil:
		c.log.Warn("watch is broken, will be retried indefinitely", "kind", c.kind, "err", cause)
	case state == broken:
		c.log.Warn("watch is broken, will be retried indefinitely", "kind", c.kind, "err", "stream ended")
	case before == broken:
		c.log.Info("watch works again", "kind", c.kind)
	}
	c.report(state == working)
}

// arm changes the state after the grace, unless something else happens before. c.mu is held.
func (c *connection) arm(state connectionState) {
	c.disarm()
	change := c.change
	c.timer = time.AfterFunc(c.grace, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.change == change {
			c.become(state, nil)
		}
	})
}

func (c *connection) disarm() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.change++
}

// watchFunc opens a watch.
type watchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// checked returns open with its events checked. A reflector leaves out an event about an object of another kind, and
// the change is lost; one without a resourceVersion makes it watch from anywhere. Here both end the watch as an error.
func checked(open watchFunc, isKind func(runtime.Object) bool) watchFunc {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := open(ctx, o)
		if err != nil {
			return nil, err // with its status, which callers ask for
		}
		ctx, cancel := context.WithCancel(ctx)
		c := &checkedWatch{from: w, ctx: ctx, cancel: cancel, isKind: isKind, result: make(chan watch.Event)}
		go c.run()
		return c, nil
	}
}

// checkedWatch passes on the events of another watch.
type checkedWatch struct {
	from   watch.Interface
	ctx    context.Context //nolint:containedctx // of the watch, which Stop ends
	cancel context.CancelFunc
	isKind func(runtime.Object) bool
	result chan watch.Event
}

// ResultChan implements watch.Interface.
func (c *checkedWatch) ResultChan() <-chan watch.Event { return c.result }

// Stop implements watch.Interface.
func (c *checkedWatch) Stop() {
	c.cancel()
	c.from.Stop()
}

func (c *checkedWatch) run() {
	defer close(c.result)
	defer c.Stop()
	for e := range c.from.ResultChan() {
		why := c.wrong(e)
		if why != "" {
			e = watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure,
				Code: http.StatusBadGateway, Message: "the watch has " + why}}
		}
		select {
		case c.result <- e:
		case <-c.ctx.Done():
			return
		}
		if why != "" {
			return
		}
	}
}

// wrong returns what is wrong with an event; empty if nothing is.
func (c *checkedWatch) wrong(e watch.Event) string {
	if e.Type == watch.Error {
		return ""
	}
	m, err := meta.Accessor(e.Object)
	switch {
	case err != nil || !c.isKind(e.Object):
		return fmt.Sprintf("an event of type %s about a %T", e.Type, e.Object)
	case m.GetResourceVersion() == "" || m.GetName() == "" && e.Type != watch.Bookmark:
		return fmt.Sprintf("an event of type %s about an object %q of version %q", e.Type, m.GetName(),
			m.GetResourceVersion())
	}
	return ""
}

// isA reports whether an object is of a type.
func isA[T runtime.Object](o runtime.Object) bool {
	_, ok := o.(T)
	return ok
}

// isClusterPolicy reports whether an object, as it is stored, is a ClusterNetworkPolicy.
func isClusterPolicy(o runtime.Object) bool {
	return o.GetObjectKind().GroupVersionKind().Kind == "ClusterNetworkPolicy"
}
