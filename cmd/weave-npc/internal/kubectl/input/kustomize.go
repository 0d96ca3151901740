package input

import (
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// ManifestsFlags are --manifests, the path of manifests, and --kustomize, which also sets it.
type ManifestsFlags struct {
	// Path is empty if none is given.
	Path *string

	directory string // of a kustomization; empty if none is given
}

// Register registers the flags. The usage is that of --manifests.
func (m *ManifestsFlags) Register(f *pflag.FlagSet, usage string) {
	f.VarP(pathFlag{m.Path}, "manifests", "f", usage)
	cli.File(f, "manifests")
	f.VarP(kustomizeFlag{m}, "kustomize", "k", "directory of a kustomization to build and read")
	cli.Directory(f, "kustomize")
}

// Open opens the manifests.
func (m *ManifestsFlags) Open(stdin io.Reader) (*snapshot.Manifests, error) {
	switch {
	case m.directory == "":
		opened, err := snapshot.Open(*m.Path, stdin)
		return opened, errors.Wrap(err, "--manifests")
	case m.directory != *m.Path:
		return nil, errors.New("--kustomize and --manifests: give one of them")
	}
	opened, err := snapshot.OpenKustomization(m.directory)
	return opened, errors.Wrap(err, "--kustomize")
}

// pathFlag is the value of --manifests, a path.
type pathFlag struct{ path *string }

// Set sets the path. An empty one is an error, not an API server: it is that of a variable that is not set.
func (p pathFlag) Set(path string) error {
	if path == "" {
		return errors.New("give a directory, a file, or - for standard input")
	}
	*p.path = path
	return nil
}

// String returns the path.
func (p pathFlag) String() string {
	if p.path == nil { // of the flag's zero value
		return ""
	}
	return *p.path
}

// Type returns what messages call the value.
func (p pathFlag) Type() string { return "string" }

// kustomizeFlag is the value of --kustomize.
type kustomizeFlag struct{ *ManifestsFlags }

// Set sets the path, unless --manifests has: then Open refuses both. An empty one is an error.
func (k kustomizeFlag) Set(directory string) error {
	if directory == "" {
		return errors.New("give the directory of a kustomization")
	}
	k.directory = directory
	if *k.Path == "" {
		*k.Path = directory
	}
	return nil
}

// String returns the directory.
func (k kustomizeFlag) String() string {
	if k.ManifestsFlags == nil { // of the flag's zero value
		return ""
	}
	return k.directory
}

// Type returns what messages call the value.
func (k kustomizeFlag) Type() string { return "string" }
