package networkpolicy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// harness is the isolation of the pods of node1. It gets events as text, and after each it assigns and places pods as
// the controller does:
//
//	shop/web {node: node1, addrs: [10.32.1.2]}    the pod is so now
//	delete shop/web                               it is gone
//	namespace shop {labels: {team: a}}            the namespace is so now
//	policy shop/p {podSelector: {}}               the policy is so now
//	delete policy shop/p                          it is gone
type harness struct {
	*testing.T
	*Isolation
	index  *index.Index
	tables [len(npc.Families)]*dataplane.Table
	limits quota.Limits
	// created is how many policies were made: each was made after the ones before.
	created int
}

func newHarness(t *testing.T, configure func(*Config), events ...string) *harness {
	w := newUnsynced(t, configure)
	w.SetSynced()
	w.do(events...)
	return w
}

// newUnsynced returns one for which it is not known what objects there were at the start.
func newUnsynced(t *testing.T, configure func(*Config)) *harness {
	c := Config{Budget: quota.Default(), Sharding: DefaultSharding()}
	if configure != nil {
		configure(&c)
	}
	w := &harness{T: t, tables: dataplane.NewTables(), limits: c.Budget}
	w.index = index.New(index.Config{NodeName: "node1", MaxListSize: 1024}, w.tables)
	base := &rules.Base{PodInterface: "cni0", Hooked: true, AllowAction: "ACCEPT", NFLogGroup: 86}
	var roots [len(npc.Directions)][len(npc.Families)]*dataplane.Chain
	for f := range w.tables {
		for d, root := range w.tables[f].Chains.AddBase(base) {
			roots[d][f] = root
		}
	}
	w.Isolation = New(c, w.index, w.tables, base, roots)
	return w
}

// do applies events, each with all that follows it.
func (w *harness) do(events ...string) {
	w.Helper()
	for _, e := range events {
		w.reconcile(w.event(e))
		for d, tree := range w.sharding.trees {
			if !slices.IsSortedFunc(tree.shards, byBits) || len(slices.Compact(slices.Clone(tree.shards))) < len(tree.shards) {
				w.Errorf("%s: shards are not in the order of their bits, or there twice, %s", e, npc.Direction(d))
			}
		}
	}
}

// event applies an event, and nothing that follows it.
func (w *harness) event(text string) (c index.Change) {
	w.Helper()
	what, rest, _ := strings.Cut(text, " ")
	gone := what == "delete"
	if gone {
		what, rest, _ = strings.Cut(rest, " ")
	}
	switch {
	case what == "policy":
		w.policy(rest, gone)
		w.ReconcileBudget()
	case what == "namespace":
		name, facts, _ := strings.Cut(rest, " ")
		n := npc.Namespace{Name: name}
		fixture.Read(w, facts, &n)
		change := w.index.SetNamespace(n)
		w.Refit(change.Refit)
		if change.DefaultDeny {
			w.Reisolate(name)
		}
	case gone:
		c = w.index.DeletePod(w.pod(what))
		if c.Reselected {
			w.Reselect(c.Pod)
		}
	default:
		p := fixture.Pod(what)
		fixture.Read(w, rest, &p)
		c = w.index.SetPod(p)
		if c.Reselected {
			w.Reselect(c.Pod)
		}
	}
	return c
}

// policy sets or deletes a policy.
func (w *harness) policy(text string, gone bool) {
	w.Helper()
	key, spec, _ := strings.Cut(text, " ")
	namespace, name, _ := strings.Cut(key, "/")
	if gone {
		w.DeletePolicy(namespace, name, types.UID(spec))
		return
	}
	o := fixture.Policy(w, key, spec)
	w.created++
	o.CreationTimestamp = metav1.Time{Time: time.Unix(int64(w.created), 0)}
	w.SetPolicy(Compile(o, w.limits))
}

// memberships returns the memberships of a pod whose addresses other local pods may claim that are isolated.
func (w *harness) memberships(p *index.Pod) []index.Membership {
	contested := map[netip.Addr]index.Contest{}
	for _, a := range p.Owned() {
		c := contested[a]
		for _, q := range w.index.Addresses.Others(a) {
			for d, is := range w.Of(q) {
				c.Denied[d] = c.Denied[d] || is
			}
		}
		contested[a] = c
	}
	return w.Memberships(p, [2]bool{}, contested, nil)
}

// reconcile does what follows an event. It returns the pods that isolation moved.
func (w *harness) reconcile(c index.Change) []string {
	moved := w.Assign()
	for _, p := range append(slices.Clone(moved), c.Affected()...) {
		w.index.Place(p, w.memberships(p))
	}
	w.Prune()
	w.Write()
	return names(moved)
}

func names(pods []*index.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}

// pod returns a pod by its namespace/name.
func (w *harness) pod(key string) *index.Pod {
	w.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	p := w.index.Pod(namespace, name)
	if p == nil {
		w.Fatalf("there is no pod %s", key)
	}
	return p
}
