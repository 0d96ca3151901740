package directory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// files returns valid files a, b, c and so on, with these texts, written one minute after another.
func files(t *testing.T, texts ...string) (out []File) {
	t.Helper()
	for i, text := range texts {
		path := string(rune('a'+i)) + ".yaml"
		f := manifest.Parse(path, []byte(text))
		if len(f.Problems) > 0 {
			t.Fatal(f.Problems)
		}
		out = append(out, File{Path: path, Objects: f.Objects, Ignored: f.Ignored,
			Modified: metav1.Unix(int64(60*i), 0)})
	}
	return out
}

// taken returns the updates: "+Pod shop/web@1" is a new or changed object with its resource version, "-Pod shop/web@1"
// a removed one.
func taken(s *Store) []string {
	var out []string
	for kind, updates := range s.Take() {
		for _, u := range updates {
			sign := "+"
			if u.Removed {
				sign = "-"
			}
			out = append(out, fmt.Sprintf("%s%s %s@%s", sign, kind, u.Key, u.Object.(metav1.Object).GetResourceVersion()))
		}
	}
	slices.Sort(out)
	return out
}

func TestReplaceKeepsDifferences(t *testing.T) {
	s := New()
	held := map[runtime.Object]runtime.Object{} // object -> as it was when the store had it first
	for _, step := range []struct {
		name    string
		texts   []string
		changes UpdateCounts
		want    []string
	}{
		{"new objects, and the namespace that they name", []string{sourcetest.Pod("web", "v: one"), sourcetest.Policy("deny")}, UpdateCounts{Added: 3},
			[]string{"+Namespace /shop@1", "+NetworkPolicy shop/deny@1", "+Pod shop/web@1"}},
		{"nothing", []string{sourcetest.Pod("web", "v: one"), sourcetest.Policy("deny")}, UpdateCounts{}, nil},
		{"moved to another file", []string{"", sourcetest.Policy("deny") + "---\n" + sourcetest.Pod("web", "v: one")}, UpdateCounts{}, nil},
		{"changed", []string{sourcetest.Pod("web", "v: two"), sourcetest.Policy("deny")}, UpdateCounts{Changed: 1}, []string{"+Pod shop/web@2"}},
		{"removed", []string{sourcetest.Pod("web", "v: two")}, UpdateCounts{Removed: 1}, []string{"-NetworkPolicy shop/deny@1"}},
		{"all removed, and the namespace that they named", nil, UpdateCounts{Removed: 2}, []string{"-Namespace /shop@1", "-Pod shop/web@2"}},
	} {
		merged := s.Replace(files(t, step.texts...))
		if merged.Changes != step.changes || len(merged.Problems) > 0 {
			t.Errorf("%s: %+v", step.name, merged)
		}
		if diff := cmp.Diff(step.want, taken(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		for _, kind := range kinds() {
			for _, o := range s.Objects(kind) {
				if held[o] == nil {
					held[o] = o.DeepCopyObject()
				}
			}
		}
		for o, was := range held {
			if diff := cmp.Diff(was, o); diff != "" {
				t.Errorf("%s: an object that was handed out has changed:\n%s", step.name, diff)
			}
		}
	}
}

func TestTheFirstOfSeveralFilesCounts(t *testing.T) {
	s := New()
	merged := s.Replace(files(t, sourcetest.Pod("web", "v: a"), "---\n"+sourcetest.Pod("web", "v: b")))
	if len(merged.Problems) != 1 || merged.Problems[0].Error() != "b.yaml:2: Pod shop/web: is already in a.yaml:1, which counts" {
		t.Errorf("problems %v", merged.Problems)
	}
	pods := s.Objects(manifest.KindPod)
	if len(pods) != 1 || pods[0].(metav1.Object).GetLabels()["v"] != "a" {
		t.Errorf("pods %v", pods)
	}
}

func TestObjectsAreAsOldAsTheirFirstFile(t *testing.T) {
	s := New()
	s.Replace(files(t, "", sourcetest.Pod("web", "v: one")))
	s.Replace(files(t, "", "", sourcetest.Pod("web", "v: two")))
	for _, kind := range []string{manifest.KindPod, manifest.KindNamespace} {
		o := s.Objects(kind)[0].(metav1.Object)
		if got := o.GetCreationTimestamp(); !got.Time.Equal(time.Unix(60, 0)) {
			t.Errorf("%s was created at %v", kind, got)
		}
	}
}

func TestOtherKindsAndNodesAreAddedUp(t *testing.T) {
	secret, node := "apiVersion: v1\nkind: Secret\n", "apiVersion: v1\nkind: Node\nmetadata: {name: here}\n"
	merged := New().Replace(files(t, secret+"---\n"+secret, secret+"---\n"+node))
	if diff := cmp.Diff(map[string]int{"v1 Secret": 3}, merged.Ignored); diff != "" || !merged.Nodes["here"] {
		t.Errorf("%v (-want +got):\n%s", merged, diff)
	}
}
