package directory

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// unsynced has the files and directories that exist and have never been read.
type unsynced struct {
	never    map[string]bool
	readOnce map[string]bool // directories that have been read
	complete bool            // everything that existed had been read at some time
}

func newUnsynced() unsynced { return unsynced{never: map[string]bool{}, readOnce: map[string]bool{}} }

// update follows a scan, and removes deleted files from those in force. It returns a reason for each path that has
// never been read, which is the first of its problems.
func (u *unsynced) update(s *scan, problems []manifest.Problem) map[string]string {
	never := u.find(s)
	reasons := map[string]string{}
	for _, p := range problems {
		if never[p.Path] && reasons[p.Path] == "" {
			reasons[p.Path] = "never read: " + p.Error()
		}
	}
	var appeared []string
	for path := range never {
		if reasons[path] == "" {
			reasons[path] = path + ": was written a moment ago, and more of it may follow"
		}
		if !u.never[path] {
			appeared = append(appeared, path)
		}
	}
	u.never = never
	u.complete = u.complete || len(never) == 0
	u.dropDeleted(s, appeared)
	return reasons
}

func (u *unsynced) find(s *scan) map[string]bool {
	never := map[string]bool{}
	for path := range s.seen {
		f := s.files[path]
		never[path] = f == nil || !f.valid || f.fresh
	}
	for _, dir := range s.readable {
		u.readOnce[dir] = true
	}
	for _, dir := range s.unreadable {
		never[dir] = !u.readOnce[dir]
	}
	for path := range u.never {
		never[path] = never[path] || s.isUnknown(path)
	}
	maps.DeleteFunc(never, func(_ string, is bool) bool { return !is })
	return never
}

// dropDeleted removes files that do not exist any more. A file that disappeared when others appeared may have been
// renamed to one of them: it stays in force until those have been read, or are gone too.
func (u *unsynced) dropDeleted(s *scan, appeared []string) {
	for path, f := range s.files {
		switch {
		case s.seen[path]:
			f.disappearedWith = nil
			continue
		case s.isUnknown(path):
			continue
		case f.disappearedWith == nil:
			f.disappearedWith = appeared
		}
		if !slices.ContainsFunc(f.disappearedWith, func(p string) bool { return u.never[p] }) {
			delete(s.files, path)
		}
	}
}
