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

	"github.com/weave-npc/weave-npc/npc"
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

// TestS74_AFileThatWasNeverReadIsMissing tells the sink so until it has been read, or is gone.
func TestS74_AFileThatWasNeverReadIsMissing(t *testing.T) {
	dir, s, r, _ := startDirectory(t, map[string]string{"a.yaml": podNamed("one", ""), "b.yaml": "a: [\n", "sub/c.yaml": "{"})
	knows(t, r, "ns shop, pod shop/one")
	if got := r.made(); len(got) < 2 || got[len(got)-1] != "synced" || got[len(got)-2] != "missing 2" {
		t.Errorf("the sink is told %v", got)
	}
	eventually(t, "the good one is old enough", func() bool { return s.Unread() == 2 })
	for _, want := range []string{filepath.Join(dir, "b.yaml") + ":1: ", filepath.Join(dir, "sub/c.yaml") + ":1: "} {
		if why := s.WhyUnread(); !strings.Contains(why, want) {
			t.Errorf("%d unread: %q", s.Unread(), why)
		}
	}
	if err := os.Remove(filepath.Join(dir, "sub/c.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one is gone", func() bool { return s.Unread() == 1 })
	if r.isMissing() != npc.ObjectsMissing {
		t.Error("nothing is missing any more")
	}
	r.mark()
	writeFile(t, filepath.Join(dir, "b.yaml"), podNamed("two", ""))
	eventually(t, "mended", func() bool { return s.WhyUnread() == "" && r.isMissing() == npc.NothingMissing })
	if diff := cmp.Diff([]string{"set pod shop/two", "missing 0"}, r.made()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	// A file that is added later is unread, and what is in force does not wait for it.
	writeFile(t, filepath.Join(dir, "d.yaml"), "{")
	eventually(t, "unread", func() bool { return s.Unread() == 1 })
	if r.isMissing() != npc.NothingMissing {
		t.Error("a new file makes something missing")
	}
}

// TestS74_AFileThatIsRenamedAndBrokenIsNotGone: what it said before stays until it can be read.
func TestS74_AFileThatIsRenamedAndBrokenIsNotGone(t *testing.T) {
	dir, s, r, _ := startDirectory(t, map[string]string{"a/a.yaml": podNamed("one", ""), "b.yaml": podNamed("two", "")})
	knows(t, r, "ns shop, pod shop/one, pod shop/two")
	writeFile(t, filepath.Join(dir, ".new/b.yaml"), "{")
	rename(t, filepath.Join(dir, "a"), filepath.Join(dir, ".old"))
	rename(t, filepath.Join(dir, ".new"), filepath.Join(dir, "c"))
	eventually(t, "unread", func() bool { return s.Unread() == 1 })
	writeFile(t, filepath.Join(dir, "fence.yaml"), podNamed("fence", ""))
	knows(t, r, "ns shop, pod shop/fence, pod shop/one, pod shop/two")
	writeFile(t, filepath.Join(dir, "c/b.yaml"), podNamed("three", ""))
	knows(t, r, "ns shop, pod shop/fence, pod shop/three, pod shop/two")
}

// TestS74_TheFirstReadingIsPatient with a file of which a part has been written.
func TestS74_TheFirstReadingIsPatient(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	write(podNamed("one", ""))
	s, err := FromManifests(dir, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(truncatedFor/2, func() { write("---\n" + podNamed("two", "")) })
	r := start(t, s, slog.New(slog.DiscardHandler))
	eventually(t, "complete", func() bool { return r.isMissing() == npc.NothingMissing && s.Unread() == 0 })
	if r.names() != "ns shop, pod shop/one, pod shop/two" {
		t.Errorf("with %s, nothing is said to be missing", r.names())
	}
}

// TestS74_AFileThatWasRenamedIsComplete: nothing is waited for.
func TestS74_AFileThatWasRenamedIsComplete(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, ".a.yaml"), podNamed("one", ""))
	time.Sleep(20 * time.Millisecond) // a tick of the file system's clock
	rename(t, filepath.Join(dir, ".a.yaml"), filepath.Join(dir, "a.yaml"))
	s, err := FromManifests(dir, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, slog.New(slog.DiscardHandler))
	if got := r.made(); got[len(got)-1] != "synced" || strings.Contains(strings.Join(got, " "), "missing") {
		t.Errorf("the sink is told %v", got)
	}
}

// TestS74_ANodeThatNothingNamesIsMissing until a pod or a Node has its name.
func TestS74_ANodeThatNothingNamesIsMissing(t *testing.T) {
	for name, found := range map[string]string{
		"pod":  "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {nodeName: here, containers: []}\n",
		"node": "apiVersion: v1\nkind: Node\nmetadata: {name: here}\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log, logger := newJournal()
			s, err := FromManifests(dir, "here", logger)
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, s, logger)
			if why := s.WhyUnread(); r.isMissing() != npc.NodeMissing || !strings.Contains(why, "no manifest below "+dir) {
				t.Errorf("missing %d, %q", r.isMissing(), why)
			}
			if log.count("no manifest is read") != 1 {
				t.Errorf("log:\n%s", log)
			}
			writeFile(t, filepath.Join(dir, "a.yaml"), strings.ReplaceAll(found, "here", "there"))
			eventually(t, "another", func() bool { return strings.Contains(s.WhyUnread(), `called "here"`) })
			writeFile(t, filepath.Join(dir, "b.yaml"), strings.ReplaceAll(found, "web", "db"))
			eventually(t, "known", func() bool { return s.WhyUnread() == "" && r.isMissing() == npc.NothingMissing })
			// Once it has been there, it is known for good.
			if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, "c.yaml"), podNamed("fence", ""))
			eventually(t, "read", func() bool { return r.pod("shop/fence").Name != "" })
			if s.WhyUnread() != "" || r.isMissing() != npc.NothingMissing {
				t.Errorf("missing %d, %q", r.isMissing(), s.WhyUnread())
			}
		})
	}
}

// TestKindsThatAreNotUsedAreNamedOnce, and their objects counted.
func TestKindsThatAreNotUsedAreNamedOnce(t *testing.T) {
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
	dir, s, _, log := startDirectory(t, map[string]string{"a.yaml": deployment + "---\n" + deployment,
		"b.yaml": "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p}\n"})
	eventually(t, "counted", func() bool { return s.Ignored() == 3 })
	writeFile(t, filepath.Join(dir, "c.yaml"), deployment)
	eventually(t, "counted too", func() bool { return s.Ignored() == 4 })
	if log.count(`kind="apps/v1 Deployment" objects=2`) != 1 || log.count("Deployment") != 1 ||
		log.count(`level=WARN msg="policies of a kind that is not enforced are ignored" kind="cilium.io/v2 CiliumNetworkPolicy"`) != 1 {
		t.Errorf("log:\n%s", log)
	}
	for i := range 3 * maxKindsNamed {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("d%d.yaml", i)), fmt.Sprintf("apiVersion: v9\nkind: Odd%d\n", i))
	}
	eventually(t, "all counted", func() bool { return s.Ignored() == 4+3*maxKindsNamed })
	if n := log.count(" kind="); n != maxKindsNamed {
		t.Errorf("%d kinds are named", n)
	}
}
