package source

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weave-npc/weave-npc/npc"
)

const (
	// settle is how long nothing may happen before changes are read: an editor's save is several events.
	settle = 30 * time.Millisecond
	// settleAtMost is how long changes wait while others keep coming.
	settleAtMost = 300 * time.Millisecond
	// slowRescan is how often the directory is read without an event, for what inotify does not tell: network file
	// systems, targets of symbolic links.
	slowRescan = 10 * time.Second
	// pollRescan is how often it is read if there is no inotify.
	pollRescan = time.Second
	// firstPatience is how long the first reading waits for files that are just being written.
	firstPatience = 2 * time.Second
)

// follower reads the directory again when something changes below it.
type follower struct {
	*directory
	inotify *fsnotify.Watcher    // nil if there is none
	watched map[string][2]uint64 // directory -> device and inode
	refused map[string]bool      // directories that could not be watched
	dirty   map[string]bool      // paths that events have named
	all     bool                 // events were lost: any file may have changed
}

// follower returns what reads the directory and follows its changes.
func (d *directory) follower() *follower {
	f := &follower{directory: d, watched: map[string][2]uint64{}, refused: map[string]bool{}, dirty: map[string]bool{}}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn("no inotify, manifests are read every second", "err", err,
			"hint", "raise the sysctl fs.inotify.max_user_instances")
	} else {
		f.inotify = watcher
	}
	return f
}

// begin reads the directory for the first time, gives sink what it says and tells it what is missing.
func (f *follower) begin(ctx context.Context, sink Sink, node *nodeName) *progress {
	for _, kind := range []string{Namespaces, Pods, NetworkPolicies} {
		sink.SetConnected(kind, true)
	}
	deadline := time.Now().Add(firstPatience)
	result := f.read(true)
	for result.waiting && time.Now().Before(deadline) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(result.again):
		}
		result = f.read(true)
	}
	p := &progress{delivery: newDelivery(f.shelves, sink, f.log), sink: sink, directory: f.directory, node: node}
	p.run()
	sink.SetSynced()
	return p
}

// run reads the directory and follows its changes until ctx ends.
func (f *follower) run(ctx context.Context, sink Sink, node *nodeName) {
	p := f.begin(ctx, sink, node)
	var events <-chan fsnotify.Event
	var lost <-chan error
	period := pollRescan
	if f.inotify != nil {
		defer f.inotify.Close()
		events, lost, period = f.inotify.Events, f.inotify.Errors, f.every
	}
	slow := time.NewTicker(period)
	defer slow.Stop()
	due := time.NewTimer(settle)
	defer due.Stop()
	first := time.Time{} // of the events that are not read yet

	soon := func() {
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		due.Reset(min(settle, max(0, settleAtMost-now.Sub(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			f.dirty[event.Name] = true
			soon()
		case err := <-lost:
			f.log.Debug("inotify lost events, everything is read again", "err", err)
			f.all = true
			soon()
		case <-slow.C:
			due.Reset(0)
		case <-due.C:
			first = time.Time{}
			again := f.read(true).again
			p.run()
			if again > 0 {
				due.Reset(again)
			}
		}
	}
}

// read reads what has changed.
func (f *follower) read(patient bool) rescanned {
	dirty, all := f.dirty, f.all
	f.dirty, f.all = map[string]bool{}, false
	return f.rescan(rescanOptions{
		watch:   f.watch,
		force:   func(path string) bool { return all || dirty[path] },
		patient: patient,
		first:   !f.complete,
	})
}

// progress hands over what was read, and tells the sink what is missing.
type progress struct {
	*delivery
	sink      Sink
	directory *directory
	node      *nodeName
	told      npc.Missing
	empty     bool // the directory had no manifest
}

// run hands over what was read since the last call. What was missing is handed over before the sink is told that it is
// no more.
func (p *progress) run() {
	p.delivery.run()
	empty := len(p.directory.files) == 0
	if empty && !p.empty {
		p.log.Warn("no manifest is read: the directory has no file named *.yaml, *.yml or *.json", "path", p.directory.path)
	}
	p.empty = empty
	if p.directory.nodes[p.node.name] {
		p.node.confirm()
	}
	switch {
	case p.node.known():
	case empty:
		p.node.doubt(fmt.Sprintf("there is no manifest below %s, and so no Node and no pod with spec.nodeName %q",
			p.directory.path, p.node.name))
	default:
		p.node.doubt(fmt.Sprintf("no Node in the manifests is called %q and no pod has it as spec.nodeName", p.node.name))
	}
	missing := npc.NothingMissing
	switch {
	case !p.directory.complete:
		missing = npc.ObjectsMissing
	case !p.node.known():
		missing = npc.NodeMissing
	}
	if missing != p.told {
		p.told = missing
		p.sink.SetMissing(missing)
	}
}

// watch lets inotify tell of changes in dir, also if another directory has taken its name.
func (f *follower) watch(dir string) {
	if f.inotify == nil {
		return
	}
	info, err := os.Stat(dir)
	if err != nil {
		return // reading it fails too, and is reported
	}
	s := identify(info)
	id := [2]uint64{s.device, s.inode}
	if old, ok := f.watched[dir]; ok && old != id {
		_ = f.inotify.Remove(dir) // fails if the kernel has removed it already
	}
	if err := f.inotify.Add(dir); err != nil {
		if !f.refused[dir] {
			f.log.Warn("directory of manifests cannot be watched, it is read every 10 s", "path", dir, "err", err,
				"hint", "raise the sysctl fs.inotify.max_user_watches")
		}
		f.refused[dir] = true
		return
	}
	f.watched[dir] = id
}
