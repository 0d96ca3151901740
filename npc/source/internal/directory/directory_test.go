package directory

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// followed is a directory that is followed until the test ends.
type followed struct {
	*testing.T
	dir string
	log *sourcetest.Journal

	mu       sync.Mutex
	result   Result
	bad      int
	history  []string // the names in force, whenever they changed
	complete string   // the names in force when everything had been read once
}

// follow starts to follow a directory, after changes to the follower if there are some, and waits until its files have
// been read.
func follow(t *testing.T, dir string, change ...func(*Follower)) *followed {
	t.Helper()
	log, logger := sourcetest.NewJournal()
	d, err := Open(dir, logger)
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{T: t, dir: dir, log: log}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	follower := d.Follow()
	for _, c := range change {
		c(follower)
	}
	first := follower.Read()
	f.update(first, d.Report(first.Problems))
	go func() {
		defer close(ended)
		defer follower.Close()
		for again := first.Again; follower.Wait(ctx, again); {
			r := follower.Read()
			f.update(r, d.Report(r.Problems))
			again = r.Again
		}
	}()
	sourcetest.Eventually(t, "the files have been read", f.isRead)
	return f
}

func (f *followed) update(r Result, bad int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result, f.bad = r, bad
	if !slices.IsSortedFunc(r.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) }) {
		f.Errorf("files in another order than of their paths: %v", r.Files)
	}
	problems := slices.Clone(r.Problems)
	if manifest.SortProblems(problems); !slices.Equal(problems, r.Problems) {
		f.Errorf("problems in another order than of their paths and lines: %v", r.Problems)
	}
	names := namesOf(r)
	if n := len(f.history); n == 0 || f.history[n-1] != names {
		f.history = append(f.history, names)
	}
	if r.Complete && f.complete == "" {
		f.complete = names
	}
}

// namesOf returns the objects in force: "Pod shop/db, Pod shop/web".
func namesOf(r Result) string {
	var names []string
	for _, file := range r.Files {
		for _, o := range file.Objects {
			names = append(names, o.String())
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (f *followed) names() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return namesOf(f.result)
}

// version returns the label v of a pod in force.
func (f *followed) version(pod string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.result.Files {
		for _, o := range file.Objects {
			if o.Name == pod {
				return o.Value.(*corev1.Pod).Labels["v"]
			}
		}
	}
	return ""
}

// errors returns the number of paths with problems.
func (f *followed) errors() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad
}

// isRead reports whether no file is left for later.
func (f *followed) isRead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.result.Waiting
}

func (f *followed) unsynced() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.result.Unsynced)
}

// wasWithout reports whether an object has been absent since a state.
func (f *followed) wasWithout(name string, since int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.history[since:], func(names string) bool { return !strings.Contains(names, name) })
}

// states returns the number of states so far.
func (f *followed) states() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.history)
}

func (f *followed) completeWith() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.complete
}

func expectNames(t *testing.T, r Result, want string) {
	t.Helper()
	if got := namesOf(r); got != want {
		t.Errorf("in force: %q, want %q", got, want)
	}
}

func expectObjects(t *testing.T, f *followed, want string) {
	t.Helper()
	sourcetest.Eventually(t, want, func() bool { return f.names() == want })
}

func TestOpenNeedsADirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	sourcetest.WriteFile(t, file, "")
	for path, want := range map[string]string{filepath.Join(dir, "absent"): "does not exist", file: "is no directory"} {
		_, err := Open(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestABadFileStaysInForce(t *testing.T) {
	f := follow(t, sourcetest.WriteFiles(t, map[string]string{
		"a.yaml": sourcetest.Pod("one", "") + "---\n" + sourcetest.Pod("two", ""), "bad.yaml": "{", "c.yaml": sourcetest.Pod("three", "")}))
	path := filepath.Join(f.dir, "a.yaml")
	expectObjects(t, f, "Pod shop/one, Pod shop/three, Pod shop/two")
	sourcetest.Eventually(t, "reported at start", func() bool { return f.log.Count(filepath.Join(f.dir, "bad.yaml")+":1: ") == 1 })
	if f.errors() != 1 {
		t.Errorf("%d files in error", f.errors())
	}

	// One object of two is invalid: the other's change does not count either.
	sourcetest.WriteFile(t, path, sourcetest.Pod("one", "v: two")+"---\n"+sourcetest.Pod("Two", ""))
	sourcetest.Eventually(t, "reported", func() bool { return f.log.Count(path+":7: Pod shop/Two: metadata.name: ") == 1 })
	sourcetest.WriteFile(t, filepath.Join(f.dir, "fence.yaml"), sourcetest.Pod("fence", ""))
	expectObjects(t, f, "Pod shop/fence, Pod shop/one, Pod shop/three, Pod shop/two")
	if f.version("one") == "two" || f.errors() != 2 {
		t.Errorf("half a file is in force, %d errors", f.errors())
	}

	// Touched: not reported again. Changed, still bad: reported again.
	sourcetest.WriteFile(t, path, sourcetest.Pod("one", "v: two")+"---\n"+sourcetest.Pod("Two", ""))
	sourcetest.WriteFile(t, filepath.Join(f.dir, "fence2.yaml"), sourcetest.Pod("fence2", ""))
	expectObjects(t, f, "Pod shop/fence, Pod shop/fence2, Pod shop/one, Pod shop/three, Pod shop/two")
	if n := f.log.Count(path + ":7: "); n != 1 {
		t.Errorf("reported %d times:\n%s", n, f.log)
	}
	sourcetest.WriteFile(t, path, sourcetest.Pod("one", "v: three")+"---\n"+sourcetest.Pod("Two", ""))
	sourcetest.Eventually(t, "reported again", func() bool { return f.log.Count(path+":7: ") == 2 })

	// Repaired.
	sourcetest.WriteFile(t, path, sourcetest.Pod("one", "v: four"))
	expectObjects(t, f, "Pod shop/fence, Pod shop/fence2, Pod shop/one, Pod shop/three")
	sourcetest.Eventually(t, "repaired", func() bool { return f.version("one") == "four" && f.errors() == 1 })
	if f.log.Count("manifest is in force again") != 1 {
		t.Errorf("not reported as repaired:\n%s", f.log)
	}

	// Removed while bad.
	sourcetest.WriteFile(t, path, "{")
	sourcetest.Eventually(t, "bad", func() bool { return f.errors() == 2 })
	sourcetest.Remove(t, path)
	expectObjects(t, f, "Pod shop/fence, Pod shop/fence2, Pod shop/three")
	sourcetest.Eventually(t, "forgotten", func() bool { return f.errors() == 1 })
}

func TestAMountedConfigMapIsFollowed(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		sourcetest.WriteFile(t, filepath.Join(dir, version, "p.yaml"), text)
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		sourcetest.Rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	}
	publish("..2024_01", sourcetest.Pod("one", ""))
	if err := os.Symlink("..data/p.yaml", filepath.Join(dir, "p.yaml")); err != nil {
		t.Fatal(err)
	}
	f := follow(t, dir)
	expectObjects(t, f, "Pod shop/one")
	publish("..2024_02", sourcetest.Pod("two", ""))
	if err := os.RemoveAll(filepath.Join(dir, "..2024_01")); err != nil {
		t.Fatal(err)
	}
	expectObjects(t, f, "Pod shop/two")
	if f.errors() != 0 || f.log.Count("level=ERROR") != 0 {
		t.Errorf("%d errors:\n%s", f.errors(), f.log)
	}
}

// intime calls a function again if it took longer than what is tested allows, as it may on a busy machine.
func intime(t *testing.T, f func() (took, limit time.Duration)) {
	t.Helper()
	for range 20 {
		took, limit := f()
		if took < limit {
			return
		}
		t.Logf("once more: it took %s, not less than %s", took, limit)
	}
	t.Fatal("the machine is too slow")
}

func TestAFileThatIsJustBeingWrittenIsNotEmpty(t *testing.T) {
	intime(t, func() (took, limit time.Duration) { return truncateAndWrite(t), truncatedFor })
}

// truncateAndWrite expects that a pod stays in force, and returns for how long its file was empty. If that was
// truncatedFor, the pod may have been gone.
func truncateAndWrite(t *testing.T) time.Duration {
	t.Helper()
	f := follow(t, sourcetest.WriteFiles(t, map[string]string{"a.yaml": sourcetest.Pod("web", "v: one")}))
	path := filepath.Join(f.dir, "a.yaml")
	expectObjects(t, f, "Pod shop/web")
	since, start := f.states()-1, time.Now()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	sourcetest.WriteFile(t, filepath.Join(f.dir, "fence.yaml"), sourcetest.Pod("fence", ""))
	sourcetest.Eventually(t, "fenced", func() bool { return strings.Contains(f.names(), "Pod shop/fence") })
	sourcetest.WriteFile(t, path, sourcetest.Pod("web", "v: two"))
	took := time.Since(start)
	sourcetest.Eventually(t, "written", func() bool { return f.version("web") == "two" })
	if took < truncatedFor && f.wasWithout("Pod shop/web", since) {
		t.Errorf("the pod was gone for a while: %v", f.history)
	}
	// A file that stays empty has no objects.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	expectObjects(t, f, "Pod shop/fence")
	return took
}

// TestAFileThatIsWrittenSlowlyLosesNothing shows that objects which a slow writer has not written yet stay in force.
func TestAFileThatIsWrittenSlowlyLosesNothing(t *testing.T) {
	intime(t, func() (took, limit time.Duration) { return writeSlowly(t), truncatedFor })
}

// writeSlowly expects that three pods stay in force, and returns the longest pause of their writer.
func writeSlowly(t *testing.T) (longest time.Duration) {
	t.Helper()
	whole := sourcetest.Pod("web", "") + "---\n" + sourcetest.Pod("db", "") + "---\n" + sourcetest.Pod("api", "")
	f := follow(t, sourcetest.WriteFiles(t, map[string]string{"a.yaml": whole}))
	expectObjects(t, f, "Pod shop/api, Pod shop/db, Pod shop/web")
	since := f.states() - 1
	for range 2 {
		last := time.Now()
		file, err := os.OpenFile(filepath.Join(f.dir, "a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk([]byte(whole), len(whole)/3+1) {
			time.Sleep(2 * inPlaceFor)
			now := time.Now()
			if _, err := file.Write(part); err != nil {
				t.Fatal(err)
			}
			last, longest = now, max(longest, time.Since(last))
		}
		file.Close()
		time.Sleep(2 * inPlaceFor)
	}
	sourcetest.WriteFile(t, filepath.Join(f.dir, "fence.yaml"), sourcetest.Pod("fence", ""))
	expectObjects(t, f, "Pod shop/api, Pod shop/db, Pod shop/fence, Pod shop/web")
	if longest >= truncatedFor {
		return longest
	}
	for _, name := range []string{"Pod shop/api", "Pod shop/db", "Pod shop/web"} {
		if f.wasWithout(name, since) {
			t.Errorf("%s was gone for a while: %v", name, f.history)
		}
	}
	if f.log.Count("a.yaml:") > 0 {
		t.Errorf("log:\n%s", f.log)
	}
	return longest
}

func TestADirectoryThatVanishesStaysInForce(t *testing.T) {
	dir := t.TempDir()
	sourcetest.WriteFile(t, filepath.Join(dir, "a/a.yaml"), sourcetest.Pod("web", ""))
	f := follow(t, dir, func(f *Follower) { f.every = 20 * time.Millisecond })
	expectObjects(t, f, "Pod shop/web")
	sourcetest.Rename(t, dir, dir+".away")
	t.Cleanup(func() { _ = os.RemoveAll(dir + ".away") })
	sourcetest.Eventually(t, "reported", func() bool { return f.errors() == 1 })
	expectObjects(t, f, "Pod shop/web")
	sourcetest.Rename(t, dir+".away", dir)
	sourcetest.WriteFile(t, filepath.Join(dir, "b.yaml"), sourcetest.Pod("db", ""))
	expectObjects(t, f, "Pod shop/db, Pod shop/web")
	sourcetest.Eventually(t, "well again", func() bool { return f.errors() == 0 })
}

// TestADirectoryThatVanishesWhileItIsReadStaysInForce: what was listed and cannot be found is not removed if all of the
// directory is gone.
func readOnce(t *testing.T, d *Directory) Result {
	t.Helper()
	r, err := d.Read(manifest.Parse)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestADirectoryThatVanishesWhileItIsReadStaysInForce(t *testing.T) {
	for _, c := range []struct{ name, file, at string }{
		{"before a directory below it is read", "a/a.yaml", "a"},
		{"before its files are read", "b.yaml", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sourcetest.WriteFiles(t, map[string]string{"a/empty.yaml": "", c.file: sourcetest.Pod("web", "")})
			t.Cleanup(func() { _ = os.RemoveAll(dir + ".away") })
			d, err := Open(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			expectNames(t, readOnce(t, d), "Pod shop/web")
			gone := d.read(&scan{parse: manifest.Parse, watch: func(next string) {
				if next == filepath.Join(dir, c.at) {
					sourcetest.Rename(t, dir, dir+".away")
				}
			}})
			expectNames(t, gone, "Pod shop/web")
			if len(gone.Problems) != 1 || gone.Problems[0].Path != dir {
				t.Errorf("the problems are %v", gone.Problems)
			}
			sourcetest.Rename(t, dir+".away", dir)
			removed := d.read(&scan{parse: manifest.Parse, watch: func(next string) {
				if next == filepath.Join(dir, c.at) {
					_ = os.Remove(filepath.Join(dir, c.file))
				}
			}})
			expectNames(t, removed, "")
		})
	}
}

// TestADirectoryWhoseFilesVanishAllTheTimeStaysInForce: it never holds still for a walk, which says nothing about what
// was removed.
func TestADirectoryWhoseFilesVanishAllTheTimeStaysInForce(t *testing.T) {
	dir := sourcetest.WriteFiles(t, map[string]string{"a.yaml": sourcetest.Pod("web", ""), "b/empty.yaml": ""})
	d, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, readOnce(t, d), "Pod shop/web")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	restless := d.read(&scan{parse: manifest.Parse, watch: func(next string) {
		if next == dir {
			sourcetest.WriteFile(t, filepath.Join(dir, "c.yaml"), "")
		} else {
			_ = os.Remove(filepath.Join(dir, "c.yaml"))
		}
	}})
	expectNames(t, restless, "Pod shop/web")
	if len(restless.Problems) != 1 || !strings.Contains(restless.Problems[0].Text, "vanish all the time") {
		t.Errorf("the problems are %v", restless.Problems)
	}
	expectNames(t, readOnce(t, d), "")
}

func TestManyProblemsOfAFileAreCut(t *testing.T) {
	f := follow(t, sourcetest.WriteFiles(t, map[string]string{"a.yaml": strings.Repeat("---\nx: y\n", maxReported+5)}))
	sourcetest.Eventually(t, "the rest is counted", func() bool { return f.log.Count(f.dir+"/a.yaml: and 5 problems more") == 1 })
	if n := f.log.Count("has no apiVersion"); n != maxReported {
		t.Errorf("%d problems are logged:\n%s", n, f.log)
	}
}

// TestAnEventIsBelievedBeforeAStamp: two writes within one tick of the file system's clock leave the same stamp, and an
// event makes the difference.
func TestAnEventIsBelievedBeforeAStamp(t *testing.T) {
	dir := sourcetest.WriteFiles(t, map[string]string{"a.yaml": sourcetest.Pod("one", "")})
	path := filepath.Join(dir, "a.yaml")
	d, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	readOnce(t, d)
	sourcetest.WriteFile(t, path, sourcetest.Pod("two", ""))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	d.files[path].stamp = stampOf(info)
	if got := namesOf(readOnce(t, d)); got != "Pod shop/one" {
		t.Errorf("%s: a file was read although there was no event", got)
	}
	f := d.Follow()
	defer f.Close()
	f.dirty[path] = true
	time.Sleep(truncatedFor + inPlaceFor) // the reading does not wait any more
	if got := namesOf(f.Read()); got != "Pod shop/two" {
		t.Errorf("%s: a file was not read although there was an event", got)
	}
}

// TestS74_AFileThatIsRenamedAndBrokenIsNotGone: its last valid content stays in force until it can be read.
func TestS74_AFileThatIsRenamedAndBrokenIsNotGone(t *testing.T) {
	f := follow(t, sourcetest.WriteFiles(t, map[string]string{"a/a.yaml": sourcetest.Pod("one", ""), "b.yaml": sourcetest.Pod("two", "")}))
	expectObjects(t, f, "Pod shop/one, Pod shop/two")
	sourcetest.WriteFile(t, filepath.Join(f.dir, ".new/b.yaml"), "{")
	sourcetest.Rename(t, filepath.Join(f.dir, "a"), filepath.Join(f.dir, ".old"))
	sourcetest.Rename(t, filepath.Join(f.dir, ".new"), filepath.Join(f.dir, "c"))
	sourcetest.Eventually(t, "unsynced", func() bool { return f.unsynced() == 1 })
	sourcetest.WriteFile(t, filepath.Join(f.dir, "fence.yaml"), sourcetest.Pod("fence", ""))
	expectObjects(t, f, "Pod shop/fence, Pod shop/one, Pod shop/two")
	sourcetest.WriteFile(t, filepath.Join(f.dir, "c/b.yaml"), sourcetest.Pod("three", ""))
	expectObjects(t, f, "Pod shop/fence, Pod shop/three, Pod shop/two")
}

// TestS74_TheFirstReadingIsPatient with a file that is only partly written.
func TestS74_TheFirstReadingIsPatient(t *testing.T) {
	intime(t, func() (took, limit time.Duration) { return readFirst(t), truncatedFor })
}

// readFirst expects that a file counts as read with its second part, and returns how long that took to come.
func readFirst(t *testing.T) time.Duration {
	t.Helper()
	dir, start := t.TempDir(), time.Now()
	path := filepath.Join(dir, "a.yaml")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(text string) {
		if _, err := file.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	write(sourcetest.Pod("one", ""))
	written := make(chan time.Duration, 1)
	time.AfterFunc(truncatedFor/2, func() {
		write("---\n" + sourcetest.Pod("two", ""))
		written <- time.Since(start)
	})
	f := follow(t, dir)
	sourcetest.Eventually(t, "complete", func() bool { return f.completeWith() != "" && f.unsynced() == 0 })
	took := <-written
	if got := f.completeWith(); took < truncatedFor && got != "Pod shop/one, Pod shop/two" {
		t.Errorf("it counts as complete with %s", got)
	}
	return took
}
