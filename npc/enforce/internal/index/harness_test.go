package index

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// harness is an index of node1 that gets events as text:
//
//	shop/web {node: node1, addrs: [10.32.1.2]}    the pod is so now
//	delete shop/web                               it is gone
//	namespace shop {labels: {team: a}}            the namespace is so now
//	delete namespace shop                         it is gone
//	node 10.32.1.1                                the node itself has the addresses
type harness struct {
	*testing.T
	*Index
}

func newHarness(t *testing.T, events ...string) *harness {
	w := &harness{t, New(Config{NodeName: "node1", MaxListSize: 1024}, dataplane.NewTables())}
	w.do(events...)
	return w
}

// do applies events, and places the pods that they affect.
func (w *harness) do(events ...string) {
	w.Helper()
	for _, e := range events {
		if what, rest, _ := strings.Cut(e, " "); what == "namespace" || strings.HasPrefix(e, "delete namespace ") {
			w.namespace(strings.TrimPrefix(rest, "namespace "), what == "delete")
			continue
		}
		w.place(w.event(e))
	}
}

// namespace sets or deletes a namespace.
func (w *harness) namespace(text string, gone bool) NamespaceChange {
	w.Helper()
	name, rest, _ := strings.Cut(text, " ")
	n := npc.Namespace{Name: name}
	fixture.Read(w, rest, &n)
	if gone {
		return w.DeleteNamespace(name, n.UID)
	}
	return w.SetNamespace(n)
}

// event applies an event of pods or of the node, and checks what the comment of Change says.
func (w *harness) event(text string) Change {
	w.Helper()
	c := w.apply(text)
	owners := map[netip.Addr]*Pod{}
	for _, t := range c.Transfers {
		if before, again := owners[t.Addr]; t.From == t.To || again && t.From != before {
			w.Errorf("%s: transfers are not in order: %s", text, describe(c))
		}
		owners[t.Addr] = t.To
	}
	for a, owner := range owners {
		if owner != w.Addresses.Owner(a) {
			w.Errorf("%s: the owner of %s is not who it went to last: %s", text, a, describe(c))
		}
	}
	return c
}

func (w *harness) apply(text string) Change {
	w.Helper()
	what, rest, _ := strings.Cut(text, " ")
	switch what {
	case "delete":
		return w.DeletePod(w.pod(rest))
	case "node":
		return w.SetNodeAddrs(fixture.Addrs(rest))
	}
	p := fixture.Pod(what)
	fixture.Read(w, rest, &p)
	return w.SetPod(p)
}

// place puts the pods that a change affects where the index itself wants them.
func (w *harness) place(c Change) {
	for _, p := range c.Affected() {
		w.Place(p, nil)
	}
}

// pod returns a pod by its namespace/name.
func (w *harness) pod(key string) *Pod {
	w.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	p := w.Pod(namespace, name)
	if p == nil {
		w.Fatalf("there is no pod %s", key)
	}
	return p
}

// use renders a policy and provisions its sets. It returns what ends that.
func (w *harness) use(key, spec string) (o *dataplane.Owner, end func()) {
	w.Helper()
	o = &dataplane.Owner{}
	o.Namespace, o.Name, _ = strings.Cut(key, "/")
	sets := w.Sets.Provision(w.render(key, spec), o)
	return o, func() { w.Sets.Deprovision(sets, o) }
}

// render returns the sets that a policy asks for.
func (w *harness) render(key, spec string) []rules.Set {
	w.Helper()
	p := policy.Compile(fixture.Policy(w, key, spec), quota.Default())
	if p.Invalid != nil {
		w.Fatal(p.Invalid)
	}
	namespace, _, _ := strings.Cut(key, "/")
	rendered := rules.Render(&p, namespace, key, w.Sets.FitsList)
	of := rendered.Sets
	for _, r := range slices.Concat(rendered.Rules[:]...) {
		if r.Peer != nil && r.Family == npc.IPv4 { // it is once for both
			of = append(of, *r.Peer)
		}
	}
	return of
}

// holds fails if the sets of a family do not hold what is wanted: a line for each set that is in use or has members, by
// what it is about, with its members.
func (w *harness) holds(f npc.Family, want string) {
	w.Helper()
	if diff := cmp.Diff(lines(want), lines(w.text(f))); diff != "" {
		w.Errorf("%s sets (-want +got):\n%s", f, diff)
	}
}

func lines(text string) (out []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// text returns the sets of a family.
func (w *harness) text(f npc.Family) string {
	all, names := []*dataplane.Set{w.tables[f].Local}, map[string]string{}
	for _, use := range w.Sets.Uses() {
		if use.Set.Family() == f {
			all, names[use.Set.Name] = append(all, use.Set), use.Set.About()
		}
	}
	var out strings.Builder
	for _, s := range all {
		var members []string
		for e, st := range s.States() {
			switch about, isSet := names[e.Set], e.Set != ""; {
			case !st.Wanted:
			case isSet:
				members = append(members, "["+about+"]")
			default:
				who := strings.Fields(st.Want.Comment)
				text := fmt.Sprintf("%s of %s", e, who[len(who)-1])
				if st.Want.NoMatch {
					text = "not " + text
				}
				members = append(members, text)
			}
		}
		slices.Sort(members)
		fmt.Fprintf(&out, "%s: %s\n", s.About(), strings.Join(members, ", "))
	}
	return out.String()
}

// empty fails if anything is left of the sets that policies used.
func (w *harness) empty() {
	w.Helper()
	s := w.Sets
	if len(s.selectors)+len(s.fixed)+len(s.ofNamespace)+len(s.namespaceSelectors) > 0 || !s.cluster.Empty() || len(s.Uses()) > 0 {
		w.Errorf("left: %d selectors, %d other sets, %d namespaces, %d selectors of namespaces, %d uses",
			len(s.selectors), len(s.fixed), len(s.ofNamespace),
			len(s.namespaceSelectors), len(s.Uses()))
	}
	for _, t := range w.tables {
		t.Activate()
		if text := t.Plan(dataplane.Options{}).String(); strings.Count(text, "\ncreate ") != 1 || !strings.Contains(text, "create weave-local-pods") {
			w.Errorf("sets are left:\n%s", text)
		}
	}
}

// describe returns a change as text: the pod, the addresses that changed hands, and who else is affected.
func describe(c Change) string {
	name := func(p *Pod) string {
		if p == nil {
			return "none"
		}
		return p.String()
	}
	var parts []string
	if c.Pod != nil {
		text := name(c.Pod)
		if c.WasLocal {
			text += " was local"
		}
		if c.Reselected {
			text += " reselected"
		}
		parts = append(parts, text)
	}
	for _, t := range c.Transfers {
		text := fmt.Sprintf("%s: %s > %s", t.Addr, name(t.From), name(t.To))
		if t.WasLocal {
			text += " was local"
		}
		if t.WasPeer {
			text += " was peer"
		}
		parts = append(parts, text)
	}
	var others []string
	for _, p := range c.Others {
		others = append(others, p.String())
	}
	slices.Sort(others)
	for _, o := range others {
		parts = append(parts, "alongside "+o)
	}
	return strings.Join(parts, "; ")
}
