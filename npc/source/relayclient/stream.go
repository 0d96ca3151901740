package relayclient

import (
	"context"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch that goes on at another server when the one where it is fails.
type stream struct {
	of      *record
	options metav1.ListOptions
	result  chan watch.Event
	ctx     context.Context //nolint:containedctx // of the watch, which Stop ends
	cancel  context.CancelFunc

	link    *link // the watch that is open; nil between two
	initial bool  // the list is not complete
	version string
	home    *failback
	pulse   *pulse
	timeout *time.Timer // of a replica's silence
	route   *route
}

func newStream(ctx context.Context, of *record, o metav1.ListOptions) *stream {
	s := &stream{of: of, options: o, result: make(chan watch.Event),
		version: o.ResourceVersion, pulse: newPulse(of.reports),
		timeout: time.NewTimer(time.Hour), route: newRoute(of)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.home = newFailback(s.ctx, of)
	return s
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *stream) Stop() { s.cancel() }

// run follows until the watch is stopped, or cannot go on.
func (s *stream) run() {
	defer close(s.result)
	defer s.cancel()
	defer s.home.stop()
	for {
		if s.link == nil {
			s.options.ResourceVersion = s.version
			l, err := s.route.reconnect(s.ctx, s.options)
			if err != nil {
				s.giveUp(err)
				return
			}
			s.link = l
		}
		s.enter()
		err := s.follow()
		s.leave(err)
		switch {
		case s.ctx.Err() != nil:
			return
		case s.initial: // the list starts again, from another server
			s.of.brokeOff(s.route.was.replica)
			s.of.agent.log.Debug("a list was broken off", "kind", s.of.kind, "replica", s.route.was.replica, "err", err)
			return
		case s.route.was.direct() && final(err):
			s.giveUp(err)
			return
		}
	}
}

// enter begins with the link.
func (s *stream) enter() {
	l := s.link
	place := s.of.agent.stats.of(l.replica)
	place.Watches.Add(1)
	switch {
	case s.route.was != nil && s.route.was.replica != l.replica:
		place.Moves.Add(1)
		s.of.agent.logMove(s.of.kind, l.replica, s.route.why)
	case s.route.was == nil && l.direct(): // from the start
		s.of.agent.logMove(s.of.kind, "", s.route.why)
	}
	s.pulse.opened(l)
	s.attend()
	if l.direct() {
		s.home.rest()
	}
}

// attend restarts the timeout after which a silent replica is left.
func (s *stream) attend() {
	if s.link.direct() {
		s.timeout.Stop()
		return
	}
	s.timeout.Reset(s.link.timeout(s.initial))
}

// leave ends the link, which is lost for a reason.
func (s *stream) leave(why error) {
	l := s.link
	l.close()
	s.home.stop()
	s.of.agent.stats.of(l.replica).Watches.Add(-1)
	s.pulse.closed(l)
	if s.link = nil; s.ctx.Err() == nil {
		s.route.lost(l, why)
	}
}

// follow delivers from the link until it is lost.
func (s *stream) follow() error {
	for {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case e, ok := <-s.link.ResultChan():
			if err := s.handle(e, ok); err != nil {
				return err
			}
		case <-s.timeout.C:
			select { // it may be this agent that slept
			case e, ok := <-s.link.ResultChan():
				if err := s.handle(e, ok); err != nil {
					return err
				}
			default:
				return errSilent
			}
		case <-s.pulse.timer.C:
			s.pulse.expired()
		case <-s.home.timer.C:
			s.home.next(s.version, s.initial)
		case l := <-s.home.opened:
			s.home.use(l)
		case e, ok := <-s.home.events():
			if err := s.comeBack(e, ok); err != nil {
				return err
			}
		}
	}
}

// handle handles one event of the link, or its end.
func (s *stream) handle(e watch.Event, ok bool) error {
	if !ok {
		return errEnded
	}
	if s.initial {
		return s.handleInitial(e)
	}
	what, version, err := read(e, s.version)
	switch {
	case err != nil && s.link.direct() && e.Type != watch.Error:
		what, version = news, s.version // the API server knows what it does
	case err != nil:
		return err
	}
	switch what {
	case stale:
		return nil
	case news:
		err = s.deliver(e, version)
	}
	s.alive()
	return err
}

// handleInitial handles an event of a list that comes as a stream.
func (s *stream) handleInitial(e watch.Event) error {
	if e.Type == watch.Error {
		return errors.WithStack(apierrors.FromObject(e.Object))
	}
	version, ends := endsList(e)
	if ends && !s.link.direct() && (!numbered(version) || older(version, s.of.delivered())) {
		return errors.Errorf("a list of version %q after %q", version, s.of.delivered())
	}
	if err := s.deliver(e, s.version); err != nil {
		return err
	}
	if !ends || !numbered(version) {
		s.attend()
		return nil
	}
	s.initial, s.version = false, version
	s.of.listed(s.link.replica, version)
	s.options.SendInitialEvents, s.options.ResourceVersionMatch = nil, ""
	s.alive()
	return nil
}

// deliver passes an event on. Everything up to a version is delivered then.
func (s *stream) deliver(e watch.Event, version string) error {
	select {
	case s.result <- e:
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	if version != s.version {
		s.version = version
		s.of.deliver(version)
		clear(s.route.gone)
	}
	return nil
}

// alive handles that the link is as new as the API server.
func (s *stream) alive() {
	s.link.alive = true
	s.route.worked()
	if !s.link.direct() {
		s.pulse.sign()
	}
	s.attend()
}

// comeBack handles an event of the replica that is to take over from the API server, which it does once it is not
// behind.
func (s *stream) comeBack(e watch.Event, ok bool) error {
	what, version, err := refused, "", errEnded
	if ok {
		what, version, err = read(e, s.version)
	}
	if err != nil {
		s.of.failed(s.home.link.replica)
		s.home.rest()
		return nil //nolint:nilerr // the API server is followed as before
	}
	if what == stale {
		return nil
	}
	s.change(s.home.take())
	s.alive()
	if what == news {
		return s.deliver(e, version)
	}
	return nil
}

// change goes on with another link.
func (s *stream) change(to *link) {
	before := s.link
	s.link = to
	s.of.agent.stats.of(before.replica).Watches.Add(-1)
	s.route.was, s.route.why = before, nil
	before.close()
	s.enter()
}

// giveUp reports to the reflector why the watch cannot continue.
func (s *stream) giveUp(err error) {
	answer := apierrors.APIStatus(nil)
	if s.ctx.Err() != nil || !errors.As(err, &answer) {
		return
	}
	if gone(err) {
		s.of.expire()
	}
	status := answer.Status()
	select {
	case s.result <- watch.Event{Type: watch.Error, Object: &status}:
	case <-s.ctx.Done():
	}
}
