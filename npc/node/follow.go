package node

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// lookEvery is how often the uplinks are listed although no interface is said to change.
	lookEvery = 10 * time.Second
	// lookPause is the least time between two listings, however often interfaces change: a listing costs with every pod.
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
	// Found is called with the names of the uplinks whenever they are looked at.
	Found func(uplinks []string)
	Log   *slog.Logger

	missing, failing string
	uplinks          Uplinks
}

// Run follows until the context ends.
func (f *Follower) Run(ctx context.Context) error {
	changes := make(chan netlink.LinkUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribeWithOptions(changes, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}}); err != nil {
		f.Log.Warn("changes of interfaces are not reported by the kernel, looking for them instead", "every", lookEvery, "error", err)
		changes = nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f.Look()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookPause):
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
			for len(changes) > 0 {
				<-changes
			}
		case <-tick.C:
		}
	}
}

// Look looks once. An error leaves the uplinks as they were found before.
func (f *Follower) Look() {
	f.note(Missing(f.Interface))
	found, err := FindUplinks(f.Bridges(), f.Uplink)
	if err != nil {
		if f.failing == "" {
			f.Log.Warn("cannot tell the uplinks of the pods' bridge from pods' ports, trying again", "error", err)
		}
		f.failing = err.Error()
		return
	}
	f.failing = ""
	if !slices.Equal(found.Names, f.uplinks.Names) {
		f.Log.Info("the pods' bridge has other uplinks: what is behind them is no pod of this node", "uplinks", found.Names)
	}
	if len(found.Left) > 0 && !slices.Equal(found.Left, f.uplinks.Left) {
		f.Log.Warn("uplinks of the pods' bridge have names that iptables does not take, or are too many: what is behind them counts as pods",
			"ports", found.Left, "at_most", maxUplinks)
	}
	f.uplinks = found
	f.Found(found.Names)
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
