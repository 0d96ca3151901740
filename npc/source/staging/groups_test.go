package staging_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/npc/source/staging"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// objects returns policies that are written as "name annotation=value ..." or as "name annotation=value ...|spec".
func objects(t *testing.T, texts ...string) (o snapshot.Objects) {
	t.Helper()
	for _, text := range texts {
		head, spec, _ := strings.Cut(text, "|")
		words := strings.Fields(head)
		annotations := map[string]string{}
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			annotations["weave-npc/"+name] = value
		}
		if strings.Contains(words[0], "/") {
			p := fixture.Policy(t, words[0], spec)
			p.Annotations = annotations
			o.Policies = append(o.Policies, p)
			continue
		}
		if spec == "" {
			spec = `{tier: Admin, subject: {namespaces: {}}}`
		}
		p := fixture.ClusterPolicy(t, words[0], spec)
		p.Annotations = annotations
		o.ClusterPolicies = append(o.ClusterPolicies, p)
	}
	return o
}

// names returns the policies of some objects.
func names(o snapshot.Objects) string {
	var all []string
	for _, p := range o.Policies {
		all = append(all, p.Namespace+"/"+p.Name)
	}
	for _, p := range o.ClusterPolicies {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// text returns the groups, with the policies of each and what is wrong.
func text(t *testing.T, w *staging.Groups) string {
	t.Helper()
	lines := []string{"enforced: " + names(w.Enforced)}
	if !slices.IsSortedFunc(w.Staged, func(p, q staging.StagedPolicy) int {
		return cmp.Or(strings.Compare(p.Group, q.Group), strings.Compare(p.Key.Namespace, q.Key.Namespace), strings.Compare(p.Key.Name, q.Key.Name))
	}) {
		t.Errorf("staged policies are not in the order of their groups, namespaces and names: %v", w.Staged)
	}
	for _, group := range w.Names() {
		in, err := w.In(group)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, group+": "+names(in))
	}
	for _, p := range w.Staged {
		if p.Problem != "" {
			lines = append(lines, fmt.Sprintf("%s in %s: %s", p.Key.Policy(), p.Group, p.Problem))
		}
	}
	for _, n := range w.Refused {
		lines = append(lines, n.Key.Policy()+": "+n.Problem)
	}
	return strings.Join(lines, "\n")
}

// TestS100_GroupsOfObjects are what would be enforced if their staged policies were applied.
func TestS100_GroupsOfObjects(t *testing.T) {
	const sideways = `{podSelector: {}, policyTypes: [Sideways]}`
	for _, c := range []struct {
		name     string
		mode     staged.Mode
		policies []string
		want     string
	}{
		{"nothing_staged", staged.All, []string{"a/p", "q"}, "enforced: a/p q"},
		{"additions", staged.All, []string{"a/p", "a/s staged=true", "s staged=true"}, "enforced: a/p\ntrue: a/p a/s s"},
		{"a_replacement", staged.All, []string{"a/p", "b/p", "p", "a/s staged=true replaces=p"}, "enforced: a/p b/p p\ntrue: a/s b/p p"},
		{"a_removal", staged.All, []string{"a/p", "p", "s staged=true removes=p"}, "enforced: a/p p\ntrue: a/p"},
		{"groups_know_nothing_of_each_other", staged.All, []string{"a/p", "a/s staged=w replaces=p", "a/t staged=v removes=p", "a/u staged=v"},
			"enforced: a/p\nv: a/u\nw: a/s"},
		{"one_takes_what_another_one_replaces", staged.All, []string{"a/p", "a/s staged=w replaces=p", "a/t staged=w removes=p"},
			"enforced: a/p\nw: a/s"},
		{"one_that_is_staged_cannot_be_taken", staged.All, []string{"a/s staged=w", "a/t staged=w removes=s"},
			"enforced: \nw: a/s\na/t in w: weave-npc/removes names s, which is not enforced: it changes nothing in its group"},
		{"nothing_is_replaced", staged.All, []string{"a/s staged=w replaces=p"},
			"enforced: \nw: a/s\na/s in w: weave-npc/replaces names p, which is not enforced: it counts as an addition"},
		{"invalid_ones_neither_add_nor_take", staged.All, []string{"a/p", "a/s staged=w replaces=p|" + sideways},
			"enforced: a/p\nw: a/p\na/s in w: it changes nothing in its group until it is valid: spec.policyTypes: \"Sideways\" is neither Ingress nor Egress"},
		{"the_rules_of_a_removal_do_not_count", staged.All, []string{"a/p", "a/s staged=w removes=p|" + sideways}, "enforced: a/p\nw: "},
		{"inert_ones_neither_add_nor_take", staged.All, []string{"p", "s staged=w replaces=p|{tier: Middle, subject: {namespaces: {}}}"},
			"enforced: p\nw: p\ns in w: it changes nothing in its group until it is valid: spec.tier: \"Middle\" is neither Admin nor Baseline"},
		{"closed_ones_do", staged.All, []string{"p", "s staged=w replaces=p|{tier: Admin, subject: {namespaces: {}}, " +
			"egress: [{action: Deny, to: [{domainNames: [example.com]}]}]}"},
			"enforced: p\nw: s\ns in w: rules that are not understood fail closed in its group: spec.egress[0]: to[0]: domainNames: only rules of the Admin tier that accept may have them"},
		{"two_things_at_once", staged.All, []string{"a/p", "a/s staged=w replaces=p removes=p"}, "enforced: a/p\nw: a/p\n" +
			"a/s in w: it is staged and changes nothing in its group: it has both weave-npc/replaces and weave-npc/removes"},
		{"wrong_values", staged.All, []string{"a/p staged=W", "a/q removes=p"}, "enforced: a/p a/q\n" +
			"a/p: it is enforced: weave-npc/staged is \"W\", neither \"true\" nor a name of lower case letters, digits and -, at most 63\n" +
			"a/q: it is enforced: weave-npc/replaces and weave-npc/removes have no effect without weave-npc/staged"},
		{"only_in_namespaces", staged.Namespaces, []string{"a/s staged=w", "s staged=w"},
			"enforced: s\nw: a/s s\ns: it is enforced: weave-npc runs with --staged=namespaces"},
		{"off", staged.Off, []string{"a/s staged=w"}, "enforced: a/s\na/s: it is enforced: weave-npc runs with --staged=off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := gocmp.Diff(c.want, text(t, staging.Read(objects(t, c.policies...), c.mode))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestUnknownGroups are answered with the existing ones.
func TestUnknownGroups(t *testing.T) {
	for want, o := range map[string]snapshot.Objects{
		`there is no group "x"; give true or w`:      objects(t, "a/s staged=w", "a/t staged=true", "a/u staged=true"),
		`there is no group "x": no policy is staged`: objects(t, "a/s"),
	} {
		if _, err := staging.Read(o, staged.All).In("x"); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestAnnotatedPolicies are those that would be staged.
func TestAnnotatedPolicies(t *testing.T) {
	if n := staging.Annotated(objects(t, "a/p", "a/q staged=true", "a/r staged=W", "s staged=w", "t removes=s")); n != 2 {
		t.Errorf("%d", n)
	}
}
