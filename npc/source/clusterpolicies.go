package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

const (
	// askKinds is the time between two questions whether the API server has ClusterNetworkPolicies, and kindsJitter by
	// how much of it that varies, so that the nodes of a cluster do not ask at once.
	askKinds    = 30 * time.Second
	kindsJitter = 0.5
	// askKindsAgain is the time after the first question that failed; it doubles up to askKinds.
	askKindsAgain = 2 * time.Second
	// kindsTimeout is how long an answer may take.
	kindsTimeout = 10 * time.Second
	// vanishGrace is the grace of the watch: when the kind goes its stream ends, a second later a list finds no such
	// kind, and discovery is asked then.
	vanishGrace = 5 * outageGrace
)

// policyAPI is what is asked of an API server about cluster-wide policies.
type policyAPI interface {
	Discover(context.Context) (apiclient.Presence, error)
	ConfirmAbsence(context.Context) error
	Any(context.Context, schema.GroupVersionResource) (bool, error)
	List(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// clusterPolicies follows the ClusterNetworkPolicies of an API server, while it has that kind.
//
// Discovery shows whether it has the kind. An absent kind counts as synced and empty. If the kind exists in unknown
// versions alone, or may not be listed, the delivered objects stay, and the kind is not synced.
type clusterPolicies struct {
	api      policyAPI
	client   any // reports whether streaming lists are supported
	unsynced *unsynced
	sink     *policyKeeper
	log      *slog.Logger
	every    time.Duration // between two questions
	// through returns calls that go through a relay; nil without one.
	through func(listWatcher) listWatcher

	// resolved is closed when the sink has all objects, or when it is known why it cannot have them.
	resolved     chan struct{}
	markResolved func()
	// gone receives when a call was answered as if the kind were gone.
	gone chan struct{}

	// unfollow ends what follows the kind, and returns when the last event has been handled; nil while nothing does.
	unfollow func()
	asked    bool // discovery has answered once
	failures int  // of discovery, since it answered last
	reported map[string]bool
}

func newClusterPolicies(api policyAPI, client any, unsynced *unsynced, sink Sink, log *slog.Logger) *clusterPolicies {
	c := &clusterPolicies{api: api, client: client, unsynced: unsynced,
		sink: newPolicyKeeper(sink), log: log, resolved: make(chan struct{}),
		gone: make(chan struct{}, 1), reported: map[string]bool{}}
	c.markResolved = sync.OnceFunc(func() { close(c.resolved) })
	return c
}

// run follows the kind until ctx ends.
func (c *clusterPolicies) run(ctx context.Context) {
	defer c.stop()
	for ctx.Err() == nil {
		c.handle(ctx)
		select {
		case <-ctx.Done():
		case <-c.gone:
		case <-time.After(c.pause()):
		}
	}
}

// pause returns the time until discovery is asked again.
func (c *clusterPolicies) pause() time.Duration {
	if c.failures == 0 {
		return wait.Jitter(c.every, kindsJitter)
	}
	return wait.Jitter(min(askKindsAgain<<min(c.failures-1, 4), c.every), kindsJitter)
}

// handle asks discovery once, and follows the answer.
func (c *clusterPolicies) handle(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, kindsTimeout)
	defer cancel()
	p, err := c.api.Discover(asking)
	present := p.Served || p.Unknown() != ""
	if err == nil && !present && (c.unfollow != nil || c.sink.any()) {
		err = c.api.ConfirmAbsence(asking)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.failed(err)
		return
	}
	c.asked, c.failures = true, 0
	switch {
	case p.Served:
		err = c.follow(ctx)
	case present:
		c.suspend(p.Unknown())
	default:
		c.empty()
	}
	if err != nil {
		c.failed(err)
	}
	c.reportFormer(asking, p.Former)
}

// failed leaves everything as it is known. That the API server does not answer is logged by the watches.
func (c *clusterPolicies) failed(err error) {
	level := slog.LevelDebug
	if answer := apierrors.APIStatus(nil); !c.asked && c.failures == 0 && errors.As(err, &answer) {
		level = slog.LevelWarn
	}
	c.failures++
	c.log.Log(context.Background(), level,
		"it is not known whether the API server has ClusterNetworkPolicies, asking again", "err", err)
	if !c.asked {
		c.unsynced.set(ClusterNetworkPolicies,
			fmt.Sprintf("it is not known whether the API server has %s: %v", ClusterNetworkPolicies, err))
	}
	c.markResolved()
}

// follow starts to list and watch the kind, unless that is done already.
func (c *clusterPolicies) follow(ctx context.Context) error {
	if c.unfollow != nil {
		return nil
	}
	calls := listWatcher{list: c.list, watch: checked(c.watch, isClusterPolicy)}
	if c.through != nil {
		calls = c.through(calls)
	}
	i, err := newInformer(clusterPolicyDelivery(c.sink, c.log), calls, c.client, c.sink, c.log)
	if err != nil {
		return err
	}
	i.connection.mayVanish, i.connection.grace = true, vanishGrace
	i.connection.failing = func(err error) {
		c.unsynced.update(ClusterNetworkPolicies, ClusterNetworkPolicies+" cannot be listed: "+err.Error())
		c.markResolved()
	}
	c.unsynced.set(ClusterNetworkPolicies, "not all "+ClusterNetworkPolicies+" have been received yet")
	c.log.Info("the API server has ClusterNetworkPolicies")

	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { i.run(ctx) })
	tasks.Go(func() {
		if cache.WaitFor(ctx, "", i.handled) {
			c.sink.keepOnly(i.GetStore().ListKeys())
			c.unsynced.set(ClusterNetworkPolicies, "")
			c.markResolved()
		}
	})
	c.unfollow = func() {
		cancel()
		tasks.Wait()
	}
	return nil
}

func (c *clusterPolicies) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := c.api.List(ctx, o)
	c.noteGone(err)
	return list, err
}

func (c *clusterPolicies) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := c.api.Watch(ctx, o)
	c.noteGone(err)
	return w, err
}

// noteGone has discovery asked at once if a call was answered as if the kind were gone.
func (c *clusterPolicies) noteGone(err error) {
	if !apierrors.IsNotFound(err) {
		return
	}
	select {
	case c.gone <- struct{}{}:
	default:
	}
}

// suspend ends the watch of a kind that exists in other versions alone. The delivered objects stay.
func (c *clusterPolicies) suspend(why string) {
	c.stop()
	if !c.reported[why] {
		c.reported[why] = true
		c.log.Warn(why)
	}
	c.unsynced.set(ClusterNetworkPolicies, why)
	c.markResolved()
}

// empty ends the watch of a kind that is absent, and deletes what was delivered.
func (c *clusterPolicies) empty() {
	if c.unfollow != nil {
		c.log.Info("the API server has no ClusterNetworkPolicies any more")
	}
	c.stop()
	c.sink.keepOnly(nil)
	c.sink.gone()
	c.unsynced.set(ClusterNetworkPolicies, "")
	c.markResolved()
}

func (c *clusterPolicies) stop() {
	if c.unfollow != nil {
		c.unfollow()
		c.unfollow = nil
	}
}

// reportFormer reports once of each kind that came before ClusterNetworkPolicy that there are objects of it.
func (c *clusterPolicies) reportFormer(ctx context.Context, resources []schema.GroupVersionResource) {
	for _, r := range resources {
		if c.reported[r.Resource] {
			continue
		}
		found, err := c.api.Any(ctx, r)
		switch {
		case err != nil:
			c.log.Debug("it is not known whether there are policies of a kind that is not enforced",
				"kind", r.Resource, "err", err)
		case found:
			c.reported[r.Resource] = true
			c.log.Warn("there are policies of a kind that is not enforced",
				"kind", r.GroupResource().String(), "version", r.Version)
		}
	}
}
