package relayclient

import (
	"context"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Follower lists and watches one kind, as one server would. Relay.Follow returns one. It is used by one reflector.
type Follower struct{ *record }

// List lists at a replica, or at the API server.
func (f *Follower) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := f.await(ctx); err != nil {
		return nil, err
	}
	if o.Continue == "" { // the rest of a list is where its beginning was, which was whole at a replica
		for _, replica := range f.candidates(ctx) {
			if list, err := f.listAt(ctx, replica, o); err == nil {
				return list, nil
			} else if ctx.Err() != nil {
				return nil, err
			}
		}
	}
	within, cancel := context.WithTimeout(ctx, listsTimeout)
	defer cancel()
	list, err := f.direct.List(within, o)
	if err != nil {
		f.reports.Failed(ctx, err)
		return nil, err // with its status, which the reflector asks for
	}
	f.listed("", listVersion(list))
	return list, nil
}

// listAt lists at a replica. A list that is older than what was delivered is none.
func (f *Follower) listAt(ctx context.Context, replica string, o metav1.ListOptions) (runtime.Object, error) {
	o.Limit = 0
	ctx, cancel := context.WithTimeout(at(ctx, replica), listsTimeout)
	defer cancel()
	list, err := f.relayed.List(ctx, o)
	switch {
	case err == nil && (!numbered(listVersion(list)) || older(listVersion(list), f.delivered())):
		err = errors.Errorf("a list of version %q after %q", listVersion(list), f.delivered())
		fallthrough
	case err != nil:
		f.failed(replica)
		f.agent.log.Debug("the relay cannot be listed", "kind", f.kind, "replica", replica, "err", err)
		return nil, err
	}
	f.listed(replica, listVersion(list))
	return list, nil
}

// Watch watches at a replica, or at the API server. Unless it begins with a list, the watch does not end before the
// context does, except that none has its version any more, or that the API server has no such kind.
func (f *Follower) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.AllowWatchBookmarks = true
	s := newStream(ctx, f.record, o)
	if o.SendInitialEvents == nil && numbered(o.ResourceVersion) {
		go s.run()
		return s, nil
	}
	err := f.await(s.ctx)
	if err == nil {
		s.initial = true
		s.link, err = s.route.connect(s.ctx, s.options)
	}
	if err != nil {
		s.cancel()
		f.reports.Failed(ctx, err)
		return nil, err // with its status, which the reflector asks for
	}
	go s.run()
	return s, nil
}
