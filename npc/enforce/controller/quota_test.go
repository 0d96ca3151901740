package controller_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// tight are limits that a few policies reach.
func tight(c *enforce.Config) {
	c.Budget = quota.Default()
	c.Budget.Rules = quota.Limit{Policy: 10, Namespace: 12, Node: 20}
}

// reported checks which policies are reported as invalid since the last call, for their rules.
func (w *harness) reported(want string) {
	w.Helper()
	w.reportedFor(": --max-rules ", want)
}

// reportedFor does so for reasons that match a pattern.
func (w *harness) reportedFor(reason, want string) {
	w.Helper()
	var got []string
	for _, p := range w.Model.Unreported() {
		if w.Logf("%s/%s: %s", p.Namespace, p.Name, p.Reason); !regexp.MustCompile(reason).MatchString(p.Reason) {
			w.Errorf("%s/%s is reported for %q", p.Namespace, p.Name, p.Reason)
		}
		got = append(got, p.Namespace+"/"+p.Name)
	}
	slices.Sort(got)
	if strings.Join(got, " ") != want {
		w.Errorf("reported are %v, not %q", got, want)
	}
}

// TestS76_PoliciesOverBudget isolate what they select and allow nothing, take nothing from others, and heal when there
// is room.
func TestS76_PoliciesOverBudget(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := start(t, tight)
		for i, ns := range []string{"a", "b", "c"} {
			w.Namespace(ns)
			w.Pod(ns+"/one", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+2, 10*i+2), "app=one")
			w.Pod(ns+"/two", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+3, 10*i+3), "app=two")
			w.Pod(ns+"/client", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+4, 10*i+4), "app=client")
		}
		w.Policy("a/1", cluster.ManyRules("one", 8))
		w.Policy("a/2", cluster.ManyRules("two", 5)) // 13 in the namespace
		w.Policy("b/1", cluster.ManyRules("one", 11))
		w.Policy("c/1", cluster.ManyRules("one", 8))
		w.Sync()
		w.reported("a/2 b/1")
		w.Expect(`
			a/client > a/one tcp:80 = yes
			a/client > a/two tcp:80 = no
			a/client > a/two tcp:9 = no
			b/client > b/one tcp:80 = no
			b/client > b/two tcp:80 = yes
			c/client > c/one tcp:87 = yes`)
		w.Policy("b/1", cluster.ManyRules("one", 4)) // repaired: 8, 4 and 8 on the node
		w.Again(false)
		w.reported("")
		w.Expect("b/client > b/one tcp:83 = yes\n c/client > c/one tcp:80 = yes\n a/client > a/two tcp:80 = no")
		w.Policy("b/1", cluster.ManyRules("one", 5)) // that is too much for the node, and b comes before c
		w.Again(false)
		w.reported("c/1")
		w.Expect("b/client > b/one tcp:84 = yes\n c/client > c/one tcp:80 = no\n c/client > c/two tcp:80 = yes")
		w.Again(false)
		w.Policy("c/1", cluster.ManyRules("one", 8))
		w.Again(true)
		w.reported("")
		w.Relabel("a/one", "app=none") // a/1 selects no pod any more
		w.Again(false)
		w.reported("")
		w.Expect("a/client > a/two tcp:84 = yes\n c/client > c/one tcp:87 = yes\n a/client > a/one tcp:9 = yes")
		w.Relabel("a/one", "app=one")
		w.Again(false)
		w.reported("a/2 c/1")
		w.Expect("a/client > a/one tcp:80 = yes\n a/client > a/two tcp:80 = no\n c/client > c/one tcp:80 = no\n b/client > b/one tcp:80 = yes")
		for _, name := range []string{"a/1", "a/2", "b/1", "c/1"} {
			w.DeletePolicy(name)
		}
		w.Again(false)
		w.reported("")
		w.Expect("a/client > a/two tcp:9 = yes\n c/client > c/one tcp:9 = yes")
		if left := w.Model.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// TestS76_WhoIsOverBudgetIsTheSameAfterARestart, in whatever order the objects come then.
func TestS76_WhoIsOverBudgetIsTheSameAfterARestart(t *testing.T) {
	names := []string{"a/1", "a/2", "b/1", "b/2", "c/1"}
	var first []string
	for turn := range len(names) {
		w := newHarness(t, tight)
		notify := func(names []string) {
			for _, name := range names {
				w.Policy(name, cluster.ManyRules("one", 6))
			}
		}
		notify(names[turn:])
		for i, ns := range []string{"a", "b", "c"} {
			w.Namespace(ns)
			w.Pod(ns+"/one", fmt.Sprintf("10.32.1.%d", 10*i+2), "app=one")
		}
		if turn%2 == 0 {
			w.Sync()
		}
		notify(names[:turn])
		w.Sync()
		w.CollectGarbage()
		lines := w.Kernels[0].Lines()
		if first == nil {
			first = lines
		}
		if !slices.Equal(lines, first) {
			t.Fatalf("heard of from %s on, the kernel holds\n%s\nand not\n%s", names[turn], strings.Join(lines, "\n"), strings.Join(first, "\n"))
		}
	}
}
