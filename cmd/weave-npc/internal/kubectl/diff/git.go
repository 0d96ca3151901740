package diff

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

const (
	// maxFiles and maxBytes limit what is read of a revision.
	maxFiles = 20_000
	maxBytes = 512 << 20
)

// git reads files of revisions. It changes nothing, and checks nothing out.
type git struct{ stderr io.Writer }

// gitPrefix begins the names of sources that are revisions, whatever there is on disk.
const gitPrefix = "git:"

// splitRevision splits git:REVISION:PATH, or REVISION:PATH; ok is false for what cannot be that. No part can be taken
// for an option. What begins as a path does is none: no revision has a name that begins so.
func splitRevision(text string) (revision, dir string, ok bool) {
	if filepath.VolumeName(text) != "" || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		return "", "", false
	}
	revision, dir, ok = strings.Cut(strings.TrimPrefix(text, gitPrefix), ":")
	strange := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if !ok || revision == "" || strings.HasPrefix(revision, "-") || strings.ContainsFunc(revision, strange) ||
		strings.ContainsFunc(dir, unicode.IsControl) {
		return "", "", false
	}
	if dir = path.Clean(dir); dir == "." || dir == "/" {
		dir = ""
	}
	return revision, dir, true
}

// run runs git and returns its output.
func (g *git) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git",
		append([]string{"--no-replace-objects", "-c", "core.quotepath=off"}, args...)...)
	var out limited
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &stderr
	err := cmd.Run()
	switch {
	case out.full:
		return nil, errors.Errorf("has more than %d bytes", maxBytes)
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("git is not installed, which reads revisions")
	case err != nil:
		message, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if message == "" {
			message = err.Error()
		}
		return nil, errors.Errorf("git %s: %s", args[0], strings.TrimPrefix(message, "fatal: "))
	}
	return out.Bytes(), nil
}

// limited takes so many bytes and no more.
type limited struct {
	bytes.Buffer
	full bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxBytes {
		l.full = true
		return 0, errors.New("too much")
	}
	return l.Buffer.Write(p)
}

// files returns the manifests below a directory of a revision, or the file of that name. there is false if the revision
// does not have it.
func (g *git) files(ctx context.Context, revision, dir string) (files []snapshot.File, there bool, err error) {
	commit, err := g.run(ctx, nil, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		if _, repository := g.run(ctx, nil, "rev-parse", "--git-dir"); repository != nil {
			return nil, false, repository
		}
		return nil, false, errors.Errorf("git has no revision %q", revision)
	}
	object, err := g.run(ctx, nil, "rev-parse", "--verify", "--quiet", strings.TrimSpace(string(commit))+":"+dir)
	if err != nil {
		return nil, false, nil //nolint:nilerr // that is what the error means
	}
	id := strings.TrimSpace(string(object))
	kind, err := g.run(ctx, nil, "cat-file", "-t", id)
	if err != nil {
		return nil, false, err
	}
	entries := []entry{{id, path.Join(dir)}}
	if strings.TrimSpace(string(kind)) == "tree" {
		if entries, err = g.list(ctx, revision, dir, id); err != nil {
			return nil, false, err
		}
	}
	files, err = g.read(ctx, revision, entries)
	return files, true, err
}

// entry is a file of a tree.
type entry struct{ id, path string }

// list returns the manifests of a tree, by the rules of directories on disk: no hidden ones. These, links and other
// repositories are noted.
func (g *git) list(ctx context.Context, revision, dir, tree string) (entries []entry, err error) {
	listing, err := g.run(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", tree)
	if err != nil {
		return nil, err
	}
	var hidden []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(listing), "\x00"), "\x00") {
		head, name, _ := strings.Cut(line, "\t")
		fields := strings.Fields(head)
		if len(fields) != 3 {
			continue
		}
		if first := hiddenIn(name); first != "" {
			if first != name || manifest.IsName(name) {
				hidden = append(hidden, spelling.Escape(path.Join(dir, first)))
			}
			continue
		}
		mode, kind := fields[0], fields[1]
		switch {
		case kind == "commit", mode == "120000":
			_, _ = fmt.Fprintf(g.stderr, "weave-npc: %s:%s is a link or another repository, which is not read\n",
				revision, spelling.Escape(path.Join(dir, name)))
		case manifest.IsName(name):
			entries = append(entries, entry{fields[2], path.Join(dir, name)})
		}
	}
	if hidden = slices.Compact(hidden); len(hidden) > 0 { // the listing is in the order of the names
		_, _ = fmt.Fprintf(g.stderr, "weave-npc: hidden names of %s are not read: %s\n", spelling.Escape(revision),
			spelling.Some(hidden))
	}
	if len(entries) > maxFiles {
		return nil, errors.Errorf("has %d manifests; the limit is %d", len(entries), maxFiles)
	}
	return entries, nil
}

// hiddenIn returns a path to the end of its first hidden name; it is empty if there is none.
func hiddenIn(name string) string {
	at := 0
	if !strings.HasPrefix(name, ".") {
		if at = strings.Index(name, "/."); at < 0 {
			return ""
		}
		at++
	}
	if end := strings.IndexByte(name[at:], '/'); end >= 0 {
		return name[:at+end]
	}
	return name
}

// read reads the contents of entries.
func (g *git) read(ctx context.Context, revision string, entries []entry) (files []snapshot.File, err error) {
	var ids strings.Builder
	for _, e := range entries {
		ids.WriteString(e.id + "\n")
	}
	batch, err := g.run(ctx, strings.NewReader(ids.String()), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(bytes.NewReader(batch))
	for _, e := range entries {
		head, err := in.ReadString('\n')
		if err != nil {
			return nil, errors.Wrapf(err, "reading %s", e.path)
		}
		fields := strings.Fields(head)
		if len(fields) != 3 || fields[1] != "blob" {
			return nil, errors.Errorf("reading %s: git answers %q", e.path, strings.TrimSpace(head))
		}
		size, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, errors.Wrapf(err, "reading %s", e.path)
		}
		if size > manifest.MaxSize {
			return nil, errors.Errorf("%s has %d bytes, more than %d; split it", e.path, size, manifest.MaxSize)
		}
		text := make([]byte, size+1) // with the end of line that follows
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, errors.Wrapf(err, "reading %s", e.path)
		}
		files = append(files, snapshot.File{Path: revision + ":" + e.path, Text: text[:size]})
	}
	return files, nil
}
