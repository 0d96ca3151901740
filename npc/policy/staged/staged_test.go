package staged_test

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// TestS101_Annotations stage a policy only with a value that is understood, and it does one thing to its group or
// nothing.
func TestS101_Annotations(t *testing.T) {
	for _, c := range []struct {
		name, annotations string
		want              staged.Operation
		is                bool
		problem           string
	}{
		{"none", "", staged.Operation{}, false, ""},
		{"others", "owner=shop", staged.Operation{}, false, ""},
		{"true", "staged=true", staged.Operation{Group: "true", Adds: true}, true, ""},
		{"a_group", "staged=rollout-7", staged.Operation{Group: "rollout-7", Adds: true}, true, ""},
		{"false", "staged=false", staged.Operation{}, false, "without the annotation"},
		{"empty", "staged=", staged.Operation{}, false, `is "", neither`},
		{"upper_case", "staged=True", staged.Operation{}, false, `is "True", neither`},
		{"two_words", "staged=a,b", staged.Operation{}, false, "neither"},
		{"a_subdomain", "staged=a.b", staged.Operation{}, false, "neither"},
		{"too_long", "staged=" + strings.Repeat("a", 64), staged.Operation{}, false, "neither"},
		{"replaces", "staged=true replaces=db", staged.Operation{Group: "true", Adds: true, Takes: "db"}, true, ""},
		{"removes", "staged=true removes=db.old", staged.Operation{Group: "true", Takes: "db.old"}, true, ""},
		{"both", "staged=true removes=a replaces=b", staged.Operation{Group: "true"}, true, "it has both"},
		{"replaces_no_name", "staged=true replaces=shop/db", staged.Operation{Group: "true"}, true, `"shop/db" is not the name`},
		{"removes_no_name", "staged=true removes=*", staged.Operation{Group: "true"}, true, `"*" is not the name`},
		{"forgotten", "replaces=db", staged.Operation{}, false, "no effect without weave-npc/staged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			annotations := map[string]string{}
			for _, a := range strings.Fields(c.annotations) {
				if key, value, found := strings.Cut(a, "="); found {
					annotations["weave-npc/"+key] = value
				}
			}
			got, is, problem := staged.Read(annotations)
			if got != c.want || is != c.is || !strings.Contains(problem, c.problem) || (problem == "") != (c.problem == "") {
				t.Errorf("%+v, %t, %q", got, is, problem)
			}
		})
	}
}

// TestS102_Modes cover kinds of policies.
func TestS102_Modes(t *testing.T) {
	for mode, want := range map[staged.Mode][2]bool{staged.Off: {}, staged.Namespaces: {true, false}, staged.All: {true, true}} {
		if got := [2]bool{mode.Covers(false), mode.Covers(true)}; got != want {
			t.Errorf("%s: %v", mode, got)
		}
	}
}
