package source

import (
	"fmt"
	"log/slog"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func podNamed(name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, labels: {%s}}\n", name, labels)
}

func policyNamed(name string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: shop}\n", name)
}

// startDirectory runs a source from a directory with these files.
func startDirectory(t *testing.T, files map[string]string) (dir string, s Source, r *recorder, log *journal) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
	}
	log, logger := newJournal()
	s, err := FromManifests(dir, "", logger)
	if err != nil {
		t.Fatal(err)
	}
	return dir, s, start(t, s, logger), log
}

func knows(t *testing.T, r *recorder, want string) {
	t.Helper()
	eventually(t, want, func() bool { return r.names() == want })
}

func TestFromManifestsNeedsADirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeFile(t, file, "")
	for path, want := range map[string]string{filepath.Join(dir, "absent"): "does not exist", file: "is no directory"} {
		_, err := FromManifests(path, "", slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestManifestsAreFollowed(t *testing.T) {
	dir, s, r, _ := startDirectory(t, map[string]string{"a.yaml": valid, "b/c.yml": podNamed("web", "v: one"),
		"readme.txt": "---", ".hidden.yaml": "{", "..data/x.yaml": "{"})
	knows(t, r, "ns shop, pod shop/web")
	if got := r.connections(Pods); len(got) != 1 || got[0] != "true" {
		t.Errorf("connected: %v", got)
	}

	// Written in place.
	writeFile(t, filepath.Join(dir, "b/c.yml"), podNamed("web", "v: two"))
	eventually(t, "label changes", func() bool { return r.pod("shop/web").Labels["v"] == "two" })

	// Created, in a directory that is new.
	writeFile(t, filepath.Join(dir, "new/deep/d.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"db","namespace":"shop"}}`)
	knows(t, r, "ns shop, pod shop/db, pod shop/web")
	writeFile(t, filepath.Join(dir, "new/deep/e.yaml"), policyNamed("deny"))
	knows(t, r, "ns shop, pod shop/db, pod shop/web, policy shop/deny")

	// Renamed over.
	writeFile(t, filepath.Join(dir, "new/deep/.e.tmp"), policyNamed("allow"))
	rename(t, filepath.Join(dir, "new/deep/.e.tmp"), filepath.Join(dir, "new/deep/e.yaml"))
	knows(t, r, "ns shop, pod shop/db, pod shop/web, policy shop/allow")

	// Renamed: nothing happens to the object.
	before := r.pod("shop/db").UID
	r.mark()
	rename(t, filepath.Join(dir, "new/deep/d.json"), filepath.Join(dir, "d2.json"))
	writeFile(t, filepath.Join(dir, "fence.yaml"), podNamed("fence", ""))
	knows(t, r, "ns shop, pod shop/db, pod shop/fence, pod shop/web, policy shop/allow")
	if diff := cmp.Diff([]string{"set pod shop/fence"}, r.made()); diff != "" || r.pod("shop/db").UID != before {
		t.Errorf("a rename is an event (-want +got):\n%s", diff)
	}

	// Removed, with its directory.
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	knows(t, r, "ns shop, pod shop/db, pod shop/fence, pod shop/web")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "d2.json")); err != nil {
		t.Fatal(err)
	}
	knows(t, r, "ns shop, pod shop/fence, pod shop/web") // the namespace is still named
	for _, name := range []string{"b/c.yml", "fence.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	knows(t, r, "")
	if s.Errors() != 0 {
		t.Errorf("%d files in error", s.Errors())
	}
}

func TestS70_NamedNamespacesExist(t *testing.T) {
	_, _, r, _ := startDirectory(t, map[string]string{"p.yaml": podNamed("web", ""), "q.yaml": strings.ReplaceAll(
		policyNamed("deny"), "shop", "bank")})
	knows(t, r, "ns bank, ns shop, pod shop/web, policy bank/deny")
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.namespaces["bank"]
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": "bank"}, n.Labels); diff != "" || n.UID == "" {
		t.Errorf("%v (-want +got):\n%s", n, diff)
	}
}

func TestABadFileLeavesInForceWhatItSaid(t *testing.T) {
	dir, s, r, log := startDirectory(t, map[string]string{
		"a.yaml": podNamed("one", "") + "---\n" + podNamed("two", ""), "bad.yaml": "{", "c.yaml": podNamed("three", "")})
	path := filepath.Join(dir, "a.yaml")
	knows(t, r, "ns shop, pod shop/one, pod shop/three, pod shop/two")
	eventually(t, "reported at start", func() bool { return log.count(filepath.Join(dir, "bad.yaml")+":1: ") == 1 })
	if s.Errors() != 1 {
		t.Errorf("%d files in error", s.Errors())
	}

	// One object of two is invalid: the other's change does not count either.
	writeFile(t, path, podNamed("one", "v: two")+"---\n"+podNamed("Two", ""))
	eventually(t, "reported", func() bool { return log.count(path+":7: Pod shop/Two: metadata.name: ") == 1 })
	writeFile(t, filepath.Join(dir, "fence.yaml"), podNamed("fence", ""))
	knows(t, r, "ns shop, pod shop/fence, pod shop/one, pod shop/three, pod shop/two")
	if r.pod("shop/one").Labels["v"] == "two" || s.Errors() != 2 {
		t.Errorf("half a file is in force, %d errors", s.Errors())
	}

	// Touched: not reported again. Changed, still bad: reported again.
	writeFile(t, path, podNamed("one", "v: two")+"---\n"+podNamed("Two", ""))
	writeFile(t, filepath.Join(dir, "fence2.yaml"), podNamed("fence2", ""))
	knows(t, r, "ns shop, pod shop/fence, pod shop/fence2, pod shop/one, pod shop/three, pod shop/two")
	if n := log.count(path + ":7: "); n != 1 {
		t.Errorf("reported %d times:\n%s", n, log)
	}
	writeFile(t, path, podNamed("one", "v: three")+"---\n"+podNamed("Two", ""))
	eventually(t, "reported again", func() bool { return log.count(path+":7: ") == 2 })

	// Mended.
	writeFile(t, path, podNamed("one", "v: four"))
	knows(t, r, "ns shop, pod shop/fence, pod shop/fence2, pod shop/one, pod shop/three")
	eventually(t, "mended", func() bool { return r.pod("shop/one").Labels["v"] == "four" && s.Errors() == 1 })
	if log.count("manifest is in force again") != 1 {
		t.Errorf("not reported as mended:\n%s", log)
	}

	// Removed while bad.
	writeFile(t, path, "{")
	eventually(t, "bad", func() bool { return s.Errors() == 2 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	knows(t, r, "ns shop, pod shop/fence, pod shop/fence2, pod shop/three")
	eventually(t, "forgotten", func() bool { return s.Errors() == 1 })
}

func TestTheFirstOfTwoFilesCounts(t *testing.T) {
	dir, s, r, log := startDirectory(t, map[string]string{"a.yaml": podNamed("web", "v: a"), "b.yaml": podNamed("web", "v: b")})
	report := fmt.Sprintf("%s:1: Pod shop/web: is already in %s:1, which counts", filepath.Join(dir, "b.yaml"),
		filepath.Join(dir, "a.yaml"))
	if r.pod("shop/web").Labels["v"] != "a" || s.Errors() != 1 || log.count(report) != 1 {
		t.Errorf("%v, %d errors:\n%s", r.pod("shop/web"), s.Errors(), log)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second counts", func() bool { return r.pod("shop/web").Labels["v"] == "b" && s.Errors() == 0 })
	for _, call := range r.made() {
		if strings.HasPrefix(call, "delete") {
			t.Errorf("the pod was gone for a while: %v", r.made())
		}
	}
}

func TestAMountedConfigMapIsFollowed(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		writeFile(t, filepath.Join(dir, version, "p.yaml"), text)
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	}
	publish("..2024_01", podNamed("one", ""))
	if err := os.Symlink("..data/p.yaml", filepath.Join(dir, "p.yaml")); err != nil {
		t.Fatal(err)
	}
	log, logger := newJournal()
	s, err := FromManifests(dir, "", logger)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, logger)
	knows(t, r, "ns shop, pod shop/one")
	publish("..2024_02", podNamed("two", ""))
	if err := os.RemoveAll(filepath.Join(dir, "..2024_01")); err != nil {
		t.Fatal(err)
	}
	knows(t, r, "ns shop, pod shop/two")
	if s.Errors() != 0 || log.count("level=ERROR") != 0 {
		t.Errorf("%d errors:\n%s", s.Errors(), log)
	}
}

func TestAFileThatIsJustBeingWrittenIsNotEmpty(t *testing.T) {
	dir, _, r, _ := startDirectory(t, map[string]string{"a.yaml": podNamed("web", "v: one")})
	path := filepath.Join(dir, "a.yaml")
	r.mark()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "fence.yaml"), podNamed("fence", ""))
	knows(t, r, "ns shop, pod shop/fence, pod shop/web")
	writeFile(t, path, podNamed("web", "v: two"))
	eventually(t, "written", func() bool { return r.pod("shop/web").Labels["v"] == "two" })
	for _, call := range r.made() {
		if strings.HasPrefix(call, "delete") {
			t.Errorf("the pod was gone for a while: %v", r.made())
		}
	}
	// A file that stays empty says nothing.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	knows(t, r, "ns shop, pod shop/fence")
}

// What a slow writer has not written yet is not gone.
func TestAFileThatIsWrittenSlowlyLosesNothing(t *testing.T) {
	whole := podNamed("web", "") + "---\n" + podNamed("db", "") + "---\n" + podNamed("api", "")
	dir, _, r, log := startDirectory(t, map[string]string{"a.yaml": whole})
	knows(t, r, "ns shop, pod shop/api, pod shop/db, pod shop/web")
	for range 2 {
		f, err := os.OpenFile(filepath.Join(dir, "a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk([]byte(whole), len(whole)/3+1) {
			time.Sleep(2 * inPlaceFor)
			if _, err := f.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		time.Sleep(2 * inPlaceFor)
	}
	writeFile(t, filepath.Join(dir, "fence.yaml"), podNamed("fence", ""))
	knows(t, r, "ns shop, pod shop/api, pod shop/db, pod shop/fence, pod shop/web")
	r.mu.Lock()
	defer r.mu.Unlock()
	if calls := strings.Join(r.calls, "\n"); strings.Contains(calls, "delete") || log.count("a.yaml:") > 0 {
		t.Errorf("calls:\n%s\nlog:\n%s", calls, log)
	}
}

func TestOddFilesAreReportedAndHarmless(t *testing.T) {
	dir, s, r, log := startDirectory(t, map[string]string{"a.yaml": podNamed("web", ""), "b.yaml": podNamed("db", "")})
	for link, target := range map[string]string{"loop.yaml": "loop.yaml", "nowhere.yaml": "absent", "sub": "."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "directory.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "b.yaml"), "# "+strings.Repeat("x", maxManifestSize)+"\n"+podNamed("huge", ""))
	writeFile(t, filepath.Join(dir, "fence.yaml"), podNamed("fence", ""))
	knows(t, r, "ns shop, pod shop/db, pod shop/fence, pod shop/web")
	eventually(t, "all reported", func() bool { return s.Errors() == 5 })
	for _, want := range []string{"loop.yaml: stat: too many levels of symbolic links", "nowhere.yaml: stat: no such file",
		"sub: is the same directory as ", "pipe.yaml: is no regular file", "b.yaml: has 16777"} {
		if n := log.count(want); n != 1 {
			t.Errorf("%q logged %d times:\n%s", want, n, log)
		}
	}
}

func TestADirectoryThatVanishesLeavesInForceWhatItSaid(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a/a.yaml"), podNamed("web", ""))
	s, err := FromManifests(dir, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.dir.every = 20 * time.Millisecond
	r := start(t, s, slog.New(slog.DiscardHandler))
	knows(t, r, "ns shop, pod shop/web")
	rename(t, dir, dir+".away")
	t.Cleanup(func() { _ = os.RemoveAll(dir + ".away") })
	eventually(t, "reported", func() bool { return s.Errors() == 1 })
	knows(t, r, "ns shop, pod shop/web")
	rename(t, dir+".away", dir)
	writeFile(t, filepath.Join(dir, "b.yaml"), podNamed("db", ""))
	knows(t, r, "ns shop, pod shop/db, pod shop/web")
	eventually(t, "well again", func() bool { return s.Errors() == 0 })
}

func TestManyProblemsOfAFileAreCut(t *testing.T) {
	dir, _, _, log := startDirectory(t, map[string]string{"a.yaml": strings.Repeat("---\nx: y\n", maxReported+5)})
	if log.count(":  is")+log.count("has no apiVersion") != maxReported || log.count(dir+"/a.yaml: and 5 problems more") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

// The sink ends up with exactly what the directory says, whatever happens meanwhile.
func TestNothingIsMissed(t *testing.T) {
	dir, _, r, _ := startDirectory(t, nil)
	random := rand.New(rand.NewSource(1))
	want := map[string]string{} // pod -> version
	for i := range 400 {
		name := fmt.Sprintf("p%d", random.Intn(40))
		path := filepath.Join(dir, fmt.Sprintf("d%d", len(name)), name+".yaml")
		version := fmt.Sprintf("v%d", i)
		switch random.Intn(4) {
		case 0:
			_ = os.Remove(path)
			delete(want, "shop/"+name)
		case 1:
			writeFile(t, path+"~", podNamed(name, "v: "+version))
			rename(t, path+"~", path)
			want["shop/"+name] = version
		default:
			writeFile(t, path, podNamed(name, "v: "+version))
			want["shop/"+name] = version
		}
	}
	eventually(t, "the sink has what the directory says", func() bool {
		names := r.podNames()
		if len(names) != len(want) {
			return false
		}
		for _, name := range names {
			if r.pod(name).Labels["v"] != want[name] {
				return false
			}
		}
		return true
	})
}

// Two writes within one tick of the file system's clock leave the same stamp: an event makes the difference.
func TestAnEventIsBelievedBeforeAStamp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	writeFile(t, path, podNamed("one", ""))
	d, err := newDirectory(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := d.follower()
	f.read(false)
	defer f.inotify.Close()
	writeFile(t, path, podNamed("two", ""))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	d.files[path].stamp = identify(info)
	f.read(false)
	if _, ok := d.shelves[kindPod].objects["shop/one"]; !ok {
		t.Error("a file was read although nothing spoke for it")
	}
	f.dirty[path] = true
	f.read(false)
	if _, ok := d.shelves[kindPod].objects["shop/two"]; !ok {
		t.Error("a file was not read although an event named it")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "b.yaml"), podNamed("web", "")+"---\n"+policyNamed("deny"))
	writeFile(t, filepath.Join(dir, "a.yaml"), podNamed("db", ""))
	objects, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects.Namespaces) != 1 || len(objects.Pods) != 2 || len(objects.Policies) != 1 ||
		objects.Pods[0].Name != "db" || objects.Pods[0].CreationTimestamp.IsZero() {
		t.Errorf("%+v", objects)
	}
	r := newRecorder(t)
	objects.Feed(r)
	if r.names() != "ns shop, pod shop/db, pod shop/web, policy shop/deny" || r.synced != 1 {
		t.Errorf("fed %s, synced %d", r.names(), r.synced)
	}

	writeFile(t, filepath.Join(dir, "c.yaml"), "{")
	writeFile(t, filepath.Join(dir, "d.yaml"), podNamed("web", ""))
	objects, err = Load(dir)
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 || len(objects.Pods) != 2 {
		t.Errorf("%v, %d pods", err, len(objects.Pods))
	}
	if _, err := Load(filepath.Join(dir, "absent")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
