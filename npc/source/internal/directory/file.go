package directory

import (
	"crypto/sha256"
	"io/fs"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// File is the content of a file that is in force: that of its last valid version.
type File struct {
	Path    string
	Objects []manifest.Object
	// Ignored are the objects of kinds that are not used.
	Ignored map[string]manifest.Ignored
	// Modified is when the version was written.
	Modified metav1.Time
}

// file is what is known of one manifest.
type file struct {
	File
	stamp    stamp
	sum      [sha256.Size]byte
	problems []manifest.Problem // of the present version
	valid    bool               // a version of it has been valid
	fresh    bool               // it was read for the first time, so soon after a write that more may follow
	// disappearedWith has the files not yet read that appeared when this one was deleted: one may be this one, renamed.
	disappearedWith []string
}

// newFile returns a file after a version of it was parsed. A version with problems leaves the one before it in force.
func newFile(path string, before *file, parsed manifest.File) *file {
	if len(parsed.Problems) == 0 {
		return &file{File: File{Path: path, Objects: parsed.Objects, Ignored: parsed.Ignored}, valid: true}
	}
	after := &file{File: File{Path: path}, problems: parsed.Problems}
	if before != nil {
		after.File, after.valid = before.File, before.valid
	}
	return after
}

// stamp distinguishes versions of a file without reading them.
type stamp struct {
	fileID
	size             int64
	modified, status int64 // nanoseconds
}

// fileID identifies a file, whatever its names are. It is zero where the system does not report it.
type fileID struct{ device, inode uint64 }

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	s.fileID, s.status = identify(info)
	return s
}

// isRenamed reports whether the file got its name, or its mode, after its content: it is complete.
func (s stamp) isRenamed() bool { return s.status > s.modified }

// isInPlaceOf reports whether this is the same file as before, written again.
func (s stamp) isInPlaceOf(before *file) bool {
	return before != nil && s.fileID == before.stamp.fileID
}
