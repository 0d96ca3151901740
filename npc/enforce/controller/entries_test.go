package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// wide returns a policy of the pods with a label app, whose ports from 80 on are each open to other pods of the cluster:
// n sets that have all of its pods but those with a label.
func wide(app, without string, n int) string {
	var rules []string
	for i := range n {
		rules = append(rules, fmt.Sprintf(`{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [
			{key: %s%d, operator: DoesNotExist}]}}], ports: [{port: %d}]}`, without, i, 80+i))
	}
	return fmt.Sprintf(`{podSelector: {matchLabels: {app: %s}}, ingress: [%s]}`, app, strings.Join(rules, ", "))
}

// crowd adds pods of other nodes.
func (w *harness) crowd(from, to int) {
	for i := from; i < to; i++ {
		w.Remote(fmt.Sprint("crowd/p", i), fmt.Sprintf("10.33.1.%d,fd33:1::%x", i+1, i+1), "app=crowd")
	}
}

// TestS76_SetsOfPodsCount as entries of the policies that ask for them: a few selectors of all pods of a large cluster
// are millions. They count once for all policies of a namespace.
func TestS76_SetsOfPodsCount(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := start(t, func(c *enforce.Config) {
			c.Budget = quota.Default()
			c.Budget.Entries = quota.Limit{Policy: 120, Namespace: 200, Node: 1000}
		})
		for i, ns := range []string{"a", "b"} {
			w.Namespace(ns)
			w.Pod(ns+"/one", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+2, 10*i+2), "app=one")
			w.Pod(ns+"/two", fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*i+3, 10*i+3), "app=two")
		}
		w.Namespace("crowd")
		w.crowd(0, 30) // 34 pods
		w.Sync()
		denied := func(want string) {
			t.Helper()
			w.reportedFor(": --max-entries (namespace|policy)=N$", want)
		}
		w.Policy("a/1", wide("one", "x", 3))
		w.Policy("a/2", wide("two", "x", 3)) // the same sets
		w.Again(false)
		w.Expect(`
			crowd/p1 > a/one tcp:82 = yes
			crowd/p1 > a/two tcp:82 = yes`)
		denied("")
		w.Policy("b/1", wide("one", "y", 4)) // more than a policy may have
		w.Policy("b/2", wide("two", "z", 3))
		w.Again(false)
		denied("b/1")
		w.Expect(`
			crowd/p1 > a/one tcp:82 = yes
			crowd/p1 > b/one tcp:80 = no
			crowd/p1 > b/two tcp:82 = yes`)
		w.Policy("a/3", wide("two", "w", 3)) // more than the namespace may have
		w.Again(false)
		denied("a/3")
		w.Expect(`
			crowd/p1 > a/one tcp:82 = yes
			crowd/p1 > a/two tcp:82 = yes`)
		w.DeletePolicy("a/1")
		w.DeletePolicy("a/2")
		w.Again(false)
		w.Expect("crowd/p1 > a/two tcp:82 = yes") // a/3 has room now
		w.crowd(30, 80)                           // 84 pods: a namespace has room for two of the sets
		w.Again(false)
		denied("a/3 b/1 b/2") // b/1 needs other numbers now
		w.Expect(`
			crowd/p1 > a/one tcp:82 = yes
			crowd/p79 > b/two tcp:82 = no
			crowd/p1 > a/two tcp:82 = no`)
		w.Policy("b/2", wide("two", "z", 1))
		w.Again(false)
		denied("")
		w.Expect("crowd/p79 > b/two tcp:80 = yes")
	})
}

// TestS76_SetsOfPodsCountAlikeAfterARestart, in whatever order the objects come then.
func TestS76_SetsOfPodsCountAlikeAfterARestart(t *testing.T) {
	policies := map[string]string{"a/1": wide("one", "x", 2), "a/2": wide("two", "y", 2), "a/3": wide("two", "x", 1)}
	for _, order := range [][]string{{"a/1", "a/2", "a/3"}, {"a/3", "a/2", "a/1"}} {
		for _, early := range []bool{true, false} {
			w := newHarness(t, func(c *enforce.Config) {
				c.Budget = quota.Default()
				c.Budget.Entries = quota.Limit{Policy: 120, Namespace: 130, Node: 1000}
			})
			if !early {
				w.crowd(0, 40)
			}
			w.Namespace("a")
			w.Namespace("crowd")
			w.Pod("a/one", "10.32.1.2,fd32:1::2", "app=one")
			w.Pod("a/two", "10.32.1.3,fd32:1::3", "app=two")
			for _, name := range order {
				w.Policy(name, policies[name])
			}
			if early {
				w.crowd(0, 40)
			}
			w.Sync()
			for _, p := range w.Model.Unreported() {
				if p.Name != "2" {
					t.Errorf("%v, policies early = %t: %s is reported for %q", order, early, p.Name, p.Reason)
				}
			}
			w.Expect("crowd/p1 > a/one tcp:81 = yes\n crowd/p1 > a/two tcp:80 = yes\n crowd/p1 > a/two tcp:81 = no")
		}
	}
}
