package directory

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// scan is one walk through the directory.
type scan struct {
	timeout
	tree
	limits
	files map[string]*file // by path; the scan changes those that have changed
	parse func(path string, data []byte) manifest.File
	watch func(dir string)       // is called before a directory is read; nil if there is no watch
	force func(path string) bool // reports whether to read a file although its stamp is the same; nil if none is

	torn       bool              // something was deleted after it was listed
	seen       map[string]bool   // manifests that exist
	visited    map[fileID]string // directories by their identity, where the system has one
	others     []visited         // directories elsewhere
	full       bool              // one of the limits is exceeded
	read       limits            // what has been read
	hidden     skipped
	links      skipped  // that cannot be followed
	readable   []string // directories
	unreadable []string // directories
	problems   []manifest.Problem
}

// visited is a directory that a scan has come to.
type visited struct {
	path string
	info fs.FileInfo
}

// maxWalks is how often a scan starts again because something was deleted after it was listed.
const maxWalks = 5

// run walks through the directory until nothing is deleted meanwhile: what does may have been removed, or the whole
// directory with it, whose files stay in force. They also do if no walk is calm, or if there is too much to read.
func (s *scan) run() {
	for range maxWalks {
		s.torn, s.seen, s.readable, s.unreadable, s.problems = false, map[string]bool{}, nil, nil, nil
		s.visited, s.others, s.full, s.read = map[fileID]string{}, nil, false, limits{}
		s.hidden, s.links = skipped{}, skipped{}
		s.readDirectory(s.path)
		if s.full {
			s.unreadable = append(s.unreadable, s.path)
		}
		if s.full || !s.torn {
			return
		}
	}
	s.refuse(s.path, errors.New("files vanish all the time while it is read"))
	s.unreadable = append(s.unreadable, s.path)
}

// exceeds ends the scan if it has read more than a limit allows.
func (s *scan) exceeds() bool {
	if s.full {
		return true
	}
	for _, l := range []struct {
		read, most int64
		what       string
	}{
		{int64(s.read.names), int64(s.names), "files and directories"},
		{int64(s.read.manifests), int64(s.manifests), "manifests"},
		{s.read.bytes, s.bytes, "bytes of manifests"},
	} {
		if l.read > l.most {
			s.refuse(s.path, errors.Errorf("has more than %d %s; name a part of it", l.most, l.what))
			s.full = true
			return true
		}
	}
	return false
}

// sameAs returns the path under which a directory has been read before; empty if it has not. It may have several
// because of links.
func (s *scan) sameAs(dir string, info fs.FileInfo) string {
	if id, _ := identify(info); id != (fileID{}) {
		first := s.visited[id]
		if first == "" {
			s.visited[id] = dir
		}
		return first
	}
	same := func(v visited) bool { return os.SameFile(v.info, info) }
	if i := slices.IndexFunc(s.others, same); i >= 0 {
		return s.others[i].path
	}
	s.others = append(s.others, visited{dir, info})
	return ""
}

// isUnknown reports whether path may still exist, in a directory that cannot be read.
func (s *scan) isUnknown(path string) bool {
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
	s.problems = append(s.problems, manifest.Problem{Path: path, Text: text})
}

func (s *scan) readDirectory(dir string) {
	info, err := s.stat(dir)
	if err == nil {
		if first := s.sameAs(dir, info); first != "" {
			s.refuse(dir, errors.Errorf("is the same directory as %s, which is read", first))
			return
		}
		if s.watch != nil {
			s.watch(dir)
		}
	}
	entries, err := s.list(dir, s.names-s.read.names)
	if err != nil {
		if dir != s.path && errors.Is(err, fs.ErrNotExist) {
			s.torn = true
			return
		}
		s.refuse(dir, err)
		s.unreadable = append(s.unreadable, dir)
		return
	}
	s.readable = append(s.readable, dir)
	if s.read.names += len(entries); s.exceeds() {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !strings.HasPrefix(entry.Name(), ".") {
			s.readEntry(path, entry)
		} else if entry.Name() != ".git" && (!entry.Type().IsRegular() || manifest.IsName(path)) {
			s.hidden.add(s.name(path))
		}
	}
}

func (s *scan) readEntry(path string, entry fs.DirEntry) {
	if s.full {
		return
	}
	info, err := s.stat(path)
	isLink := entry.Type()&fs.ModeSymlink != 0
	switch {
	case err == nil && info.IsDir():
		if s.read.depth++; s.read.depth > s.depth {
			s.refuse(path, errors.Errorf("is below more than %d directories", s.depth))
		} else {
			s.readDirectory(path)
		}
		s.read.depth--
	case !manifest.IsName(path):
		if err != nil && isLink {
			s.links.add(s.name(path))
		}
	case err == nil && info.Mode().IsRegular():
		s.readFile(path)
	case err == nil:
		s.seen[path] = true
		s.refuse(path, errors.New("is no regular file"))
	case errors.Is(err, fs.ErrNotExist) && !isLink:
		s.torn = true
	case isLink && s.root != nil:
		s.seen[path] = true
		s.refuse(path, errors.Errorf("is a link that cannot be followed within %s", s.path))
	default:
		s.seen[path] = true
		s.refuse(path, err)
	}
}

// readFile reads a file if it has changed, and puts it in force if it can be used.
func (s *scan) readFile(path string) {
	s.seen[path] = true
	before := s.files[path]
	handle, err := s.open(path)
	if err != nil {
		s.torn = s.torn || errors.Is(err, fs.ErrNotExist)
		s.refuse(path, err)
		return
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		s.refuse(path, err)
		return
	}
	if !info.Mode().IsRegular() { // since just now
		s.refuse(path, errors.New("is no regular file"))
		return
	}
	now := stampOf(info)
	s.read.manifests++
	if s.read.bytes += min(now.size, manifest.MaxSize); s.exceeds() {
		return
	}
	fresh := s.mayGrow(now, before)
	if before != nil {
		before.fresh = fresh
	}
	if !s.isChanged(path, now, before) {
		return
	}
	data, ok := s.readChanged(path, handle, now, before)
	if !ok {
		return
	}
	sum := sha256.Sum256(data)
	if before != nil && before.sum == sum {
		before.stamp = now
		return
	}
	parsed := s.parse(path, data)
	if s.patient && s.isBeingTruncated(now, before, parsed.Objects) {
		s.readNextTime(before)
		return
	}
	after := newFile(path, before, parsed)
	after.stamp, after.sum, after.fresh = now, sum, fresh
	if len(parsed.Problems) == 0 {
		after.Modified = metav1.NewTime(info.ModTime().Truncate(time.Second))
	}
	s.files[path] = after
}

// isChanged reports whether a file has another stamp than before, or has to be read anyway.
func (s *scan) isChanged(path string, now stamp, before *file) bool {
	return before == nil || before.stamp != now || s.force != nil && s.force(path)
}

// readChanged returns the content of a file, unless the file is too big, cannot be read, or is just being written.
func (s *scan) readChanged(path string, handle *os.File, now stamp, before *file) (data []byte, ok bool) {
	if s.patient && s.isBeingWritten(now, before) {
		s.waiting = true
		s.readNextTime(before)
		return nil, false
	}
	if now.size > manifest.MaxSize {
		s.refuse(path, errors.Errorf("has %d bytes, more than %d; split it", now.size, manifest.MaxSize))
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(handle, manifest.MaxSize))
	if err != nil {
		s.refuse(path, err)
		return nil, false
	}
	if info, err := handle.Stat(); err == nil && s.patient && stampOf(info) != now {
		s.waiting = true
		s.lookAgainIn(debounce)
		s.readNextTime(before)
		return nil, false
	}
	return data, true
}

// readNextTime makes the next scan read a file even if its stamp stays the same.
func (s *scan) readNextTime(f *file) {
	if f != nil {
		f.stamp.modified = 0
	}
}
