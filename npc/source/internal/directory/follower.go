package directory

import (
	"context"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

const (
	// debounceLimit is how long changes wait while others keep coming.
	debounceLimit = 300 * time.Millisecond
	// slowRescan is the period at which the directory is read without an event, because of changes without events: on
	// network file systems, or of a symbolic link's target.
	slowRescan = 10 * time.Second
	// pollRescan is the period without inotify.
	pollRescan = time.Second
)

// Follower reads a directory again whenever something has changed below it.
type Follower struct {
	*Directory
	inotify *fsnotify.Watcher // nil if there is none
	watched map[string]fileID // directory -> what was watched under its name
	refused map[string]bool   // directories that could not be watched

	dirty map[string]bool // paths of events since the last reading
	all   bool            // events were lost: any file may have changed

	every time.Duration // period of reading without an event
	first time.Time     // time of the first event since the last reading; zero if there was none
	due   *time.Timer   // fires when to read; nil before the first Wait
	slow  *time.Ticker  // fires when to read without an event
}

// Follow returns a follower of the directory, which has to be closed.
func (d *Directory) Follow() *Follower {
	f := &Follower{Directory: d, watched: map[string]fileID{}, refused: map[string]bool{}, dirty: map[string]bool{},
		every: pollRescan}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn("no inotify, manifests are read every second", "err", err,
			"hint", "raise the sysctl fs.inotify.max_user_instances")
	} else {
		f.inotify, f.every = watcher, slowRescan
	}
	return f
}

// Close stops following.
func (f *Follower) Close() {
	if f.inotify != nil {
		f.inotify.Close()
	}
	if f.due != nil {
		f.due.Stop()
		f.slow.Stop()
	}
}

// Read reads what has changed, except for files that are just being written.
func (f *Follower) Read() Result {
	dirty, all := f.dirty, f.all
	f.dirty, f.all = map[string]bool{}, false
	return f.read(&scan{parse: manifest.Parse, timeout: timeout{patient: true}, watch: f.watch,
		force: func(path string) bool { return all || dirty[path] }})
}

// Wait waits until the directory should be read again: when there were no changes for a while, periodically, and after
// the time again, unless that is 0. It reports false when ctx has ended.
func (f *Follower) Wait(ctx context.Context, again time.Duration) bool {
	f.arm(again)
	var events <-chan fsnotify.Event
	var lost <-chan error
	if f.inotify != nil {
		events, lost = f.inotify.Events, f.inotify.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case event := <-events:
			f.dirty[event.Name] = true
			f.readSoon()
		case err := <-lost:
			f.log.Debug("inotify lost events, everything is read again", "err", err)
			f.all = true
			f.readSoon()
		case <-f.slow.C:
			f.due.Reset(0)
		case <-f.due.C:
			f.first = time.Time{}
			return true
		}
	}
}

// arm sets the timers. The first time, it makes sure that changes during the first reading are not missed.
func (f *Follower) arm(again time.Duration) {
	switch {
	case f.due == nil:
		f.slow, f.due = time.NewTicker(f.every), time.NewTimer(debounce)
	case again > 0:
		f.due.Reset(again)
	}
}

// readSoon makes the directory be read when nothing more happens for a while.
func (f *Follower) readSoon() {
	now := time.Now()
	if f.first.IsZero() {
		f.first = now
	}
	f.due.Reset(min(debounce, max(0, debounceLimit-now.Sub(f.first))))
}

// watch makes inotify report changes in dir, also if another directory has taken its name.
func (f *Follower) watch(dir string) {
	if f.inotify == nil {
		return
	}
	info, err := os.Stat(dir)
	if err != nil {
		return // reading it fails too, and is reported
	}
	id := stampOf(info).fileID
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
