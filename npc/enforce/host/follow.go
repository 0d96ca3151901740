package host

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

const (
	// lookEvery is the period of looks without reported changes.
	lookEvery = 10 * time.Second
	// lookPause is the minimum time between two looks: the cost of a look grows with the number of pods.
	lookPause = 200 * time.Millisecond
)

// BridgeFollower follows the pods' interface and the uplinks of the pods' bridges.
type BridgeFollower struct {
	// Interface is the name that is passed to Missing; it may be empty.
	Interface string
	// Bridges returns the current names of the pods' bridges.
	Bridges func() []string
	// Uplink is the name of a port that is always an uplink; it may be empty.
	Uplink string
	// Found is called with the uplinks whenever they have changed.
	Found func(Uplinks)
	Log   *slog.Logger

	finder           finder
	missing, failing string
	uplinks          Uplinks
}

// Run follows the interface and the uplinks until the context ends.
func (f *BridgeFollower) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		following, stop := context.WithCancel(ctx)
		changes, err := subscribe(following, stop)
		if err != nil {
			f.Log.Warn("the kernel does not report changes of interfaces, neighbours and routes, "+
				"polling for them instead",
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

// subscribe returns a channel that receives a value after changes of interfaces, neighbours and routes, until the
// context ends. It calls stop when the kernel stops to report changes, for example after too many at once.
func subscribe(ctx context.Context, stop func()) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	links, neighbours, routes := make(chan netlink.LinkUpdate), make(chan netlink.NeighUpdate),
		make(chan netlink.RouteUpdate)
	ignore := func(error) {}
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(),
		netlink.LinkSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return changes, errors.Wrap(err, "following the interfaces of this node")
	}
	go pass(links, changes, stop)
	if err := netlink.NeighSubscribeWithOptions(neighbours, ctx.Done(),
		netlink.NeighSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return changes, errors.Wrap(err, "following the neighbours of this node")
	}
	go pass(neighbours, changes, stop)
	if err := netlink.RouteSubscribeWithOptions(routes, ctx.Done(),
		netlink.RouteSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return changes, errors.Wrap(err, "following the routes of this node")
	}
	go pass(routes, changes, stop)
	return changes, nil
}

// pass sends to changes after each update, and calls ended when from is closed.
func pass[T any](from <-chan T, changes chan<- struct{}, ended func()) {
	defer ended()
	for range from {
		select {
		case changes <- struct{}{}:
		default: // a look is due already
		}
	}
}

// Look updates the uplinks once. After an error the previous ones stay.
func (f *BridgeFollower) Look() {
	f.note(Missing(f.Interface))
	found, err := f.finder.find(f.Bridges(), f.Uplink)
	if err != nil {
		if f.failing == "" {
			f.Log.Warn("cannot distinguish the uplinks of the pods' bridge from pods' ports, trying again", "err", err)
		}
		f.failing = err.Error()
		return
	}
	f.failing = ""
	if found.equal(f.uplinks) {
		return
	}
	if !slices.Equal(found.Names, f.uplinks.Names) {
		f.Log.Info("the pods' bridge has other uplinks: what is behind them is no pod of this node",
			"uplinks", found.Names)
	}
	if len(found.Left) > 0 && !slices.Equal(found.Left, f.uplinks.Left) {
		f.Log.Warn("uplinks of the pods' bridge have names that iptables does not take, or are too many: "+
			"what is behind them counts as pods",
			"ports", found.Left, "at_most", maxUplinks)
	}
	f.uplinks = found
	f.Found(found)
}

// note logs that the pods' interface is missing, or no longer missing.
func (f *BridgeFollower) note(missing string) {
	switch {
	case missing != "" && f.missing == "":
		f.Log.Warn(missing)
	case missing == "" && f.missing != "":
		f.Log.Info("the interface of --pod-interface is there now", "interface", f.Interface)
	}
	f.missing = missing
}
