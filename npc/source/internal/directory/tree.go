package directory

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// limits bound what one scan reads.
type limits struct {
	names     int // of files and directories
	manifests int
	bytes     int64 // of manifests
	depth     int   // of directories
}

func defaultLimits() limits {
	return limits{names: 1_000_000, manifests: 100_000, bytes: 512 << 20, depth: 100}
}

// tree opens what is below a directory, never to wait: a FIFO may have been put in the place of a file.
type tree struct {
	path string
	root *os.Root // nil if links are followed wherever they lead
}

func (t tree) stat(path string) (fs.FileInfo, error) {
	if t.root == nil {
		return os.Stat(path)
	}
	return t.root.Stat(t.name(path))
}

func (t tree) open(path string) (*os.File, error) {
	if t.root == nil {
		return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	return t.root.OpenFile(t.name(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// name returns a path from the directory on.
func (t tree) name(path string) string {
	name, err := filepath.Rel(t.path, path)
	if err != nil {
		return path // which leads out of the directory, and is refused
	}
	return name
}

// list returns the entries of a directory in the order of their names, as many as a limit allows and one more.
func (t tree) list(dir string, most int) (entries []fs.DirEntry, err error) {
	const atOnce = 1000
	handle, err := t.open(dir)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	for len(entries) <= most {
		some, err := handle.ReadDir(min(atOnce, most+1-len(entries)))
		entries = append(entries, some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// skipped are paths that are not read, some of them by name.
type skipped struct {
	some  []string
	count int
}

func (s *skipped) add(path string) {
	const most = 3
	if s.count++; s.count <= most {
		s.some = append(s.some, spelling.Escape(path))
	}
}

// String returns the paths as a part of a sentence.
func (s *skipped) String() string {
	words := s.some
	if more := s.count - len(words); more > 0 {
		words = append(slices.Clone(words), spelling.Count(more, "other"))
	}
	return spelling.List(words)
}
