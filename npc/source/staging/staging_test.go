package staging_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/staging"
)

// theatre takes what is enforced and what is staged.
type theatre struct {
	*cluster.Cluster
	staged map[staged.Key]staged.Operation
	faults map[staged.Key]string
	said   []string
}

func (x *theatre) StagePolicy(k staged.Key, c staged.Operation, _ *networkingv1.NetworkPolicy) {
	x.staged[k] = c
}

func (x *theatre) StageClusterPolicy(k staged.Key, c staged.Operation, _ *v1alpha2.ClusterNetworkPolicy) {
	x.staged[k] = c
}

func (x *theatre) Unstage(k staged.Key) { delete(x.staged, k) }

func (x *theatre) Faults(string) map[staged.Key]string { return x.faults }

// text returns what is enforced and what is staged.
func (x *theatre) text() string {
	var lines []string
	v := x.View()
	for _, p := range v.Policies {
		lines = append(lines, "enforced "+p.Key())
	}
	for _, p := range v.ClusterPolicies {
		lines = append(lines, "enforced "+p.Name)
	}
	for k, c := range x.staged {
		line := fmt.Sprintf("staged %s in %s", k.Policy(), c.Group)
		if k.Apart {
			line += " apart"
		}
		if c.Adds {
			line += ", adds"
		}
		if c.Takes != "" {
			line += ", takes " + c.Takes
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// take returns what was said since the last call.
func (x *theatre) take() string {
	said := strings.Join(x.said, "\n")
	x.said = nil
	return said
}

func newTheatre(mode staged.Mode) (*theatre, *staging.Sink) {
	x := &theatre{Cluster: cluster.New(), staged: map[staged.Key]staged.Operation{}}
	return x, staging.New(x, staging.Config{Mode: mode, Stage: x, Report: func(n staging.Notice) {
		line := n.Key.Policy() + ": " + n.Text
		if !n.Wrong {
			line = "(" + line + ")"
		}
		x.said = append(x.said, line)
	}})
}

// meta reads "shop/db staged=true removes=x"; a policy's UID is its name.
func meta(text string) (m metav1.ObjectMeta) {
	words := strings.Fields(text)
	m.Namespace, m.Name, _ = strings.Cut(words[0], "/")
	if m.Name == "" {
		m.Namespace, m.Name = "", m.Namespace
	}
	m.UID = types.UID(m.Name)
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		metav1.SetMetaDataAnnotation(&m, "weave-npc/"+name, value)
	}
	return m
}

// set delivers a policy, a ClusterNetworkPolicy if it has no namespace.
func set(to source.Sink, text string) {
	m := meta(text)
	if m.Namespace == "" {
		to.SetClusterPolicy(&v1alpha2.ClusterNetworkPolicy{ObjectMeta: m})
		return
	}
	to.SetPolicy(&networkingv1.NetworkPolicy{ObjectMeta: m})
}

// TestS101_S102_PoliciesAreEnforcedOrStaged as their annotations and --staged say, and what is not as they say is
// reported.
func TestS101_S102_PoliciesAreEnforcedOrStaged(t *testing.T) {
	for _, c := range []struct {
		name       string
		mode       staged.Mode
		deliver    []string
		want, said string
	}{
		{"none", staged.All, []string{"shop/db", "deny"}, "enforced deny\nenforced shop/db", ""},
		{"off", staged.Off, []string{"shop/db staged=true", "deny staged=true"}, "enforced deny\nenforced shop/db",
			"deny: it is enforced: weave-npc runs with --staged=off\nshop/db: it is enforced: weave-npc runs with --staged=off"},
		{"namespaces", staged.Namespaces, []string{"shop/db staged=true", "deny staged=true"}, "enforced deny\nstaged shop/db in true, adds",
			"deny: it is enforced: weave-npc runs with --staged=namespaces"},
		{"all", staged.All, []string{"shop/db staged=w", "deny staged=true"}, "staged deny in true, adds\nstaged shop/db in w, adds", ""},
		{"no_group", staged.All, []string{"shop/db staged=No"}, "enforced shop/db",
			`shop/db: it is enforced: weave-npc/staged is "No", neither "true" nor a name of lower case letters, digits and -, at most 63`},
		{"replaces", staged.All, []string{"shop/db", "shop/next staged=true replaces=db"}, "enforced shop/db\nstaged shop/next in true, adds, takes db", ""},
		{"replaces_nothing", staged.All, []string{"ops/db", "shop/next staged=true replaces=db"},
			"enforced ops/db\nstaged shop/next in true, adds, takes db",
			"shop/next: weave-npc/replaces names db, which is not enforced: it counts as an addition"},
		{"removes_what_comes_later", staged.All, []string{"shop/next staged=true removes=db", "shop/db"}, "enforced shop/db\nstaged shop/next in true, takes db", ""},
		{"removes_what_is_staged", staged.All, []string{"shop/next staged=true removes=db", "shop/db staged=true"},
			"staged shop/db in true, adds\nstaged shop/next in true, takes db",
			"shop/next: weave-npc/removes names db, which is not enforced: it changes nothing in its group"},
		{"of_another_kind", staged.All, []string{"deny", "shop/next staged=true removes=deny"}, "enforced deny\nstaged shop/next in true, takes deny",
			"shop/next: weave-npc/removes names deny, which is not enforced: it changes nothing in its group"},
		{"both", staged.All, []string{"shop/db", "shop/next staged=true removes=db replaces=db"}, "enforced shop/db\nstaged shop/next in true",
			"shop/next: it is staged and changes nothing in its group: it has both weave-npc/replaces and weave-npc/removes"},
		{"forgotten", staged.All, []string{"shop/db", "shop/next replaces=db"}, "enforced shop/db\nenforced shop/next",
			"shop/next: it is enforced: weave-npc/replaces and weave-npc/removes have no effect without weave-npc/staged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, s := newTheatre(c.mode)
			for _, text := range c.deliver {
				set(s, text)
			}
			if said := x.take(); said != "" {
				t.Errorf("said before all is known: %s", said)
			}
			s.SetSynced()
			if diff := cmp.Diff(c.want, x.text()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(c.said, x.take()); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}

// TestS102_AnnotationsComeAndGo while a policy is there: it is in one place at any time, and each change is said once.
func TestS102_AnnotationsComeAndGo(t *testing.T) {
	x, s := newTheatre(staged.All)
	s.SetSynced()
	for _, c := range []struct {
		name       string
		change     func()
		want, said string
	}{
		{"enforced", func() { set(s, "shop/db") }, "enforced shop/db", ""},
		{"the annotation comes", func() { set(s, "shop/db staged=true") }, "staged shop/db in true, adds", "(shop/db: it is staged: it is not enforced any more)"},
		{"again", func() { set(s, "shop/db staged=true") }, "staged shop/db in true, adds", ""},
		{"another group", func() { set(s, "shop/db staged=w") }, "staged shop/db in w, adds", ""},
		{"a wrong value", func() { set(s, "shop/db staged=W") }, "enforced shop/db",
			`shop/db: it is enforced: weave-npc/staged is "W", neither "true" nor a name of lower case letters, digits and -, at most 63`},
		{"still", func() { set(s, "shop/db staged=W") }, "enforced shop/db", ""},
		{"it goes", func() { set(s, "shop/db") }, "enforced shop/db", ""},
		{"one that replaces it", func() { set(s, "shop/next staged=w replaces=db") }, "enforced shop/db\nstaged shop/next in w, adds, takes db", ""},
		{"it is deleted", func() { s.DeletePolicy("shop", "db", "db") }, "staged shop/next in w, adds, takes db",
			"shop/next: weave-npc/replaces names db, which is not enforced: it counts as an addition"},
		{"another one is deleted", func() { s.DeletePolicy("shop", "next", "former") }, "staged shop/next in w, adds, takes db", ""},
		{"its rules are wrong", func() {
			x.faults = map[staged.Key]string{{Namespace: "shop", Name: "next"}: "it is broken"}
			set(s, "shop/next staged=w")
		}, "staged shop/next in w, adds", "shop/next: it is broken"},
		{"the staged one is deleted", func() { s.DeletePolicy("shop", "next", "") }, "", ""},
		{"a cluster policy", func() { set(s, "deny staged=true") }, "staged deny in true, adds", ""},
		{"it is deleted too", func() { s.DeleteClusterPolicy("deny", "deny") }, "", ""},
	} {
		c.change()
		if got := x.text(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if said := x.take(); said != c.said {
			t.Errorf("%s, said: %s\nwant %s", c.name, said, c.said)
		}
	}
}

// TestS101_PoliciesApart are staged without annotations too, and take the place of the enforced ones of their names.
func TestS101_PoliciesApart(t *testing.T) {
	x, s := newTheatre(staged.Namespaces)
	set(s, "shop/db")
	set(s, "shop/web staged=true")
	apart := s.Apart()
	for _, text := range []string{"shop/db", "shop/web", "shop/new", "shop/old removes=db", "shop/w staged=w replaces=gone", "shop/x staged=Wrong", "deny"} {
		set(apart, text)
	}
	s.SetSynced()
	want := `enforced shop/db
staged shop/db in true apart, adds, takes db
staged shop/new in true apart, adds, takes new
staged shop/old in true apart, takes db
staged shop/w in w apart, adds, takes gone
staged shop/web in true apart, adds, takes web
staged shop/web in true, adds`
	if diff := cmp.Diff(want, x.text()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	said := `deny: it is not staged: weave-npc runs with --staged=namespaces
shop/w: weave-npc/replaces names gone, which is not enforced: it counts as an addition
shop/x: it is not staged: weave-npc/staged is "Wrong", neither "true" nor a name of lower case letters, digits and -, at most 63`
	if diff := cmp.Diff(said, x.take()); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	if got, want := s.Counts(), (staging.Counts{Staged: 6, Faulty: 1, Refused: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, name := range []string{"db", "web", "new", "old", "w", "x"} {
		apart.DeletePolicy("shop", name, types.UID(name))
	}
	if diff := cmp.Diff("enforced shop/db\nstaged shop/web in true, adds", x.text()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
