// Package directory follows the manifest files below a directory, and merges their objects.
//
// It decides which files to read and when: it waits for files that are being written, and keeps in force what a file
// lost or broke while another process was writing it.
//
//	Follower.Wait ─▶ Follower.Read ─▶ scan: which files exist, which have changed, which to leave for later (timeout)
//	     ▲                                │
//	  inotify                             ▼
//	                       Result: files in force, problems, paths that were never read
//	                                      │
//	              Store.Replace: one object of each name ─▶ Store.Take: new, changed and removed objects
//
// Reading knows one file at a time: two files with the same object are the Store's business. The Store knows neither
// the file system nor who takes the updates.
package directory

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Directory is a directory of manifests. Files named *.yaml, *.yml and *.json count, also in directories below it;
// hidden files, and those in hidden directories, do not. A file that cannot be used is reported, and its last valid
// content stays in force, whole. A Directory is used by one goroutine.
type Directory struct {
	path     string
	limits   limits
	log      *slog.Logger
	files    map[string]*file // by path
	unsynced unsynced
	reporter reporter
}

// Result is the state of the directory after it was read.
type Result struct {
	// Files are those in force, in the order of their paths.
	Files []File
	// Problems are those of all files and directories, in the order of their paths and lines.
	Problems []manifest.Problem
	// Unsynced has a reason for each file and directory that has never been read.
	Unsynced map[string]string
	// Complete reports whether everything that existed had been read at some time.
	Complete bool
	// Waiting reports whether files that were just being written have been left for the next time.
	Waiting bool
	// Skipped are sentences about what a directory that is read once has, and what is not read.
	Skipped []string
	// Again is when to read the directory again, because of files that were just being written; 0 if there are none.
	Again time.Duration
}

// Open returns a directory without reading its files. It fails if the directory itself cannot be read.
func Open(path string, log *slog.Logger) (*Directory, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.Errorf("manifests directory %s does not exist; make it, or name another one", path)
	case err != nil:
		return nil, errors.Wrap(err, "manifests directory cannot be read")
	case !info.IsDir():
		return nil, errors.Errorf("manifests directory %s is no directory; name the one that holds the files", path)
	}
	if _, err := (tree{}).list(path, 0); err != nil {
		return nil, errors.Wrap(err, "manifests directory cannot be read")
	}
	return &Directory{path: filepath.Clean(path), limits: defaultLimits(), log: log, files: map[string]*file{},
		unsynced: newUnsynced(), reporter: reporter{log: log}}, nil
}

// Read reads the files as they are now, also those that are just being written. Each is parsed by parse, such as
// manifest.Parse. Another user may have put anything there: links that lead out of the directory are not followed.
func (d *Directory) Read(parse func(path string, data []byte) manifest.File) (Result, error) {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return Result{}, errors.Wrap(err, "reading manifests")
	}
	defer func() { _ = root.Close() }()
	s := &scan{parse: parse, tree: tree{root: root}}
	result := d.read(s)
	if s.hidden.count > 0 {
		result.Skipped = append(result.Skipped, fmt.Sprintf("hidden names below %s are not read: %s", spelling.Escape(d.path), &s.hidden))
	}
	if s.links.count > 0 {
		result.Skipped = append(result.Skipped, fmt.Sprintf("links below %s are not read that lead out of it or nowhere: %s",
			spelling.Escape(d.path), &s.links))
	}
	return result, nil
}

// read reads what has changed since the last time.
func (d *Directory) read(s *scan) Result {
	s.files, s.first = d.files, !d.unsynced.complete
	s.path, s.limits = d.path, d.limits
	s.run()
	problems := s.problems
	for path := range s.seen {
		if f := d.files[path]; f != nil {
			problems = append(problems, f.problems...)
		}
	}
	manifest.SortProblems(problems)
	reasons := d.unsynced.update(s, problems)
	for path, f := range d.files {
		if !s.seen[path] {
			problems = append(problems, f.problems...)
		}
	}
	manifest.SortProblems(problems)
	return Result{Files: d.inForce(), Problems: problems, Unsynced: reasons,
		Complete: d.unsynced.complete, Waiting: s.waiting, Again: s.again}
}

func (d *Directory) inForce() []File {
	files := make([]File, 0, len(d.files))
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		files = append(files, d.files[path].File)
	}
	return files
}

// Report logs the problems that are new, and the files that have none any more. The problems are all that there are
// now. It returns the number of paths with problems.
func (d *Directory) Report(problems []manifest.Problem) (bad int) {
	return d.reporter.report(d.files, problems)
}
