package directory

import (
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Nothing marks the end of a write. A file that is replaced by another one under its name is complete. One that is
// written in place is read when nothing was written for inPlaceFor; objects that it then lacks count as removed only
// after truncatedFor: the rest may be on its way.
const (
	// debounce is how long nothing may happen before changes are read: an editor's save is several events.
	debounce     = 30 * time.Millisecond
	inPlaceFor   = 200 * time.Millisecond
	truncatedFor = time.Second
)

// timeout decides which files to leave for later, and when that is.
type timeout struct {
	patient bool // leave files that are just being written for the next time
	first   bool // files may have been in force before this process: wait for new ones as long as for known ones

	waiting bool          // a file was not read
	again   time.Duration // 0 if there are no such files
}

// lookAgainIn makes sure that the directory is read again after a time.
func (p *timeout) lookAgainIn(d time.Duration) {
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// isYounger reports whether a file was last written less than a time ago. If so, it is looked at again after that time.
func (p *timeout) isYounger(now stamp, quiet time.Duration) bool {
	age := time.Since(time.Unix(0, now.modified))
	if age < 0 || age >= quiet {
		return false
	}
	p.lookAgainIn(quiet - age)
	return true
}

// isBeingWritten reports whether a file has changed so recently that it may be incomplete. It is then looked at again
// later.
func (p *timeout) isBeingWritten(now stamp, before *file) bool {
	quiet := debounce
	if now.isInPlaceOf(before) || p.first && !now.isRenamed() {
		quiet = inPlaceFor
	}
	return p.isYounger(now, quiet)
}

// isBeingTruncated reports whether a file has lost objects so recently that they may come back. It is then looked at
// again later.
func (p *timeout) isBeingTruncated(now stamp, before *file, objects []manifest.Object) bool {
	if !now.isInPlaceOf(before) {
		return false
	}
	has := map[string]bool{}
	for _, o := range objects {
		has[o.String()] = true
	}
	isLost := func(o manifest.Object) bool { return !has[o.String()] }
	return slices.ContainsFunc(before.Objects, isLost) && p.isYounger(now, truncatedFor)
}

// mayGrow reports whether a file that is read for the first time was written so recently that the rest of it may be on
// its way. It is then looked at again later.
func (p *timeout) mayGrow(now stamp, before *file) bool {
	isNew := before == nil && p.first || before != nil && before.fresh
	return isNew && p.patient && !now.isRenamed() && p.isYounger(now, truncatedFor)
}
