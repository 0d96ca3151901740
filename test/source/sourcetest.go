// Package sourcetest has what tests of package source and of those below it share: manifests, files, and a log.
package sourcetest

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pod returns a manifest of a pod in namespace shop, with labels such as "a: b, c: d".
func Pod(name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, labels: {%s}}\n", name, labels)
}

// Policy returns a manifest of a policy in namespace shop.
func Policy(name string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+
		"metadata: {name: %s, namespace: shop}\n", name)
}

// WriteFile writes a file, and makes the directories that it is in.
func WriteFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// WriteFiles writes files into a new directory and returns its path.
func WriteFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		WriteFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

// Rename renames a file or directory.
func Rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// Remove removes a file.
func Remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until a condition holds; how long that takes does not matter.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Journal is a log that can be read while it is written.
type Journal struct {
	mu   sync.Mutex // guards the fields below
	text strings.Builder
}

// NewJournal returns an empty log, and the logger that writes it.
func NewJournal() (*Journal, *slog.Logger) {
	j := &Journal{}
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return j, slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
}

// Write implements io.Writer.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// Count returns how many times a text is in the log.
func (j *Journal) Count(text string) int { return strings.Count(j.String(), text) }

// String returns the log.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
