package source

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scan is one walk through the directory.
type scan struct {
	*directory
	options    rescanOptions
	seen       map[string]bool      // manifests that exist
	visited    map[[2]uint64]string // device and inode of a directory -> its path
	unreadable []string             // directories
	problems   []problem
	waiting    bool          // a file was not read because it is just being written
	again      time.Duration // until files that are just being written should be read; 0 if there are none
}

// unknown says that we cannot tell whether path still exists.
func (s *scan) unknown(path string) bool {
	return slices.ContainsFunc(s.unreadable, func(dir string) bool {
		return strings.HasPrefix(path, dir+string(filepath.Separator))
	})
}

func (s *scan) refuse(path string, err error) {
	text := err.Error()
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		text = pathError.Op + ": " + pathError.Err.Error()
	}
	s.problems = append(s.problems, problem{path: path, text: text})
}

func (s *scan) readDirectory(dir string) {
	info, err := os.Stat(dir)
	if err == nil {
		id := identify(info)
		if first, ok := s.visited[[2]uint64{id.device, id.inode}]; ok {
			s.refuse(dir, errors.Errorf("is the same directory as %s, which is read", first))
			return
		}
		s.visited[[2]uint64{id.device, id.inode}] = dir
		if s.options.watch != nil {
			s.options.watch(dir)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if dir != s.path && errors.Is(err, fs.ErrNotExist) {
			return // removed meanwhile
		}
		s.refuse(dir, err)
		s.unreadable = append(s.unreadable, dir)
		return
	}
	s.readOnce[dir] = true
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			s.readDirectory(path)
		case !isManifest(path):
		case err == nil && info.Mode().IsRegular():
			s.readFile(path)
		case err == nil:
			s.seen[path] = true
			s.refuse(path, errors.New("is no regular file"))
		case errors.Is(err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0:
			// Removed meanwhile.
		default:
			s.seen[path] = true
			s.refuse(path, err)
		}
	}
}

func isManifest(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func identify(info fs.FileInfo) stamp {
	id := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode, id.status = sys.Dev, sys.Ino, sys.Ctim.Nano()
	}
	return id
}

// beingWritten reports whether a file has changed a moment ago, and sees to it that it is read later.
func (s *scan) beingWritten(now stamp, before *file) bool {
	quiet := settle
	if now.inPlaceOf(before) || s.options.first && !now.renamed() {
		quiet = inPlaceFor
	}
	return s.youngerThan(quiet, now)
}

// beingTruncated reports whether a file lacks something since a moment ago, and sees to it that it is read later.
func (s *scan) beingTruncated(now stamp, before *file, said []object) bool {
	if !now.inPlaceOf(before) {
		return false
	}
	says := map[string]bool{}
	for _, o := range said {
		says[o.String()] = true
	}
	lacks := func(o object) bool { return !says[o.String()] }
	return slices.ContainsFunc(before.inForce, lacks) && s.youngerThan(truncatedFor, now)
}

// mayGrow reports whether a file that nothing is known of was written so shortly ago that the rest of it may be on its
// way, and sees to it that it is looked at later.
func (s *scan) mayGrow(now stamp, before *file) bool {
	unknown := before == nil && s.options.first || before != nil && before.fresh
	return unknown && s.options.patient && !now.renamed() && s.youngerThan(truncatedFor, now)
}

// renamed reports whether the file got its name, or its mode, after its content: it is complete.
func (now stamp) renamed() bool { return now.status > now.modified }

// youngerThan says that a file was written within a time, and sees to it that it is read after that.
func (s *scan) youngerThan(quiet time.Duration, now stamp) bool {
	age := time.Since(time.Unix(0, now.modified))
	if age < 0 || age >= quiet {
		return false
	}
	s.waitFor(quiet - age)
	return true
}

// inPlaceOf says whether this is the file that was read before, written anew.
func (now stamp) inPlaceOf(before *file) bool {
	return before != nil && now.device == before.stamp.device && now.inode == before.stamp.inode
}

// forget sees to it that the next scan reads the file, even if its stamp stays the same.
func (s *scan) forget(f *file) {
	if f != nil {
		f.stamp.modified = 0
	}
}

func (s *scan) waitFor(d time.Duration) {
	if s.again == 0 || d < s.again {
		s.again = d
	}
}

// readFile takes what a file says now, if that has changed. What cannot be used leaves in force what it said before.
func (s *scan) readFile(path string) {
	s.seen[path] = true
	before := s.files[path]
	handle, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		s.refuse(path, err)
		return
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		s.refuse(path, err)
		return
	}
	now := identify(info)
	fresh := s.mayGrow(now, before)
	if before != nil {
		before.fresh = fresh
	}
	forced := s.options.force != nil && s.options.force(path)
	if before != nil && before.stamp == now && !forced {
		return
	}
	if s.options.patient && s.beingWritten(now, before) {
		s.waiting = true
		s.forget(before)
		return
	}
	if now.size > maxManifestSize {
		s.refuse(path, errors.Errorf("has %d bytes, more than %d; split it", now.size, maxManifestSize))
		return
	}
	data, err := io.ReadAll(io.LimitReader(handle, maxManifestSize))
	if err != nil {
		s.refuse(path, err)
		return
	}
	if info, err := handle.Stat(); err == nil && s.options.patient && identify(info) != now {
		s.waiting = true
		s.waitFor(settle)
		s.forget(before)
		return
	}
	sum := sha256.Sum256(data)
	if before != nil && before.sum == sum {
		before.stamp = now
		return
	}
	said := parseManifest(path, data)
	if s.options.patient && s.beingTruncated(now, before, said.objects) {
		s.forget(before)
		return
	}
	s.files[path] = newFile(before, said)
	after := s.files[path]
	after.stamp, after.sum, after.fresh = now, sum, fresh
	if after.valid && len(said.problems) == 0 {
		after.modified = metav1.NewTime(info.ModTime().Truncate(time.Second))
	}
}

// newFile returns what a file says now, or said when it was last valid.
func newFile(before *file, said *manifest) *file {
	if len(said.problems) == 0 {
		return &file{inForce: said.objects, ignored: said.ignored, nodes: said.nodes, valid: true}
	}
	after := &file{problems: said.problems}
	if before != nil {
		after.inForce, after.ignored, after.nodes = before.inForce, before.ignored, before.nodes
		after.valid, after.modified = before.valid, before.modified
	}
	return after
}
