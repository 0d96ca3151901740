package apiserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// Alone starts a server for a test, as Started does, in a network that has nothing else.
func Alone(t testing.TB) *Server {
	t.Helper()
	network, err := lab.New(lab.Config{Nodes: 1, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	host, err := network.AddHost("control-plane", network.Node("node1").Addr4().Prev())
	if err != nil {
		t.Fatal(err)
	}
	return Started(t, host, network.Dir())
}

// Started starts a server for a test, which fails if that is not possible, and stops it when the test ends. The
// binaries are those that test/controlplane/build makes, or those in the directory that $WEAVE_NPC_TEST_CONTROLPLANE
// names.
func Started(t testing.TB, host *lab.Host, dir string) *Server {
	t.Helper()
	binaries := os.Getenv("WEAVE_NPC_TEST_CONTROLPLANE")
	if binaries == "" {
		cache, err := lab.CacheDir()
		if err != nil {
			t.Fatal(err)
		}
		binaries = filepath.Join(cache, "controlplane")
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
