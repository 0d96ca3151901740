package node

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

const (
	// lookEvery is how often uplinks are looked for although the kernel tells of no change.
	lookEvery = 10 * time.Second
	// lookPause is the least time between two looks, however often something changes: a look costs with every pod.
	lookPause = 200 * time.Millisecond
)

// Follower follows the pods' interface and the uplinks of the pods' bridges.
type Follower struct {
	// Interface is what Missing is asked for; it may be empty.
	Interface string
	// Bridges returns the names of the pods' bridges as they are now.
	Bridges func() []string
	// Uplink is the name of a port that is an uplink whatever it is; it may be empty.
	Uplink string
	// Found is called with what was found whenever it has changed.
	Found func(Uplinks)
	Log   *slog.Logger

	finder           finder
	missing, failing string
	uplinks          Uplinks
}

// Run follows until the context ends.
func (f *Follower) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		following, stop := context.WithCancel(ctx)
		changes, err := subscribe(following, stop)
		if err != nil {
			f.Log.Warn("changes of interfaces, neighbours and routes are not told by the kernel, looking for them instead",
				"every", lookEvery, "err", err)
		}
		for more := true; more; {
			f.Look()
			select {
			case <-ctx.Done():
			case <-time.After(lookPause):
			}
			select {
			case <-following.Done():
				more = false
			case <-changes:
			case <-tick.C:
				more = err == nil
			}
		}
		stop()
	}
	return nil
}

// subscribe returns a channel that receives after changes of interfaces, neighbours and routes, until the context ends. It stops the
// context when the kernel does not tell any more, as after too many changes at once.
func subscribe(ctx context.Context, stop func()) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	links, neighbours, routes := make(chan netlink.LinkUpdate), make(chan netlink.NeighUpdate), make(chan netlink.RouteUpdate)
	ignore := func(error) {}
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return changes, errors.Wrap(err, "following the interfaces of this node")
	}
	go pass(links, changes, stop)
	if err := netlink.NeighSubscribeWithOptions(neighbours, ctx.Done(), netlink.NeighSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return changes, errors.Wrap(err, "following the neighbours of this node")
	}
	go pass(neighbours, changes, stop)
	if err := netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return changes, errors.Wrap(err, "following the routes of this node")
	}
	go pass(routes, changes, stop)
	return changes, nil
}

// pass makes changes receive for what comes, and calls ended when nothing comes any more.
func pass[T any](from <-chan T, changes chan<- struct{}, ended func()) {
	defer ended()
	for range from {
		select {
		case changes <- struct{}{}:
		default: // one look serves all
		}
	}
}

// Look looks once. An error leaves the uplinks as they were found before.
func (f *Follower) Look() {
	f.note(Missing(f.Interface))
	found, err := f.finder.find(f.Bridges(), f.Uplink)
	if err != nil {
		if f.failing == "" {
			f.Log.Warn("cannot tell the uplinks of the pods' bridge from pods' ports, trying again", "err", err)
		}
		f.failing = err.Error()
		return
	}
	f.failing = ""
	if found.equal(f.uplinks) {
		return
	}
	if !slices.Equal(found.Names, f.uplinks.Names) {
		f.Log.Info("the pods' bridge has other uplinks: what is behind them is no pod of this node", "uplinks", found.Names)
	}
	if len(found.Left) > 0 && !slices.Equal(found.Left, f.uplinks.Left) {
		f.Log.Warn("uplinks of the pods' bridge have names that iptables does not take, or are too many: what is behind them counts as pods",
			"ports", found.Left, "at_most", maxUplinks)
	}
	f.uplinks = found
	f.Found(found)
}

// note logs that the pods' interface is missing, or is there now.
func (f *Follower) note(missing string) {
	switch {
	case missing != "" && f.missing == "":
		f.Log.Warn(missing)
	case missing == "" && f.missing != "":
		f.Log.Info("the interface of --pod-interface is there now", "interface", f.Interface)
	}
	f.missing = missing
}
