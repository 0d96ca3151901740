package staged_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// TestS102_StatusDependsOnTheMode checks that policies of a kind that cannot be staged are enforced, and that this is
// said of those with the annotation and of those that are never enforced.
func TestS102_StatusDependsOnTheMode(t *testing.T) {
	const refused = "weave-npc runs with --staged=namespaces"
	with := map[string]string{staged.Annotation: "true"}
	for _, c := range []struct {
		name        string
		key         staged.Key
		annotations map[string]string
		staged      bool
		problem     string
	}{
		{"plain", staged.Key{Namespace: "shop", Name: "p"}, nil, false, ""},
		{"annotated", staged.Key{Namespace: "shop", Name: "p"}, with, true, ""},
		{"of_another_kind", staged.Key{Name: "p"}, with, false, refused},
		{"plain_of_another_kind", staged.Key{Name: "p"}, nil, false, ""},
		{"apart", staged.Key{Name: "p", Apart: true}, nil, false, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := staged.Namespaces.Status(c.key, c.annotations)
			if s.Staged != c.staged || s.Problem != c.problem {
				t.Errorf("staged is %t, %q", s.Staged, s.Problem)
			}
		})
	}
}
