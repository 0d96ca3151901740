package apiserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// Started starts a server for a test, which fails if that is not possible, and stops it when the test ends. The
// binaries are those that test/controlplane/build makes, or those in the directory that $WEAVE_NPC_TEST_CONTROLPLANE
// names.
func Started(t testing.TB, host *lab.Host, dir string) *Server {
	t.Helper()
	binaries := os.Getenv("WEAVE_NPC_TEST_CONTROLPLANE")
	if binaries == "" {
		root, err := moduleRoot()
		if err != nil {
			t.Fatal(err)
		}
		binaries = filepath.Join(root, ".cache/controlplane")
	}
	server, err := Start(t.Context(), Config{Host: host, Binaries: binaries, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// moduleRoot returns the nearest directory above with a go.mod. Tests run in the directories of their packages.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}
