package npc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/budget"
)

// tight are limits that a few policies reach.
func tight(c *npc.Config) {
	c.Budget = budget.Default()
	c.Budget.Rules = budget.Limit{Policy: 10, Namespace: 12, Node: 20}
}

// ports is a spec with so many rules that let clients in.
func ports(target string, n int) string {
	var rules []string
	for i := range n {
		rules = append(rules, fmt.Sprintf("{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: %d}]}", 80+i))
	}
	return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, ingress: [%s]}", target, strings.Join(rules, ","))
}

// reported checks which policies are reported as invalid since the last call.
func (w *world) reported(want string) {
	w.Helper()
	var got []string
	for _, p := range w.model.Unreported() {
		if w.Logf("%s/%s: %s", p.Namespace, p.Name, p.Reason); !strings.Contains(p.Reason, ": --max-rules ") {
			w.Errorf("%s/%s is reported for %q", p.Namespace, p.Name, p.Reason)
		}
		got = append(got, p.Namespace+"/"+p.Name)
	}
	slices.Sort(got)
	if strings.Join(got, " ") != want {
		w.Errorf("reported are %v, not %q", got, want)
	}
}

// TestS76_PoliciesOverBudget isolate what they select and allow nothing, take nothing from others, and heal when there is room.
func TestS76_PoliciesOverBudget(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := start(t, tight)
		for i, ns := range []string{"a", "b", "c"} {
			w.namespace(ns)
			w.pod(ns+"/one", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+2, 10*i+2), "app=one")
			w.pod(ns+"/two", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+3, 10*i+3), "app=two")
			w.pod(ns+"/client", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+4, 10*i+4), "app=client")
		}
		w.policy("a/1", ports("one", 8))
		w.policy("a/2", ports("two", 5)) // 13 in the namespace
		w.policy("b/1", ports("one", 11))
		w.policy("c/1", ports("one", 8))
		w.sync()
		w.reported("a/2 b/1")
		w.expect(`
			a/client > a/one tcp:80 = yes
			a/client > a/two tcp:80 = no
			a/client > a/two tcp:9 = no
			b/client > b/one tcp:80 = no
			b/client > b/two tcp:80 = yes
			c/client > c/one tcp:87 = yes`)
		w.policy("b/1", ports("one", 4)) // mended: 8, 4 and 8 on the node
		w.again(false)
		w.reported("")
		w.expect("b/client > b/one tcp:83 = yes\n c/client > c/one tcp:80 = yes\n a/client > a/two tcp:80 = no")
		w.policy("b/1", ports("one", 5)) // that is too much for the node, and b comes before c
		w.again(false)
		w.reported("c/1")
		w.expect("b/client > b/one tcp:84 = yes\n c/client > c/one tcp:80 = no\n c/client > c/two tcp:80 = yes")
		w.again(false)
		w.policy("c/1", ports("one", 8))
		w.again(true)
		w.reported("")
		w.relabel("a/one", "app=none") // a/1 selects nobody any more
		w.again(false)
		w.reported("")
		w.expect("a/client > a/two tcp:84 = yes\n c/client > c/one tcp:87 = yes\n a/client > a/one tcp:9 = yes")
		w.relabel("a/one", "app=one")
		w.again(false)
		w.reported("a/2 c/1")
		w.expect("a/client > a/one tcp:80 = yes\n a/client > a/two tcp:80 = no\n c/client > c/one tcp:80 = no\n b/client > b/one tcp:80 = yes")
		for _, name := range []string{"a/1", "a/2", "b/1", "c/1"} {
			w.deletePolicy(name)
		}
		w.again(false)
		w.reported("")
		w.expect("a/client > a/two tcp:9 = yes\n c/client > c/one tcp:9 = yes")
		if left := w.model.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// TestS76_WhoIsOverBudgetIsTheSameAfterARestart, in whatever order the objects come then.
func TestS76_WhoIsOverBudgetIsTheSameAfterARestart(t *testing.T) {
	names := []string{"a/1", "a/2", "b/1", "b/2", "c/1"}
	var first []string
	for turn := range len(names) {
		w := newWorld(t, tight)
		tell := func(names []string) {
			for _, name := range names {
				w.policy(name, ports("one", 6))
			}
		}
		tell(names[turn:])
		for i, ns := range []string{"a", "b", "c"} {
			w.namespace(ns)
			w.pod(ns+"/one", fmt.Sprintf("10.32.1.%d", 10*i+2), "app=one")
		}
		if turn%2 == 0 {
			w.sync()
		}
		tell(names[:turn])
		w.sync()
		w.tidyUp()
		lines := w.kernels[0].Lines()
		if first == nil {
			first = lines
		}
		if !slices.Equal(lines, first) {
			t.Fatalf("heard of from %s on, the kernel holds\n%s\nand not\n%s", names[turn], strings.Join(lines, "\n"), strings.Join(first, "\n"))
		}
	}
}
