package index

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// use is a policy that uses sets, with its peers in one set if they are united.
type use struct {
	spec   string
	united bool
}

// someUses have sets of every kind that pods enter and leave, some of them in common.
func someUses() []use {
	from := func(peers string) string { return `{podSelector: {}, ingress: [{from: [` + peers + `]}]}` }
	const two = `{podSelector: {matchLabels: {app: "1"}}}, {podSelector: {matchLabels: {app: "2"}}}`
	return []use{
		{spec: from(`{podSelector: {matchLabels: {app: "1"}}}`)},
		{spec: from(two)},
		{spec: from(two), united: true},
		{spec: from(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}`)},
		{spec: from(`{namespaceSelector: {matchLabels: {team: "1"}}, podSelector: {matchLabels: {app: "2"}}}`)},
		{spec: from(`{namespaceSelector: {matchLabels: {team: "1"}}}`)},
		{spec: from(`{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}`)},
		{spec: `{podSelector: {matchLabels: {app: "1"}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`},
	}
}

// sets returns the sets that the policy uses.
func (u use) sets(w *harness) []rules.Set {
	sets := w.render("a/p", u.spec)
	if u.united {
		return []rules.Set{rules.NewPeers(sets)}
	}
	return sets
}

// uses are the policies in use, by their places in someUses, with what ends their use.
type uses map[int]func()

// TestRandomUses has pods and namespaces change while sets come into use and out of it, are counted before, and are
// written to the kernel at any time. They always hold what those of an index hold that has the same objects from the
// beginning.
func TestRandomUses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, used := newHarness(t), uses{}
		objects := map[string]string{} // what a pod or a namespace is called in events -> the event
		labels := rapid.SampledFrom([]string{`"1"`, `"2"`})
		step := func() {
			switch rapid.IntRange(0, 11).Draw(rt, "step") {
			case 0, 1, 2:
				pod := rapid.SampledFrom([]string{"a/m", "a/n", "b/m"}).Draw(rt, "pod")
				addr := rapid.IntRange(1, 2).Draw(rt, "address")
				objects[pod] = fmt.Sprintf("%s {node: node1, addrs: [10.32.%d.%d], labels: {app: %s}, ports: [{name: http, protocol: 6, port: 80}]}",
					pod, pod[0]+pod[2], addr, labels.Draw(rt, "app"))
				w.do(objects[pod])
			case 3, 4:
				name := "namespace " + rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "namespace")
				objects[name] = name + " {labels: {team: " + labels.Draw(rt, "team") + "}}"
				w.do(objects[name])
			case 5:
				if len(objects) > 0 {
					name := rapid.SampledFrom(slices.Sorted(maps.Keys(objects))).Draw(rt, "to delete")
					delete(objects, name)
					w.do("delete " + name)
				}
			case 6, 7, 8:
				used.toggle(rt, w)
			case 9, 10:
				for _, s := range rapid.SampledFrom(someUses()).Draw(rt, "counted").sets(w) {
					Count(w.Sets, s, true)
				}
			default:
				for _, table := range w.tables {
					tx := table.Plan(dataplane.Options{Known: dataplane.AllKnown})
					table.Commit(tx, tx.Taken())
				}
			}
		}
		for range rapid.IntRange(20, 60).Draw(rt, "steps") {
			step()
			fresh := newHarness(t, slices.Sorted(maps.Values(objects))...)
			for i := range used {
				fresh.Sets.Provision(someUses()[i].sets(fresh), &dataplane.Owner{})
			}
			if diff := cmp.Diff(lines(fresh.text(npc.IPv4)), lines(w.text(npc.IPv4))); diff != "" {
				rt.Fatalf("sets (-want +got):\n%s", diff)
			}
		}
	})
}

// toggle has a policy use its sets, or use them no longer.
func (u uses) toggle(rt *rapid.T, w *harness) {
	i := rapid.IntRange(0, len(someUses())-1).Draw(rt, "policy")
	if end, is := u[i]; is {
		end()
		delete(u, i)
		return
	}
	owner := &dataplane.Owner{}
	provisioned := w.Sets.Provision(someUses()[i].sets(w), owner)
	u[i] = func() { w.Sets.Deprovision(provisioned, owner) }
}
