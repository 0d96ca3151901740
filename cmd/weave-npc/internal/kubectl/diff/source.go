package diff

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// fromCluster is the source that stands for the API server.
const fromCluster = "cluster"

// sources are where the objects of both states come from.
type sources struct {
	flags             input.ObjectFlags // of the API server, and of staged policies
	base              []string
	prune, allowEmpty bool

	stdin  io.Reader // nil once it is read
	stderr io.Writer
	server *snapshot.Declared // nil before it is read
	noted  map[string]bool
}

// read reads both states.
func (s *sources) read(ctx context.Context, before, after string) (w [2]*cluster.Cluster, err error) {
	s.noted = map[string]bool{}
	beneath := snapshot.Declare(snapshot.Objects{})
	for _, name := range s.base {
		d, err := s.source(ctx, name)
		if err != nil {
			return w, err
		}
		beneath = d.Over(beneath)
	}
	var states [2]snapshot.Declared
	for i, name := range []string{before, after} { // one after the other: each takes much memory to read
		if states[i], err = s.source(ctx, name); err != nil {
			return w, err
		}
	}
	first := s.over(states[0], beneath)
	if before == fromCluster {
		beneath = first
	}
	for i, d := range []snapshot.Declared{first, s.over(states[1], beneath)} {
		if w[i], err = s.newCluster(d); err != nil {
			return w, err
		}
	}
	return w, nil
}

// over returns the objects of a source applied to those beneath it.
func (s *sources) over(d, beneath snapshot.Declared) snapshot.Declared {
	if s.prune {
		beneath = beneath.Without(d)
	}
	return d.Over(beneath)
}

// newCluster returns a cluster of some objects. It notes once what it does not consider.
func (s *sources) newCluster(d snapshot.Declared) (*cluster.Cluster, error) {
	o, err := s.flags.Apply(d.Made(), s.once())
	if err != nil {
		return nil, err
	}
	input.NoteWorkloads(s.once(), o)
	input.NoteClusterPolicies(s.once(), o)
	return s.flags.Cluster(o), nil
}

// once returns a writer of notes that writes none again.
func (s *sources) once() io.Writer { return &once{to: s.stderr, noted: s.noted} }

type once struct {
	to    io.Writer
	noted map[string]bool
}

// Write writes a note, which must be a whole one.
func (o *once) Write(note []byte) (int, error) {
	if o.noted[string(note)] {
		return len(note), nil
	}
	o.noted[string(note)] = true
	return o.to.Write(note)
}

// source reads a source by name.
func (s *sources) source(ctx context.Context, name string) (d snapshot.Declared, err error) {
	cli.Doing(s.stderr, "reading %s", name)
	revision, path, isRevision := splitRevision(name)
	switch explicit := strings.HasPrefix(name, gitPrefix); {
	case name == fromCluster:
		return s.cluster(ctx)
	case explicit && !isRevision:
		return d, errors.Errorf("%q is not %sREVISION:PATH; a file or directory of this name is ./%s", name, gitPrefix, name)
	case isRevision && !explicit && exists(name):
		return d, errors.Errorf("%q is both a file or directory and what may be a revision of git and a path in it: "+
			"give ./%s for the former, or %s%s for the latter", name, name, gitPrefix, name)
	case name == snapshot.StandardInput || !isRevision && exists(name):
		d, err = s.manifests(name)
	case !isRevision:
		return d, errors.Errorf("%q is no file or directory, no git:REVISION:PATH, and not cluster", name)
	default:
		g := &git{stderr: s.stderr}
		files, there, err := g.files(ctx, revision, path)
		if err != nil {
			return d, errors.Wrap(err, name)
		}
		if !there {
			_, _ = fmt.Fprintf(s.stderr, "weave-npc: there is no %s in %s: that state is empty\n",
				spelling.Escape(path), spelling.Escape(revision))
			return snapshot.Declare(snapshot.Objects{}), nil
		}
		if d, err = snapshot.OfFiles(revision+":"+path, files).Declared(); err != nil {
			return d, err
		}
	}
	if err == nil && d.Empty() && !s.allowEmpty {
		err = errors.Errorf("%s has no namespaces, pods, workloads, nodes or policies; "+
			"--allow-empty takes it for an empty cluster", name)
	}
	return d, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// manifests reads a file, a directory or standard input.
func (s *sources) manifests(path string) (d snapshot.Declared, err error) {
	stdin := s.stdin
	if path == snapshot.StandardInput {
		s.stdin = nil
	}
	m, err := snapshot.Open(path, stdin)
	if err != nil {
		return d, err
	}
	return m.Declared()
}

// cluster reads the API server, once.
func (s *sources) cluster(ctx context.Context) (snapshot.Declared, error) {
	if s.server == nil {
		o, err := s.flags.List(ctx)
		if err != nil {
			return snapshot.Declared{}, err
		}
		d := snapshot.Declare(o)
		s.server = &d
	}
	return *s.server, nil
}
