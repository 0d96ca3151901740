package node

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// imageVariable is the archive of an image that prod/image built for this machine.
const imageVariable = "WEAVE_NPC_TEST_IMAGE"

// inImage runs what an image holds in place of the command: $1 is the image's root, $2 the directory of manifests, $3
// the command. Its root is read-only as a container's.
var inImage = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `set -e
root=$1 manifests=$2
shift 3
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$manifests" "$root/tmp"
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/run"
touch "$root/run/xtables.lock"
export XTABLES_LOCKFILE=/run/xtables.lock
exec chroot "$root" /usr/bin/weave-npc "$@"`, "image"}

// TestImageEnforces runs weave-npc with the programs of its image and no others.
func TestImageEnforces(t *testing.T) {
	archive := os.Getenv(imageVariable)
	if archive == "" {
		t.Skipf("$%s names no image: make image builds one and tests it", imageVariable)
	}
	root := unpackImage(t, archive)
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		m := w.FromManifests(t, e2e.Rich())
		w.StartEach(t, func(_ int, n *lab.Node) *e2e.Daemon {
			d := e2e.NewDaemon(n, "--iptables-backend", string(backend), "--manifests", "/tmp", "--pod-cidr",
				e2e.Ranges(n))
			d.Wrap = slices.Concat(inImage, []string{root, m.Dir})
			return d
		})
		for _, d := range w.Daemons {
			d.AwaitReady(t)
		}
		w.Expect(t, e2e.RichWants())
		w.Daemons[0].AwaitLine(t, 0, "ulogd2 runs")
		w.BlockedIsNamed(t)
	})
}

// unpackImage unpacks an archive (docker-archive) into a directory that goes with the test.
func unpackImage(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	outer, root := filepath.Join(dir, "archive"), filepath.Join(dir, "root")
	unpack := func(file, to string) {
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("tar", "-x", "-f", file, "-C", to).CombinedOutput(); err != nil {
			t.Fatalf("unpacking %s: %v\n%s", file, err, out)
		}
	}
	unpack(archive, outer)
	text, err := os.ReadFile(filepath.Join(outer, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(text, &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("%s has no manifest of one image: %v", archive, err)
	}
	for _, layer := range manifest[0].Layers {
		unpack(filepath.Join(outer, layer), root)
	}
	return root
}
