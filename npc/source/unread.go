package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// maxUnreadNamed is how many inputs the readiness names.
const maxUnreadNamed = 5

// unread lists the inputs that have not been read once, with the reasons. It may be used by several goroutines.
type unread struct {
	mu   sync.Mutex
	whys map[string]string // input -> why it has not been read, in words
}

func newUnread() *unread { return &unread{whys: map[string]string{}} }

// set adds an input; an empty reason removes it.
func (u *unread) set(input, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if why == "" {
		delete(u.whys, input)
		return
	}
	u.whys[input] = why
}

// update changes the reason of an input that has not been read.
func (u *unread) update(input, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.whys[input]; ok {
		u.whys[input] = why
	}
}

func (u *unread) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.whys)
}

// String returns the reasons in the order of their inputs, the first ones if there are many.
func (u *unread) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var texts []string
	for _, input := range slices.Sorted(maps.Keys(u.whys)) {
		if len(texts) == maxUnreadNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(u.whys)-maxUnreadNamed))
			break
		}
		texts = append(texts, u.whys[input])
	}
	return strings.Join(texts, "; ")
}

// noteUnread lists the files and directories that have never been read, each with its first problem. It returns those
// that it did not list before.
func (d *directory) noteUnread(s *scan, problems []problem) (appeared []string) {
	never := map[string]bool{}
	for path := range s.seen {
		f := d.files[path]
		never[path] = f == nil || !f.valid || f.fresh
	}
	for _, dir := range s.unreadable {
		never[dir] = !d.readOnce[dir]
	}
	for path := range d.neverRead {
		never[path] = never[path] || s.unknown(path)
	}
	maps.DeleteFunc(never, func(_ string, is bool) bool { return !is })
	whys := map[string]string{}
	for _, p := range problems {
		if never[p.path] && whys[p.path] == "" {
			whys[p.path] = "never read: " + p.Error()
		}
	}
	for path := range d.neverRead {
		if !never[path] {
			d.unread.set(path, "")
		}
	}
	for path := range never {
		if whys[path] == "" {
			whys[path] = path + ": was written a moment ago, and more of it may follow"
		}
		d.unread.set(path, whys[path])
		if !d.neverRead[path] {
			appeared = append(appeared, path)
		}
	}
	d.neverRead = never
	d.complete = d.complete || len(never) == 0
	return appeared
}

// dropVanished forgets files that exist no more. One that vanished when an unreadable one appeared may have been renamed
// to that: it stays in force until that has been read, or is gone too.
func (d *directory) dropVanished(s *scan, appeared []string) {
	for path, f := range d.files {
		switch {
		case s.seen[path]:
			f.goneWith = nil
			continue
		case s.unknown(path):
			continue
		case f.goneWith == nil:
			f.goneWith = appeared
		}
		if !slices.ContainsFunc(f.goneWith, func(p string) bool { return d.neverRead[p] }) {
			delete(d.files, path)
		}
	}
}
