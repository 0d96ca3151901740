package controller_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/staging"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// preview is a history with staged policies.
type preview struct {
	*generator
	sink *staging.Sink
	// what is staged, by name
	policies map[string]*networkingv1.NetworkPolicy
	cluster  map[string]*v1alpha2.ClusterNetworkPolicy
	// differing counts verdicts that a group changes.
	differing int
}

// newPreview begins with some pods and policies, and nothing staged.
func newPreview(t *testing.T, rt *rapid.T) *preview {
	g := &generator{history: newHistory(t, rt), t: rt, tiers: moreSteps}
	r := &preview{generator: g, policies: map[string]*networkingv1.NetworkPolicy{}, cluster: map[string]*v1alpha2.ClusterNetworkPolicy{}}
	r.names = nil // what staged policies ask for is not learned
	r.Learn(nil, nil)
	r.sink = staging.New(r.Model.Controller, staging.Config{Mode: staged.All, Stage: controller.StageOf(r.Model.Controller), Report: func(staging.Notice) {}})
	for _, name := range someNamespaces {
		r.setNamespace(name, pick(g, someLabels, "labels"))
	}
	for range 6 {
		r.somePod()
		r.somePolicy()
	}
	return r
}

// stageOne stages, edits or unstages a policy at random.
func (r *preview) stageOne() {
	if rapid.IntRange(0, 5).Draw(r.t, "unstage") == 0 {
		r.unstageOne()
		return
	}
	annotations := map[string]string{staged.Annotation: pick(r.generator, []string{"true", "w"}, "group")}
	names := []string{"p", "q", "r", "missing"}
	switch rapid.IntRange(0, 2).Draw(r.t, "what it does") {
	case 0:
		annotations[staged.ReplacesAnnotation] = pick(r.generator, names, "replaces")
	case 1:
		annotations[staged.RemovesAnnotation] = pick(r.generator, names, "removes")
	}
	if r.chance(40, "cluster policy") {
		p := r.drawClusterPolicy([]string{"s", "t", "u"})
		p.Annotations = annotations
		r.cluster[p.Name] = p
		r.sink.SetClusterPolicy(p.DeepCopy())
		return
	}
	p := r.drawPolicy([]string{"s", "t", "u"})
	p.Annotations = annotations
	r.policies[p.Namespace+"/"+p.Name] = p
	r.sink.SetPolicy(p.DeepCopy())
}

func (r *preview) unstageOne() {
	if keys := slices.Sorted(maps.Keys(r.policies)); len(keys) > 0 {
		p := r.policies[pick(r.generator, keys, "unstaged")]
		delete(r.policies, p.Namespace+"/"+p.Name)
		r.sink.DeletePolicy(p.Namespace, p.Name, p.UID)
	}
	if keys := slices.Sorted(maps.Keys(r.cluster)); len(keys) > 0 {
		p := r.cluster[pick(r.generator, keys, "unstaged")]
		delete(r.cluster, p.Name)
		r.sink.DeleteClusterPolicy(p.Name, p.UID)
	}
}

// in returns the state as it would be if the staged policies of a group were applied, and the names of the staged
// policies.
func (r *preview) in(harness string) (state, map[string]bool) {
	s, members := r.clone(), map[string]bool{}
	for key, p := range r.policies {
		if p.Annotations[staged.Annotation] != harness {
			continue
		}
		members[key] = true
		delete(s.policies, p.Namespace+"/"+p.Annotations[staged.ReplacesAnnotation])
		delete(s.policies, p.Namespace+"/"+p.Annotations[staged.RemovesAnnotation])
	}
	for name, p := range r.cluster {
		if p.Annotations[staged.Annotation] != harness {
			continue
		}
		members[name] = true
		delete(s.cluster, p.Annotations[staged.ReplacesAnnotation])
		delete(s.cluster, p.Annotations[staged.RemovesAnnotation])
	}
	for key := range members {
		if p := r.policies[key]; p != nil && p.Annotations[staged.RemovesAnnotation] == "" {
			s.policies["staged/"+key] = p
		}
		if p := r.cluster[key]; p != nil && p.Annotations[staged.RemovesAnnotation] == "" {
			s.cluster["staged/"+key] = p
		}
	}
	return s, members
}

// compare compares the groups' verdicts about every packet with those of the reference model.
func (r *preview) compare() {
	lookup := r.Model
	is := r.state.evaluated()
	would, members := map[string]refmodel.State{}, map[string]map[string]bool{}
	for _, harness := range []string{"true", "w"} {
		s, of := r.in(harness)
		would[harness], members[harness] = s.evaluated(), of
	}
	r.cells(is, func(p refmodel.Packet) {
		if conflicting(p, is) {
			return
		}
		r.evaluated++
		now := is.Allowed(cluster.Node, p)
		want := map[string]bool{}
		for harness, j := range would {
			if v := j.Allowed(cluster.Node, p); v != now {
				want[harness] = v
			}
		}
		f := verdict.Flow{From: p.Src, To: p.Dst, Service: flow.Service{Protocol: packetProtocols[p.Protocol], Port: uint16(p.Port)}}
		_, differences := lookup.Differences(f)
		got := map[string]bool{}
		for _, d := range differences {
			got[d.Group] = d.Allowed
			if !members[d.Group][d.Policy] {
				r.t.Fatalf("%v: %s is no staged policy of group %s", p, d.Policy, d.Group)
			}
		}
		if r.differing += len(want); !maps.Equal(got, want) {
			r.t.Fatalf("%v: other verdicts in %v, must be in %v", p, got, want)
		}
	})
}

// TestS100_RandomStagedPolicies adds, replaces and removes policies of both kinds in two groups at random: the packets
// whose verdict a group changes are those of the reference model, the staged policy that decides is named, and nothing
// of it reaches the kernel.
func TestS100_RandomStagedPolicies(t *testing.T) {
	rehearsals, packets, differing := 0, 0, 0
	defer func() {
		t.Logf("%d rehearsals, %d packets, %d of them with another verdict", rehearsals, packets, differing)
	}()
	rapid.Check(t, func(rt *rapid.T) {
		r := newPreview(t, rt)
		r.Sync()
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			for range rapid.IntRange(1, 4).Draw(rt, "staged") {
				r.stageOne()
			}
			if r.compare(); r.chance(50, "a step") {
				r.step()
				r.Again(false)
				r.check()
				r.compare()
			}
		}
		rehearsals, packets, differing = rehearsals+1, packets+r.evaluated, differing+r.differing
	})
}

// TestS100_TheDecidingPolicyIsNamed covers each way that a staged policy can decide.
func TestS100_TheDecidingPolicyIsNamed(t *testing.T) {
	const denyAll, allowAll = `{podSelector: {}}`, `{podSelector: {}, ingress: [{}]}`
	tier := func(tier string, priority int, action string) string {
		return fmt.Sprintf(`{tier: %s, priority: %d, subject: {namespaces: {}}, ingress: [{action: %s, from: [{namespaces: {}}]}]}`, tier, priority, action)
	}
	for _, c := range []struct {
		name             string
		enforced, staged []string // "name annotations spec"
		want             string
	}{
		{"nothing_staged", []string{"a/p|" + denyAll}, nil, "denied"},
		{"a_default_deny", nil, []string{"a/s|" + denyAll}, "allowed; true: denied by a/s"},
		{"a_default_deny_with_its_allow", nil, []string{"a/s|" + denyAll, "a/t|" + allowAll}, "allowed"},
		{"an_allow", []string{"a/p|" + denyAll}, []string{"a/s|" + allowAll}, "denied; true: allowed by a/s, rule 1 of a/s"},
		{"a_replacement", []string{"a/p|" + allowAll}, []string{"a/s replaces=p|" + denyAll}, "allowed; true: denied by a/s"},
		{"a_removal_of_isolation", []string{"a/p|" + denyAll}, []string{"a/s removes=p|" + denyAll}, "denied; true: allowed by a/s"},
		{"a_removal_of_an_allow", []string{"a/p|" + allowAll, "a/q|" + denyAll}, []string{"a/s removes=p|" + denyAll}, "allowed; true: denied by a/s"},
		{"two_groups", nil, []string{"a/s|" + denyAll, "a/t group=w|" + allowAll, "a/u group=w|" + denyAll, "a/v group=x|" + denyAll},
			"allowed; true: denied by a/s; x: denied by a/v"},
		{"invalid", nil, []string{`a/s|{podSelector: {}, policyTypes: [Sideways]}`}, "allowed"},
		{"an_admin_deny", nil, []string{"s|" + tier("Admin", 1, "Deny")}, "allowed; true: denied by s, rule 1 of s"},
		{"an_admin_accept_before_a_deny", []string{"p|" + tier("Admin", 5, "Deny")}, []string{"s|" + tier("Admin", 4, "Accept")},
			"denied; true: allowed by s, rule 1 of s"},
		{"an_admin_accept_after_a_deny", []string{"p|" + tier("Admin", 5, "Deny")}, []string{"s|" + tier("Admin", 6, "Accept")}, "denied"},
		{"an_admin_pass", []string{"p|" + tier("Admin", 5, "Accept"), "a/q|" + denyAll}, []string{"s|" + tier("Admin", 4, "Pass")},
			"allowed; true: denied by s"},
		{"a_pass_that_is_taken_away", []string{"p|" + tier("Admin", 4, "Pass"), "q|" + tier("Admin", 5, "Deny")},
			[]string{"s removes=p|" + tier("Admin", 1, "Accept")}, "allowed; true: denied by s, rule 1 of q"},
		{"a_baseline_deny_under_isolation", []string{"a/p|" + allowAll}, []string{"s|" + tier("Baseline", 1, "Deny")}, "allowed"},
		{"isolation_over_a_baseline_deny", []string{"p|" + tier("Baseline", 1, "Deny")}, []string{"a/s|" + allowAll}, "denied; true: allowed by a/s, rule 1 of a/s"},
		{"isolation_goes_and_a_baseline_deny_comes", []string{"a/p|" + allowAll, "q|" + tier("Baseline", 1, "Deny")}, []string{"a/s removes=p|" + allowAll},
			"allowed; true: denied by a/s, rule 1 of q"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.Namespace("a", "team=a")
			w.Pod("a/web", "10.32.1.2", "app=web")
			w.Pod("a/client", "10.32.1.3", "app=client")
			sink := staging.New(w.Model.Controller, staging.Config{Mode: staged.All, Stage: controller.StageOf(w.Model.Controller), Report: func(staging.Notice) {}})
			for i, list := range [][]string{c.enforced, c.staged} {
				for _, text := range list {
					deliverPolicy(t, sink, text, i == 1)
				}
			}
			w.Sync()
			f := verdict.Flow{From: netip.MustParseAddr("10.32.1.3"), To: netip.MustParseAddr("10.32.1.2"), Service: flow.Service{Protocol: 6, Port: 80}}
			v, differences := w.Model.Differences(f)
			words := map[bool]string{true: "allowed", false: "denied"}
			got := []string{words[v.Allowed]}
			for _, d := range differences {
				text := fmt.Sprintf("%s: %s by %s", d.Group, words[d.Allowed], d.Policy)
				if d.By.Number > 0 {
					text += fmt.Sprintf(", rule %d of %s", d.By.Number, d.By.Policy)
				}
				got = append(got, text)
			}
			if got := strings.Join(got, "; "); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// deliverPolicy delivers a policy that is written as "name|spec" or as "name annotation=value|spec".
func deliverPolicy(t *testing.T, to *staging.Sink, text string, stage bool) {
	t.Helper()
	head, spec, _ := strings.Cut(text, "|")
	key, annotation, _ := strings.Cut(head, " ")
	var annotations map[string]string
	if stage {
		annotations = map[string]string{staged.Annotation: "true"}
		switch name, value, _ := strings.Cut(annotation, "="); name {
		case "":
		case "group":
			annotations[staged.Annotation] = value
		default:
			annotations["weave-npc/"+name] = value
		}
	}
	if !strings.Contains(key, "/") {
		p := fixture.ClusterPolicy(t, key, spec)
		p.Annotations = annotations
		to.SetClusterPolicy(p)
		return
	}
	p := fixture.Policy(t, key, spec)
	p.Annotations = annotations
	to.SetPolicy(p)
}

// TestS100_GroupsAreBounded: a namespace with many groups costs others none of theirs, and its policies beyond the
// limit are named.
func TestS100_GroupsAreBounded(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "")
	w.Namespace("b", "")
	w.Pod("a/web", "10.32.1.2", "")
	w.Pod("b/web", "10.32.1.3", "")
	stage := controller.StageOf(w.Model.Controller)
	put := func(key, harness string) {
		namespace, name, _ := strings.Cut(key, "/")
		stage.StagePolicy(staged.Key{Namespace: namespace, Name: name}, staged.Operation{Group: harness, Adds: true}, fixture.Policy(t, key, `{podSelector: {}}`))
	}
	for i := range 10 {
		put(fmt.Sprintf("a/p%d", i), fmt.Sprintf("w%d", i))
	}
	put("a/again", "w0")
	put("b/p", "z")
	w.Sync()
	for to, want := range map[string]string{"10.32.1.2": "w0 w1 w2 w3 w4 w5 w6 w7", "10.32.1.3": "z"} {
		_, differences := w.Model.Differences(verdict.Flow{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr(to), Service: flow.Service{Protocol: 6, Port: 80}})
		var harnesses []string
		for _, d := range differences {
			harnesses = append(harnesses, d.Group)
		}
		if got := strings.Join(harnesses, " "); got != want {
			t.Errorf("%s: %s, want %s", to, got, want)
		}
	}
	want := map[staged.Key]string{}
	for i := 8; i < 10; i++ {
		want[staged.Key{Namespace: "a", Name: fmt.Sprint("p", i)}] = fmt.Sprintf(
			"8 other groups come before group w%d, and no more are evaluated of a namespace or of the cluster", i)
	}
	if got := stage.Faults("a"); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestS100_GroupsFollowTheObjects: labels, enforced policies and staged ones change between verdicts on the same flow.
func TestS100_GroupsFollowTheObjects(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "")
	w.Pod("a/web", "10.32.1.2", "app=web")
	stage := controller.StageOf(w.Model.Controller)
	key := staged.Key{Namespace: "a", Name: "deny"}
	put := func(spec string) {
		stage.StagePolicy(key, staged.Operation{Group: "true", Adds: true}, fixture.Policy(t, "a/deny", spec))
	}
	w.Sync()
	for _, c := range []struct {
		name   string
		change func()
		want   string
	}{
		{"nothing is staged", func() {}, "allowed"},
		{"a policy for other pods", func() { put(`{podSelector: {matchLabels: {app: db}}}`) }, "allowed"},
		{"the pod has other labels", func() { w.Relabel("a/web", "app=db") }, "allowed, but for true"},
		{"something enforced denies it", func() { w.Policy("a/p", `{podSelector: {}}`) }, "denied"},
		{"and goes", func() { w.DeletePolicy("a/p") }, "allowed, but for true"},
		{"the staged one is edited", func() { put(`{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`) }, "allowed"},
		{"and goes", func() { stage.Unstage(key) }, "allowed"},
	} {
		c.change()
		w.Again(false)
		v, differences := w.Model.Differences(verdict.Flow{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("10.32.1.2"),
			Service: flow.Service{Protocol: 6, Port: 80}})
		got := map[bool]string{true: "allowed", false: "denied"}[v.Allowed]
		for _, d := range differences {
			got += ", but for " + d.Group
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
