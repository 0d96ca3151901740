package source

import (
	"fmt"
	"log/slog"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// startDirectory runs a source from a directory with these files.
func startDirectory(t *testing.T, files map[string]string) (dir string, s Source, r *recorder, log *sourcetest.Journal) {
	t.Helper()
	dir = sourcetest.WriteFiles(t, files)
	log, logger := sourcetest.NewJournal()
	s, err := FromManifests(dir, "", logger)
	if err != nil {
		t.Fatal(err)
	}
	return dir, s, start(t, s, logger), log
}

func expectObjects(t *testing.T, r *recorder, want string) {
	t.Helper()
	sourcetest.Eventually(t, want, func() bool { return r.names() == want })
}

func TestManifestsAreFollowed(t *testing.T) {
	dir, s, r, _ := startDirectory(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", "b/c.yml": sourcetest.Pod("web", "v: one"),
		"readme.txt": "---", ".hidden.yaml": "{", "..data/x.yaml": "{"})
	expectObjects(t, r, "ns shop, pod shop/web")
	if got := r.connections(Pods); len(got) != 1 || got[0] != "true" {
		t.Errorf("connected: %v", got)
	}

	// Written in place.
	sourcetest.WriteFile(t, filepath.Join(dir, "b/c.yml"), sourcetest.Pod("web", "v: two"))
	sourcetest.Eventually(t, "label changes", func() bool { return r.pod("shop/web").Labels["v"] == "two" })

	// Created, in a directory that is new.
	sourcetest.WriteFile(t, filepath.Join(dir, "new/deep/d.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"db","namespace":"shop"}}`)
	expectObjects(t, r, "ns shop, pod shop/db, pod shop/web")
	sourcetest.WriteFile(t, filepath.Join(dir, "new/deep/e.yaml"), sourcetest.Policy("deny"))
	expectObjects(t, r, "ns shop, pod shop/db, pod shop/web, policy shop/deny")

	// Renamed over.
	sourcetest.WriteFile(t, filepath.Join(dir, "new/deep/.e.tmp"), sourcetest.Policy("allow"))
	sourcetest.Rename(t, filepath.Join(dir, "new/deep/.e.tmp"), filepath.Join(dir, "new/deep/e.yaml"))
	expectObjects(t, r, "ns shop, pod shop/db, pod shop/web, policy shop/allow")

	// Renamed: nothing happens to the object.
	before := r.pod("shop/db").UID
	r.mark()
	sourcetest.Rename(t, filepath.Join(dir, "new/deep/d.json"), filepath.Join(dir, "d2.json"))
	sourcetest.WriteFile(t, filepath.Join(dir, "fence.yaml"), sourcetest.Pod("fence", ""))
	expectObjects(t, r, "ns shop, pod shop/db, pod shop/fence, pod shop/web, policy shop/allow")
	if diff := cmp.Diff([]string{"set pod shop/fence"}, r.made()); diff != "" || r.pod("shop/db").UID != before {
		t.Errorf("a rename is an event (-want +got):\n%s", diff)
	}

	// Removed, with its directory.
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	expectObjects(t, r, "ns shop, pod shop/db, pod shop/fence, pod shop/web")
	sourcetest.Remove(t, filepath.Join(dir, "a.yaml"))
	sourcetest.Remove(t, filepath.Join(dir, "d2.json"))
	expectObjects(t, r, "ns shop, pod shop/fence, pod shop/web") // the namespace is still named
	for _, name := range []string{"b/c.yml", "fence.yaml"} {
		sourcetest.Remove(t, filepath.Join(dir, name))
	}
	expectObjects(t, r, "")
	if s.Errors() != 0 {
		t.Errorf("%d files in error", s.Errors())
	}
}

func TestS70_NamedNamespacesExist(t *testing.T) {
	_, _, r, _ := startDirectory(t, map[string]string{"p.yaml": sourcetest.Pod("web", ""), "q.yaml": strings.ReplaceAll(
		sourcetest.Policy("deny"), "shop", "bank")})
	expectObjects(t, r, "ns bank, ns shop, pod shop/web, policy bank/deny")
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.namespaces["bank"]
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": "bank"}, n.Labels); diff != "" || n.UID == "" {
		t.Errorf("%v (-want +got):\n%s", n, diff)
	}
}

func TestTheFirstOfTwoFilesCounts(t *testing.T) {
	dir, s, r, log := startDirectory(t, map[string]string{"a.yaml": sourcetest.Pod("web", "v: a"), "b.yaml": sourcetest.Pod("web", "v: b")})
	report := fmt.Sprintf("%s:1: Pod shop/web: is already in %s:1, which counts", filepath.Join(dir, "b.yaml"),
		filepath.Join(dir, "a.yaml"))
	if r.pod("shop/web").Labels["v"] != "a" || s.Errors() != 1 || log.Count(report) != 1 {
		t.Errorf("%v, %d errors:\n%s", r.pod("shop/web"), s.Errors(), log)
	}
	sourcetest.Remove(t, filepath.Join(dir, "a.yaml"))
	sourcetest.Eventually(t, "the second counts", func() bool { return r.pod("shop/web").Labels["v"] == "b" && s.Errors() == 0 })
	for _, call := range r.made() {
		if strings.HasPrefix(call, "delete") {
			t.Errorf("the pod was gone for a while: %v", r.made())
		}
	}
}

// TestNothingIsMissed checks that the sink ends up with exactly the content of the directory, whatever happens
// meanwhile.
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
			sourcetest.WriteFile(t, path+"~", sourcetest.Pod(name, "v: "+version))
			sourcetest.Rename(t, path+"~", path)
			want["shop/"+name] = version
		default:
			sourcetest.WriteFile(t, path, sourcetest.Pod(name, "v: "+version))
			want["shop/"+name] = version
		}
	}
	sourcetest.Eventually(t, "the sink has the content of the directory", func() bool {
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

// TestS74_AFileThatWasNeverReadIsMissing, as the sink knows, until it has been read or is gone.
func TestS74_AFileThatWasNeverReadIsMissing(t *testing.T) {
	dir, s, r, _ := startDirectory(t, map[string]string{"a.yaml": sourcetest.Pod("one", ""), "b.yaml": "a: [\n", "sub/c.yaml": "{"})
	expectObjects(t, r, "ns shop, pod shop/one")
	if got := r.made(); len(got) < 2 || got[len(got)-1] != "synced" || got[len(got)-2] != "missing 2" {
		t.Errorf("the sink was called with %v", got)
	}
	sourcetest.Eventually(t, "the good one is old enough", func() bool { return s.Unsynced() == 2 })
	for _, want := range []string{filepath.Join(dir, "b.yaml") + ":1: ", filepath.Join(dir, "sub/c.yaml") + ":1: "} {
		if why := s.WhyUnsynced(); !strings.Contains(why, want) {
			t.Errorf("%d unsynced: %q", s.Unsynced(), why)
		}
	}
	sourcetest.Remove(t, filepath.Join(dir, "sub/c.yaml"))
	sourcetest.Eventually(t, "one is gone", func() bool { return s.Unsynced() == 1 })
	if r.isMissing() != npc.ObjectsMissing {
		t.Error("nothing is missing any more")
	}
	r.mark()
	sourcetest.WriteFile(t, filepath.Join(dir, "b.yaml"), sourcetest.Pod("two", ""))
	sourcetest.Eventually(t, "repaired", func() bool { return s.WhyUnsynced() == "" && r.isMissing() == npc.NothingMissing })
	if diff := cmp.Diff([]string{"set pod shop/two", "missing 0"}, r.made()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	// A file that is added later is not synced, and the files in force do not wait for it.
	sourcetest.WriteFile(t, filepath.Join(dir, "d.yaml"), "{")
	sourcetest.Eventually(t, "unsynced", func() bool { return s.Unsynced() == 1 })
	if r.isMissing() != npc.NothingMissing {
		t.Error("a new file makes something missing")
	}
}

// TestS74_AFileThatWasRenamedIsComplete: the source does not wait for more of it.
func TestS74_AFileThatWasRenamedIsComplete(t *testing.T) {
	dir := t.TempDir()
	sourcetest.WriteFile(t, filepath.Join(dir, ".a.yaml"), sourcetest.Pod("one", ""))
	time.Sleep(20 * time.Millisecond) // a tick of the file system's clock
	sourcetest.Rename(t, filepath.Join(dir, ".a.yaml"), filepath.Join(dir, "a.yaml"))
	s, err := FromManifests(dir, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, slog.New(slog.DiscardHandler))
	if got := r.made(); got[len(got)-1] != "synced" || strings.Contains(strings.Join(got, " "), "missing") {
		t.Errorf("the sink was called with %v", got)
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
			log, logger := sourcetest.NewJournal()
			s, err := FromManifests(dir, "here", logger)
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, s, logger)
			if why := s.WhyUnsynced(); r.isMissing() != npc.NodeMissing || !strings.Contains(why, "no manifest below "+dir) {
				t.Errorf("missing %d, %q", r.isMissing(), why)
			}
			if log.Count("no manifest is read") != 1 {
				t.Errorf("log:\n%s", log)
			}
			sourcetest.WriteFile(t, filepath.Join(dir, "a.yaml"), strings.ReplaceAll(found, "here", "there"))
			sourcetest.Eventually(t, "another", func() bool { return strings.Contains(s.WhyUnsynced(), `called "here"`) })
			sourcetest.WriteFile(t, filepath.Join(dir, "b.yaml"), strings.ReplaceAll(found, "web", "db"))
			sourcetest.Eventually(t, "known", func() bool { return s.WhyUnsynced() == "" && r.isMissing() == npc.NothingMissing })
			// Once it has been there, it is known for good.
			sourcetest.Remove(t, filepath.Join(dir, "b.yaml"))
			sourcetest.WriteFile(t, filepath.Join(dir, "c.yaml"), sourcetest.Pod("fence", ""))
			sourcetest.Eventually(t, "read", func() bool { return r.pod("shop/fence").Name != "" })
			if s.WhyUnsynced() != "" || r.isMissing() != npc.NothingMissing {
				t.Errorf("missing %d, %q", r.isMissing(), s.WhyUnsynced())
			}
		})
	}
}

// TestKindsThatAreNotUsedAreNamedOnce, and their objects counted.
func TestKindsThatAreNotUsedAreNamedOnce(t *testing.T) {
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
	dir, s, _, log := startDirectory(t, map[string]string{"a.yaml": deployment + "---\n" + deployment,
		"b.yaml": "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p}\n"})
	sourcetest.Eventually(t, "counted", func() bool { return s.Ignored() == 3 })
	sourcetest.WriteFile(t, filepath.Join(dir, "c.yaml"), deployment)
	sourcetest.Eventually(t, "counted too", func() bool { return s.Ignored() == 4 })
	if log.Count(`kind="apps/v1 Deployment" objects=2`) != 1 || log.Count("Deployment") != 1 ||
		log.Count(`level=WARN msg="policies of a kind that is not enforced are ignored" kind="cilium.io/v2 CiliumNetworkPolicy"`) != 1 {
		t.Errorf("log:\n%s", log)
	}
	for i := range 3 * maxKindsNamed {
		sourcetest.WriteFile(t, filepath.Join(dir, fmt.Sprintf("d%d.yaml", i)), fmt.Sprintf("apiVersion: v9\nkind: Odd%d\n", i))
	}
	sourcetest.Eventually(t, "all counted", func() bool { return s.Ignored() == 4+3*maxKindsNamed })
	if n := log.Count(" kind="); n != maxKindsNamed {
		t.Errorf("%d kinds are named", n)
	}
}
