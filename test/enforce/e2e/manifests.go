package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// Manifests is a directory that holds all objects in one file.
type Manifests struct{ Dir string }

// NewManifests makes an empty directory that goes with the cluster.
func NewManifests(t *testing.T, w *Cluster) *Manifests {
	t.Helper()
	dir, err := os.MkdirTemp(w.Dir(), "manifests-")
	if err != nil {
		t.Fatal(err)
	}
	return &Manifests{dir}
}

// FromManifests makes manifests with the objects of a state the source of a cluster.
func (w *Cluster) FromManifests(t *testing.T, state Change) *Manifests {
	t.Helper()
	m := NewManifests(t, w)
	w.Source = m
	m.Write(t, w.Objects(state))
	return m
}

// Write implements ObjectWriter. The file is replaced as a whole.
func (m *Manifests) Write(t *testing.T, o *Objects) {
	t.Helper()
	text, err := o.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	WriteFile(t, filepath.Join(m.Dir, "cluster.yaml"), text)
}

// WriteNode adds a node object to manifests.
func WriteNode(t *testing.T, dir, name string) {
	t.Helper()
	WriteFile(t, filepath.Join(dir, "node.yaml"), "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
}

// WriteFile replaces a file as a whole.
func WriteFile(t *testing.T, path, text string) {
	t.Helper()
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(hidden, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, path); err != nil {
		t.Fatal(err)
	}
}
