package networkpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/test/golden"
)

// TestDigits shows how many binary digits distinguish the shards of a namespace, by how many targets its policies have.
func TestDigits(t *testing.T) {
	for _, c := range []struct{ policies, targets, each, want int }{
		{0, 0, 8, 0}, {1, 1, 8, 0}, {8, 8, 8, 0}, {9, 9, 8, 1}, {16, 16, 8, 1}, {17, 17, 8, 2}, {32, 32, 8, 2}, {33, 33, 8, 3},
		{100, 1, 8, 0}, {100, 8, 8, 0}, {100, 9, 8, 1}, {2, 2, 1, 1}, {3, 3, 1, 2}, {1000, 1000, 8, maxDigits}, {10_000, 10_000, 8, maxDigits},
	} {
		rs := &ruleSet{users: map[*enforced]struct{}{}}
		for i := range c.policies {
			rs.users[&enforced{Policy: &Policy{targetKey: fmt.Sprint(i % c.targets)}}] = struct{}{}
		}
		if got := rs.digits(c.each); got != c.want {
			t.Errorf("%d policies with %d targets, %d for each shard: %d digits, want %d", c.policies, c.targets, c.each, got, c.want)
		}
	}
}

// TestShardsOfANamespace shows that pods that the same targets choose are in the same shard, that a rule for pods of
// several shards stands in each, and that a pod that nothing allows is in none.
func TestShardsOfANamespace(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding = Sharding{Targets: 1, MaxLeaves: 9} })
	for i, labels := range []string{"app: a", "app: a", "app: b", "app: b, tier: db", "app: c", ""} {
		w.do(fmt.Sprintf("shop/p%d {node: node1, addrs: [10.32.1.%d], labels: {%s}}", i, i, labels))
	}
	w.do("policy shop/a {podSelector: {matchLabels: {app: a}}, ingress: [{ports: [{port: 1}]}]}",
		"policy shop/b {podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: 2}]}]}",
		"policy shop/x {podSelector: {matchLabels: {tier: db}}, ingress: [{ports: [{port: 3}]}]}",
		"policy shop/c {podSelector: {matchLabels: {app: c}}}")
	w.leads(npc.IPv4, npc.Ingress, `
		isolated pods of shop part 00: shop/p2
		-p tcp -m tcp --dport 2 dst in [local pods with app=b in shop] -j ACCEPT # shop/b rule 1
		-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it
		isolated pods of shop part 11: shop/p0 shop/p1 shop/p3
		-p tcp -m tcp --dport 1 dst in [local pods with app=a in shop] -j ACCEPT # shop/a rule 1
		-p tcp -m tcp --dport 2 dst in [local pods with app=b in shop] -j ACCEPT # shop/b rule 1
		-p tcp -m tcp --dport 3 dst in [local pods with tier=db in shop] -j ACCEPT # shop/x rule 1
		-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`)
	shards := func() map[string]*shard {
		out := map[string]*shard{}
		for q, st := range w.namespaces["shop"].pods {
			out[q.Name] = st.shards[npc.Ingress]
		}
		return out
	}
	before := shards()
	if before["p0"] == nil || before["p0"] != before["p1"] || before["p4"] != nil || before["p5"] != nil {
		t.Errorf("shards: %v", before)
	}
	w.do("shop/p9 {node: node1, addrs: [10.32.1.9], labels: {app: b, tier: db, version: '2'}}", "delete shop/p3")
	if after := shards(); after["p9"] != before["p3"] || after["p0"] != before["p0"] || after["p2"] != before["p2"] {
		t.Errorf("shards after one pod took the place of another: %v, before %v", after, before)
	}
}

// TestDispatch compares the dispatch trees of isolated pods with testdata/dispatch.txt.
func TestDispatch(t *testing.T) {
	var got strings.Builder
	for _, c := range []struct {
		about     string
		shards    int
		d         npc.Direction
		maxLeaves int
	}{
		{"one shard", 1, npc.Ingress, 2},
		{"two shards", 2, npc.Ingress, 2},
		{"three shards", 3, npc.Ingress, 2},
		{"three shards, egress", 3, npc.Egress, 2},
		{"three shards, a chain at every chance", 3, npc.Ingress, 0},
		{"nine shards", 9, npc.Ingress, 2},
		{"nine shards, one by one", 9, npc.Ingress, 9},
		{"forty shards", 40, npc.Ingress, 2},
		{"forty shards, a chain at every chance", 40, npc.Egress, 0},
	} {
		w := newHarness(t, func(config *Config) { config.Sharding.MaxLeaves = c.maxLeaves })
		for i := range c.shards {
			w.do(fmt.Sprintf("n%d/web {node: node1, addrs: [10.32.1.%d]}", i, i),
				fmt.Sprintf("policy n%d/p {podSelector: {}, policyTypes: [%s], ingress: [{}], egress: [{}]}", i, map[npc.Direction]string{
					npc.Ingress: "Ingress", npc.Egress: "Egress"}[c.d]))
		}
		tree := w.kernel(npc.IPv4).tree(t, c.d, false)
		if c.shards < 40 || c.maxLeaves > 0 {
			fmt.Fprintf(&got, "== %s\n%s", c.about, tree)
		}
		for i := range c.shards {
			if !strings.Contains(tree, fmt.Sprintf("isolated pods of n%d: n%d/web\n", i, i)) {
				t.Errorf("%s: n%d/web is not led to its rules", c.about, i)
			}
		}
	}
	golden.Compare(t, "testdata/dispatch.txt", got.String())
}

// TestDispatchIsBounded shows that no more chains follow each other than the kernel takes, whatever the namespaces are
// called.
func TestDispatchIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		bits func(i int) string
		// want is how many chains follow each other at most, with the given number of leaves.
		want map[int]int
	}{
		{"as_different_as_can_be", func(i int) string { return strings.Repeat("1", i%maxBits) + strings.Repeat("0", maxBits-i%maxBits) },
			map[int]int{0: maxNesting, 2: maxNesting}},
		{"all_the_same_of_ones", func(int) string { return strings.Repeat("1", maxBits) }, map[int]int{0: maxNesting, 2: 0}},
		{"all_the_same_of_zeros", func(int) string { return strings.Repeat("0", maxBits) }, map[int]int{0: 0, 2: 0}},
		{"alike_except_the_end", func(i int) string { return fmt.Sprintf("%s%02b", strings.Repeat("1", maxBits-2), i%4) },
			map[int]int{0: maxNesting, 2: 2}},
		{"alike_except_the_end_with_few_ones", func(i int) string { return fmt.Sprintf("111%s%02b", strings.Repeat("0", maxBits-5), i%4) },
			map[int]int{0: 5, 2: 2}},
	} {
		name, bits := c.name, c.bits
		for maxLeaves, want := range c.want {
			w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = maxLeaves })
			tree, n := w.sharding.trees[npc.Ingress], 3*maxBits
			var all []*shard
			for i := range n {
				s := w.sharding.newShard(&namespace{name: fmt.Sprint("n", i)}, npc.Ingress, "")
				s.bits = bits(i)
				tree.add(s)
				tree.add(s) // it is there already
				all = append(all, s)
			}
			if len(tree.shards) != n {
				t.Errorf("%s: %d shards of %d", name, len(tree.shards), n)
			}
			moved, unused := tree.rebuild(w.sharding.base)
			longest := 0
			for _, s := range all {
				longest = max(longest, len(s.path))
				for i, n := range s.path {
					prefix := strings.TrimPrefix(n.chains[npc.IPv4].Name(), naming.NodeChain(npc.Ingress, ""))
					if !strings.HasPrefix(s.bits, prefix) || i > 0 && n == s.path[i-1] {
						t.Errorf("%s: the path to %s leads through %s", name, s.bits, prefix)
					}
				}
			}
			text := w.kernel(npc.IPv4).tree(t, npc.Ingress, false)
			if longest != want || strings.Count(text, "isolated pods of n") != n+strings.Count(text, "isolated pods of namespaces") || len(unused) > 0 {
				t.Errorf("%s, %d leaves: %d chains follow each other, want %d, %d moved, %d unused:\n%s", name, maxLeaves, longest, want, len(moved),
					len(unused), text)
			}
			if again, _ := tree.rebuild(w.sharding.base); len(again) > 0 {
				t.Errorf("%s: %d shards have another path without a change", name, len(again))
			}
			for _, s := range all {
				tree.remove(s)
				tree.remove(s)
			}
			if _, unused := tree.rebuild(w.sharding.base); len(tree.nodes) > 0 || longest > 0 && len(unused) == 0 {
				t.Errorf("%s: %d nodes of the tree are left", name, len(tree.nodes))
			}
		}
	}
}

// TestPathsAreMadeFromTheirLeaves shows that a pod is added to the set of its rules first and to that of the root of
// its path last, so that packets never reach a chain without rules.
func TestPathsAreMadeFromTheirLeaves(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = 0 })
	for i := range 3 {
		w.do(fmt.Sprintf("n%d/web {node: node1, addrs: [10.32.1.%d]}", i, i), fmt.Sprintf("policy n%d/p {podSelector: {}, ingress: [{}]}", i))
	}
	text := w.kernel(npc.IPv4).text
	for _, s := range w.sharding.trees[npc.Ingress].shards {
		last := strings.Index(text, "create "+s.isolated[npc.IPv4].Name+" ")
		for _, n := range slices.Backward(s.path) {
			at := strings.Index(text, "create "+n.pods[npc.IPv4].Name+" ")
			if at < last || last < 0 {
				t.Errorf("%s: the set %s comes too early", s.name, n.pods[npc.IPv4].About())
			}
			last = at
		}
		if len(s.path) < 2 {
			t.Errorf("the path to %s has %d chains", s.name, len(s.path))
		}
	}
}

// TestAssign shows that each pod that has to be placed is returned once, however many reasons there are, and none that
// does not.
func TestAssign(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = 0 }, web, db, other, far)
	for _, c := range []struct {
		event string
		want  []string
	}{
		{"policy shop/p " + target + ", policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}", []string{"shop/db", "shop/web"}},
		{"policy shop/q " + target + ", policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}", nil},
		{"policy ops/p {podSelector: {}}", []string{"ops/web"}},
		{"policy shop/p " + target + "}", nil},
		{"shop/web {node: node1, addrs: [10.32.1.5], labels: {app: web}}", nil},
		{"delete shop/web", []string{"shop/db", "shop/web"}},
		{"namespace shop {labels: {a: b}}", nil},
	} {
		change := w.event(c.event)
		if got := w.reconcile(change); !slices.Equal(got, c.want) {
			t.Errorf("after %s placed: %q, want %q", c.event, got, c.want)
		}
		if again := w.Assign(); again != nil {
			t.Errorf("after %s placed again: %q", c.event, names(again))
		}
	}
}

// TestAssignMovesWhatMoves shows that exactly those isolated pods have to be placed again that belong to other sets,
// while shards come and go.
func TestAssignMovesWhatMoves(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding = Sharding{Targets: 1, MaxLeaves: 1} })
	placed := map[string][]index.Membership{}
	follow := func(event string) {
		t.Helper()
		w.event(event)
		moved := names(w.Assign())
		for p := range w.index.LocalPods() {
			now := w.memberships(p)
			if same := slices.Equal(now, placed[p.String()]); same == slices.Contains(moved, p.String()) && w.Of(p)[npc.Ingress] {
				t.Errorf("after %s %s belongs to other sets: %t, and is moved: %t", event, p, !same, same)
			}
			placed[p.String()] = now
		}
		w.Prune()
	}
	for i := range 8 {
		w.do(fmt.Sprintf("shop/p%d {node: node1, addrs: [10.32.1.%d], labels: {app: a%d}}", i, i, i))
		follow(fmt.Sprintf("policy shop/p%d {podSelector: {matchLabels: {app: a%d}}, ingress: [{}]}", i, i))
	}
	for i := range 20 {
		w.do(fmt.Sprintf("n%d/web {node: node1, addrs: [10.32.2.%d]}", i, i))
		follow(fmt.Sprintf("policy n%d/p {podSelector: {}, ingress: [{}]}", i))
	}
	for i := range 8 {
		follow(fmt.Sprintf("delete policy n%d/p", i))
		follow(fmt.Sprintf("delete policy shop/p%d", i))
	}
}

// TestShardsByTargets shows that the shard of a pod depends on the targets that choose it alone: not on their order,
// nor on how many policies have them.
func TestShardsByTargets(t *testing.T) {
	pod := &index.Pod{}
	shardOf := func(targets ...string) string {
		rs := &ruleSet{users: map[*enforced]struct{}{}}
		for _, target := range targets {
			rs.users[&enforced{Policy: &Policy{targetKey: target}, selected: map[*index.Pod]struct{}{pod: {}}}] = struct{}{}
		}
		rs.users[&enforced{Policy: &Policy{targetKey: "of others"}}] = struct{}{}
		policies, digits := rs.choosing(pod, maxDigits)
		if len(policies) != len(targets) || len(digits) != maxDigits {
			t.Errorf("%q: %d policies choose it, with digits %s", targets, len(policies), digits)
		}
		return digits
	}
	one, several := shardOf("a"), shardOf("a", "b", "c", "d")
	for range 20 {
		if shardOf("a") != one || shardOf("a", "a", "a") != one || shardOf("d", "c", "b", "a", "a") != several {
			t.Fatal("the same targets are in another shard")
		}
	}
	if one == several || one == shardOf("b") {
		t.Errorf("others are in the same shard: %s", one)
	}
}

// TestPrune shows that chains that pods were led to are there until these have been placed.
func TestPrune(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = 0 }, web, "policy shop/p "+target+", ingress: [{}]}")
	chains := func() []string {
		text := w.kernel(npc.IPv4).text
		return slices.DeleteFunc([]string{naming.ShardChain(npc.Ingress, "shop", ""), naming.NodeChain(npc.Ingress, "1")},
			func(name string) bool { return !strings.Contains(text, ":"+name+" ") })
	}
	pods := w.namespaces["shop"].pods[w.pod("shop/web")].shards[npc.Ingress].isolated[npc.IPv4]
	before := chains()
	w.event("delete policy shop/p")
	moved := w.Assign()
	if got := chains(); !slices.Equal(got, before) || len(got) == 0 || len(w.kernel(npc.IPv4).members[pods.Name]) != 1 {
		t.Errorf("there are the chains %q, before %q", got, before)
	}
	for _, p := range moved {
		w.index.Place(p, w.memberships(p))
	}
	w.Prune()
	if got := chains(); len(got) > 0 || len(w.kernel(npc.IPv4).members[pods.Name]) > 0 {
		t.Errorf("left: %q", got)
	}
}
