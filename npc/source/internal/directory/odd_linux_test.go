package directory

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

func TestOddFilesAreReportedAndHarmless(t *testing.T) {
	f := follow(t, sourcetest.WriteFiles(t, map[string]string{"a.yaml": sourcetest.Pod("web", ""), "b.yaml": sourcetest.Pod("db", "")}))
	for link, target := range map[string]string{"loop.yaml": "loop.yaml", "nowhere.yaml": "absent", "sub": "."} {
		if err := os.Symlink(target, filepath.Join(f.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(f.dir, "pipe.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(f.dir, "directory.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	sourcetest.WriteFile(t, filepath.Join(f.dir, "b.yaml"), "# "+strings.Repeat("x", manifest.MaxSize)+"\n"+sourcetest.Pod("huge", ""))
	sourcetest.WriteFile(t, filepath.Join(f.dir, "fence.yaml"), sourcetest.Pod("fence", ""))
	expectObjects(t, f, "Pod shop/db, Pod shop/fence, Pod shop/web")
	sourcetest.Eventually(t, "all reported", func() bool { return f.errors() == 5 })
	for _, want := range []string{"loop.yaml: stat: too many levels of symbolic links", "nowhere.yaml: stat: no such file",
		"sub: is the same directory as ", "pipe.yaml: is no regular file", "b.yaml: has 16777"} {
		if n := f.log.Count(want); n != 1 {
			t.Errorf("%q logged %d times:\n%s", want, n, f.log)
		}
	}
}
