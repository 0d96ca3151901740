package directory

import (
	"crypto/sha256"
	"fmt"
	"log/slog"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// maxReported limits the problems of one file that are logged at a time.
const maxReported = 20

// revision is a problem of one version of a file.
type revision struct {
	manifest.Problem
	sum [sha256.Size]byte
}

// reporter logs problems once.
type reporter struct {
	log      *slog.Logger
	reported map[revision]bool // problems that have been logged and still exist
}

// report logs the problems that are new, and the files that have none any more. It returns the number of paths with
// problems.
func (r *reporter) report(files map[string]*file, problems []manifest.Problem) (bad int) {
	before := pathsOf(r.reported)
	reported := map[revision]bool{}
	logged := map[string]int{} // path -> new problems
	for _, p := range problems {
		v := revision{Problem: p}
		if f := files[p.Path]; f != nil {
			v.sum = f.sum
		}
		reported[v] = true
		if r.reported[v] {
			continue
		}
		if logged[p.Path]++; logged[p.Path] <= maxReported {
			r.log.Error(p.Error())
		}
	}
	for path, n := range logged {
		if n > maxReported {
			r.log.Error(fmt.Sprintf("%s: and %d problems more", path, n-maxReported))
		}
	}
	after := pathsOf(reported)
	for path := range before {
		if !after[path] && files[path] != nil {
			r.log.Info("manifest is in force again", "path", path)
		}
	}
	r.reported = reported
	return len(after)
}

func pathsOf(revisions map[revision]bool) map[string]bool {
	paths := map[string]bool{}
	for r := range revisions {
		paths[r.Path] = true
	}
	return paths
}
