package failclosed

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/paper"
)

// harness is the fail-closed filter of node1, which gets pods as text, as in
//
//	shop/web {node: node1, addrs: [10.32.1.2]}    the pod is so now
//	delete shop/web                               it is gone
//	vanish shop/web                               it is gone, and had not finished
//	node 10.32.1.1                                the node itself has the addresses
//
// Pods of namespaces that begin with "in" are isolated for ingress, those of "out" for egress, those of "both" in both
// directions.
type harness struct {
	*testing.T
	*Filter
	index  *index.Index
	tables [len(npc.Families)]*dataplane.Table
	facts  Facts
	// allowed are the sets of the local pods that nothing isolates.
	allowed [len(npc.Families)][]*dataplane.Set
}

// ranges are those that an operator gives.
func ranges(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func newHarness(t *testing.T, configure func(*enforce.Config), events ...string) *harness {
	c := enforce.Config{NodeName: "node1", ForwardJump: true, FailClosed: enforce.FailClosedAuto, PodRanges: ranges("10.32.1.0/24", "fd32:1::/64")}
	if configure != nil {
		configure(&c)
	}
	w := &harness{T: t, tables: dataplane.NewTables(), facts: Facts{Now: time.Unix(1000, 0), Synced: true}}
	w.index = index.New(index.Config{NodeName: "node1", MaxListSize: 1024}, w.tables)
	w.Filter = New(c, w.tables, w.index)
	for f := range w.tables {
		for _, d := range npc.Directions {
			w.allowed[f] = append(w.allowed[f], w.tables[f].Sets.AddFixed(naming.DefaultAllow(d), ipset.HashIP, "not isolated, "+d.String()))
		}
	}
	w.do(events...)
	return w
}

// isolation returns the directions that a pod is isolated in.
func isolation(p *index.Pod) [len(npc.Directions)]bool {
	both := strings.HasPrefix(p.Namespace, "both")
	return [len(npc.Directions)]bool{both || strings.HasPrefix(p.Namespace, "in"), both || strings.HasPrefix(p.Namespace, "out")}
}

// do applies events, and updates the fail-closed filter after each.
func (w *harness) do(events ...string) {
	w.Helper()
	for _, e := range events {
		w.follow(w.event(e))
		w.update()
	}
	w.update()
}

// follow places the pods that a change affects, as the controller does.
func (w *harness) follow(c index.Change) {
	for _, t := range c.Transfers {
		w.Transfer(t)
	}
	for _, p := range c.Affected() {
		members := w.Memberships(p, nil)
		for d, is := range isolation(p) {
			for _, a := range p.Owned() {
				if p.Local() && !is {
					members = append(members, index.Membership{Set: w.allowed[npc.FamilyOf(a)][d], Entry: ipset.Addr(a)})
				}
			}
		}
		w.index.Place(p, members)
		w.Follow(p, isolation(p))
	}
}

// update counts the isolated pods, and updates the fail-closed filter.
func (w *harness) update() {
	w.facts.Isolated = [len(npc.Directions)]int{}
	for p := range w.index.LocalPods() {
		for d, is := range isolation(p) {
			if is {
				w.facts.Isolated[d]++
			}
		}
	}
	stale := w.Stale(w.facts) || slices.ContainsFunc(w.tables[:], (*dataplane.Table).Stale)
	w.Update(w.facts)
	if !stale && slices.ContainsFunc(w.tables[:], (*dataplane.Table).Stale) {
		w.Error("an update changed sets that were said not to be stale")
	}
}

// event applies an event.
func (w *harness) event(text string) index.Change {
	w.Helper()
	what, rest, _ := strings.Cut(text, " ")
	switch what {
	case "node":
		return w.index.SetNodeAddrs(fixture.Addrs(rest))
	case "delete", "vanish":
		p := w.pod(rest)
		c := w.index.DeletePod(p)
		for _, t := range c.Transfers {
			if what == "vanish" && t.From == p {
				w.Vanish(t.Addr, p, isolation(p), w.facts.Now)
			}
		}
		if what == "vanish" {
			w.VanishUnlisted(p, isolation(p), w.facts.Now)
		}
		return c
	}
	p := fixture.Pod(what)
	fixture.Read(w, rest, &p)
	return w.index.SetPod(p)
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

// restart returns a filter of the same node that has read what this one left in the kernel, after other events.
func (w *harness) restart(events ...string) *harness {
	w.Helper()
	next := newHarness(w.T, nil, events...)
	for f, kernel := range paper.New() {
		if err := kernel.Apply(w.tables[f].Plan(dataplane.Options{})); err != nil {
			w.Fatal(err)
		}
		sets, _ := kernel.Read()
		next.tables[f].LoadSets(sets)
	}
	return next
}

// recall recalls the deleted pods, and updates the filter.
func (w *harness) recall() {
	w.Helper()
	for f := range w.tables {
		w.Recall(npc.Family(f), w.allowed[f], w.facts)
	}
	w.Update(w.facts)
}

// entryTexts returns a line for each entry of sets, with its comment.
func entryTexts(sets ...*dataplane.Set) (out []string) {
	for _, s := range sets {
		for e, st := range s.States() {
			if !st.Wanted {
				continue
			}
			line := fmt.Sprintf("%s: %s", e, st.Want.Comment)
			if st.Want.NoMatch {
				line = "not " + line
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// drops fails if the fail-closed filter drops other packets in a direction than those of the given entryTexts, of both
// families.
func (w *harness) drops(d npc.Direction, want string) {
	w.Helper()
	expect(w.T, d.String(), want, w.Sets(npc.IPv4)[d], w.Sets(npc.IPv6)[d])
}

// expect fails if sets do not have the given entryTexts.
func expect(t *testing.T, about, want string, sets ...*dataplane.Set) {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(want, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	if diff := cmp.Diff(lines, entryTexts(sets...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", about, diff)
	}
}
