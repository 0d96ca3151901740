package source

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	maxManifestSize = 16 << 20 // bytes
	// maxReported is how many problems of one file are logged at a time.
	maxReported = 20
	// A file that is written in place, and not replaced by another, is read when nothing was written for inPlaceFor; what it then
	// lacks of what it said before is missing only after truncatedFor: the rest may be on its way.
	inPlaceFor   = 200 * time.Millisecond
	truncatedFor = time.Second
)

// FromManifests returns the source that reads the manifests below dir and follows their changes. Files named *.yaml,
// *.yml and *.json count, hidden ones and those in hidden directories do not. A file that cannot be used is reported,
// and what it said before stays in force, whole. Without a node's name, nobody asks whether the node exists. The error
// says that dir cannot be read.
func FromManifests(dir, node string, log *slog.Logger) (Source, error) {
	d, err := newDirectory(dir, log)
	if err != nil {
		return Source{}, err
	}
	missing := newUnread()
	d.unread = missing
	return Source{dir: d, unread: missing, node: newNodeName(node, missing)}, nil
}

// directory keeps what the manifests below a directory say.
type directory struct {
	path    string
	log     *slog.Logger
	shelves map[string]*shelf // kind -> its objects
	files   map[string]*file  // path -> what it says
	// reported are the problems that have been logged and still exist.
	reported map[revision]bool
	bad      atomic.Int64 // paths that have problems
	ignored  atomic.Int64 // objects of kinds that are not used
	kinds    ignoredKinds // that have been logged
	counted  bool         // that the first scan has been logged
	// unread are the files and directories that have never been read; neverRead are the same.
	unread    *unread
	neverRead map[string]bool
	// complete says that everything that there was has been read.
	complete bool
	// readOnce are directories that have been read.
	readOnce map[string]bool
	// nodes are the names of all Nodes.
	nodes map[string]bool
	// every is how often the directory is read without an event.
	every time.Duration
}

// file is what we know of one manifest.
type file struct {
	stamp    stamp
	sum      [sha256.Size]byte
	modified metav1.Time
	inForce  []object       // what it said when it was last valid
	problems []problem      // of what it says now
	ignored  map[string]int // kind that is not used -> objects of it in what is in force
	nodes    []string       // names of the Nodes in what is in force
	valid    bool           // that it has been, once
	fresh    bool           // that it was read for the first time so soon after a write that more may follow
	goneWith []string       // the unread files that appeared when this one vanished: one of them may be this one
}

// stamp tells versions of a file apart without reading it.
type stamp struct {
	device, inode    uint64
	size             int64
	modified, status int64 // nanoseconds
}

// revision is a problem of one version of a file.
type revision struct {
	problem
	sum [sha256.Size]byte
}

func newDirectory(path string, log *slog.Logger) (*directory, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.Errorf("manifests directory %s does not exist; make it, or name another one", path)
	case err != nil:
		return nil, errors.Wrap(err, "manifests directory cannot be read")
	case !info.IsDir():
		return nil, errors.Errorf("manifests directory %s is no directory; name the one that holds the files", path)
	}
	if _, err := os.ReadDir(path); err != nil {
		return nil, errors.Wrap(err, "manifests directory cannot be read")
	}
	return &directory{
		path: filepath.Clean(path),
		log:  log,
		shelves: map[string]*shelf{
			kindNamespace: newShelf(), kindPod: newShelf(), kindNetworkPolicy: newShelf(),
		},
		files:     map[string]*file{},
		reported:  map[revision]bool{},
		unread:    newUnread(),
		neverRead: map[string]bool{},
		readOnce:  map[string]bool{},
		every:     slowRescan,
	}, nil
}

// rescanOptions says how to read the directory.
type rescanOptions struct {
	watch   func(dir string)       // called before a directory is read, or nil
	force   func(path string) bool // read the file even if its stamp has not changed, or nil
	patient bool                   // leave files that are just being written for the next time
	first   bool                   // nothing is known of what files said before: be as patient with new files as with old ones
}

// rescanned is what came of it.
type rescanned struct {
	problems []problem
	again    time.Duration // when to read again files that are just being written; 0 if there are none
	waiting  bool          // files were left for the next time
}

// rescan reads what has changed below the directory, puts it in force and reports what cannot be.
func (d *directory) rescan(options rescanOptions) rescanned {
	s := scan{directory: d, options: options, seen: map[string]bool{}, visited: map[[2]uint64]string{}}
	s.readDirectory(d.path)
	problems := s.problems
	for path := range s.seen {
		if f := d.files[path]; f != nil {
			problems = append(problems, f.problems...)
		}
	}
	sortProblems(problems)
	d.dropVanished(&s, d.noteUnread(&s, problems))
	for path, f := range d.files {
		if !s.seen[path] {
			problems = append(problems, f.problems...)
		}
	}
	problems = append(problems, d.publish()...)
	sortProblems(problems)
	d.report(problems)
	return rescanned{problems: problems, again: s.again, waiting: s.waiting}
}

func sortProblems(problems []problem) {
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line))
	})
}

// report logs the problems that are new, and the paths that have none any more.
func (d *directory) report(problems []problem) {
	before := map[string]bool{}
	for r := range d.reported {
		before[r.path] = true
	}
	reported := map[revision]bool{}
	logged := map[string]int{} // path -> new problems
	for _, p := range problems {
		r := revision{problem: p}
		if f := d.files[p.path]; f != nil {
			r.sum = f.sum
		}
		reported[r] = true
		if d.reported[r] {
			continue
		}
		if logged[p.path]++; logged[p.path] <= maxReported {
			d.log.Error(p.Error())
		}
	}
	for path, n := range logged {
		if n > maxReported {
			d.log.Error(fmt.Sprintf("%s: and %d problems more", path, n-maxReported))
		}
	}
	bad := map[string]bool{}
	for r := range reported {
		bad[r.path] = true
	}
	for path := range before {
		if !bad[path] && d.files[path] != nil {
			d.log.Info("manifest is in force again", "path", path)
		}
	}
	d.reported = reported
	d.bad.Store(int64(len(bad)))
}
