package index

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/npc/policy/labelset"
)

// shop is two namespaces with pods of two nodes.
func shop() []string {
	return []string{
		"namespace shop {labels: {team: a}}",
		"namespace ops {labels: {team: b}}",
		"shop/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2'], labels: {app: web, tier: x}, " +
			"ports: [{name: http, protocol: 6, port: 8080}, {name: dns, protocol: 17, port: 53}]}",
		"shop/db {node: node2, addrs: [10.32.2.2], labels: {app: db}, " +
			"ports: [{name: http, protocol: 17, port: 8081}, {name: http, protocol: 6, port: 8082}]}",
		"shop/bare {node: node2, addrs: [10.32.2.3]}",
		"ops/probe {node: node1, addrs: [10.32.1.4], labels: {app: probe, tier: y}, ports: [{name: http, protocol: 6, port: 9090}]}",
		"ops/bare {node: node2, addrs: [10.32.2.6]}",
		"stray/x {node: node2, addrs: [10.32.2.5], labels: {app: web}}", // whose namespace has not arrived
	}
}

// local is the set of the local pods of shop.
const local = "local pods: 10.32.1.2 of shop/web, 10.32.1.4 of ops/probe\n"

// TestSetsThatWereCounted shows that a set is filled with the pods that were counted for it, unless something has changed
// since.
func TestSetsThatWereCounted(t *testing.T) {
	const spec = `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}},
		{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]}]}`
	for _, event := range []string{
		"shop/web {node: node1, addrs: [10.32.1.2], labels: {app: other}}",
		"shop/db {node: node2, addrs: [10.32.2.2], labels: {app: web}}",
		"shop/new {node: node2, addrs: [10.32.2.9], labels: {app: web}}",
		"ops/probe {node: node1, addrs: [10.32.1.5], labels: {app: probe}}",
		"delete shop/web",
		"namespace shop {labels: {team: b}}",
		"delete namespace ops",
		"node 10.32.1.2",
	} {
		t.Run(event, func(t *testing.T) {
			counted, fresh := newHarness(t, shop()...), newHarness(t, append(shop(), event)...)
			for _, s := range counted.render("shop/p", spec) {
				Count(counted.Sets, s, true)
			}
			if len(counted.Sets.counted) != 2 {
				t.Errorf("%d sets have pods that were counted, want 2", len(counted.Sets.counted))
			}
			counted.do(event)
			counted.use("shop/p", spec)
			fresh.use("shop/p", spec)
			counted.holds(npc.IPv4, fresh.text(npc.IPv4))
		})
	}
	t.Run("nothing", func(t *testing.T) {
		counted, fresh := newHarness(t, shop()...), newHarness(t, shop()...)
		for _, s := range counted.render("shop/p", spec) {
			Count(counted.Sets, s, true)
		}
		counted.pod("shop/db").labels = labelset.Set{{Key: "app", Value: "web"}} // labels are not compared again
		counted.use("shop/p", spec)
		fresh.use("shop/p", spec)
		counted.holds(npc.IPv4, fresh.text(npc.IPv4))
	})
}

// TestSetsOfSelectors shows what the sets hold that a policy of shop needs. It is the same whether the policy came
// before the pods or after them, and nothing is left when it goes.
func TestSetsOfSelectors(t *testing.T) {
	from := func(peer string) string { return `{podSelector: {}, ingress: [{from: [` + peer + `]}]}` }
	expression := func(e string) string { return from(`{podSelector: {matchExpressions: [{` + e + `}]}}`) }
	for _, c := range []struct{ name, spec, want string }{
		{"all_of_a_namespace", from(`{podSelector: {}}`), "pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare"},
		{"a_label", from(`{podSelector: {matchLabels: {app: db}}}`), "pods with app=db in shop: 10.32.2.2 of shop/db"},
		{"one_of_values", expression("key: app, operator: In, values: [web, db]"),
			"pods with app in (db,web) in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db"},
		{"any_value", expression("key: app, operator: Exists"), "pods with app in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db"},
		{"no_value", expression("key: app, operator: DoesNotExist"), "pods with !app in shop: 10.32.2.3 of shop/bare"},
		{"no_such_value", expression("key: app, operator: NotIn, values: [web]"),
			"pods with app notin (web) in shop: 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare"},
		{"a_value_and_a_key", expression("key: tier, operator: Exists}, {key: app, operator: In, values: [web, db]"),
			"pods with app in (db,web),tier in shop: 10.32.1.2 of shop/web"},
		{"a_key_and_fewer_values", expression("key: app, operator: In, values: [web, db]}, {key: tier, operator: In, values: [x]"),
			"pods with app in (db,web),tier in (x) in shop: 10.32.1.2 of shop/web"},
		{"of_all_namespaces", from(`{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}`),
			"pods with app=web in all namespaces: 10.32.1.2 of shop/web"},
		{"of_namespaces", from(`{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}`),
			"pods with app in namespaces with team=b: 10.32.1.4 of ops/probe"},
		{"a_list_of_namespaces", from(`{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}`), `
			pods in namespaces with team: [pods in ops], [pods in shop]
			pods in ops: 10.32.1.4 of ops/probe, 10.32.2.6 of ops/bare
			pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare`},
		{"a_target_is_local", `{podSelector: {matchExpressions: [{key: app, operator: Exists}]}, ingress: [{}]}`,
			"local pods with app in shop: 10.32.1.2 of shop/web"},
		{"a_named_port_of_a_target", `{podSelector: {}, ingress: [{ports: [{port: http}, {port: dns, protocol: UDP}]}]}`, `
			port http/tcp of local pods in shop: 10.32.1.2,tcp:8080 of shop/web
			port dns/udp of local pods in shop: 10.32.1.2,udp:53 of shop/web`},
		{"a_named_port_of_all", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`,
			"port http/tcp of pods in all namespaces: 10.32.1.2,tcp:8080 of shop/web, 10.32.1.4,tcp:9090 of ops/probe, 10.32.2.2,tcp:8082 of shop/db"},
		{"blocks", from(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {ipBlock: {cidr: "2001:db8::/32"}}`),
			"10.0.0.0/8 except 10.1.0.0/16: 10.0.0.0/8 of 10.0.0.0/8, not 10.1.0.0/16 of 10.0.0.0/8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := newHarness(t, shop()...)
			_, endAfter := after.use("shop/p", c.spec)
			after.holds(npc.IPv4, local+c.want)
			before := newHarness(t)
			_, endBefore := before.use("shop/p", c.spec)
			if !strings.Contains(c.name, "list") { // lists need known namespaces
				before.do(shop()...)
				before.holds(npc.IPv4, local+c.want)
			}
			after.do("shop/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}", "shop/web "+strings.SplitN(shop()[2], " ", 2)[1])
			after.holds(npc.IPv4, local+c.want)
			endAfter()
			endBefore()
			after.empty()
			before.empty()
			after.do("shop/web {node: node1, addrs: [10.32.1.2]}")
			after.holds(npc.IPv4, local)
		})
	}
}

// TestUsers shows that two policies share the sets that both need, that these are there as long as one of them is, and
// who uses which.
func TestUsers(t *testing.T) {
	w := newHarness(t, shop()...)
	uses := func(want string) {
		t.Helper()
		var got []string
		for _, u := range w.Sets.Uses() {
			if u.Set.Family() == npc.IPv4 {
				var names []string
				for o := range u.Users {
					names = append(names, o.String())
				}
				slices.Sort(names)
				got = append(got, u.Set.About()+": "+strings.Join(names, " "))
			}
		}
		if slices.Sort(got); !slices.Equal(got, lines(want)) {
			t.Errorf("used:\n%s\nwant\n%s", strings.Join(got, "\n"), want)
		}
	}
	const one = `{podSelector: {}, ingress: [{from: [{podSelector: {}}, {podSelector: {matchLabels: {app: db}}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}`
	const two = `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}`
	_, end := w.use("shop/one", one)
	uses("pods in shop: shop/one\n pods with app=db in shop: shop/one\n 10.0.0.0/8: shop/one")
	_, end2 := w.use("shop/two", two)
	uses(`
		pods in shop: shop/one shop/two
		pods in ops: shop/two
		pods in all namespaces: shop/two
		pods with app=db in shop: shop/one
		10.0.0.0/8: shop/one shop/two`)
	_, again := w.use("shop/again", one)
	end()
	uses(`
		pods in shop: shop/again shop/two
		pods in ops: shop/two
		pods in all namespaces: shop/two
		pods with app=db in shop: shop/again
		10.0.0.0/8: shop/again shop/two`)
	again()
	uses("pods in shop: shop/two\n pods in ops: shop/two\n pods in all namespaces: shop/two\n 10.0.0.0/8: shop/two")
	end2()
	w.empty()
}

// TestRelabelledNamespaces shows how sets follow what namespaces are called.
func TestRelabelledNamespaces(t *testing.T) {
	const flat = "pods with app in namespaces with team=a: "
	const list = "pods in namespaces with team=a: "
	for _, c := range []struct{ name, event, want string }{
		{"as_it_was", "namespace shop {labels: {team: a}}", list + "[pods in shop]\n" + flat +
			"10.32.1.2 of shop/web, 10.32.2.2 of shop/db\n pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare"},
		{"one_more", "namespace ops {labels: {team: a}}", list + "[pods in ops], [pods in shop]\n" + flat +
			`10.32.1.2 of shop/web, 10.32.1.4 of ops/probe, 10.32.2.2 of shop/db
			pods in ops: 10.32.1.4 of ops/probe, 10.32.2.6 of ops/bare
			pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare`},
		{"one_less", "namespace shop {labels: {team: b}}", list + "\n" + flat},
		{"without_labels", "namespace shop {}", list + "\n" + flat},
		{"gone", "delete namespace shop", list + "\n" + flat},
		{"another_of_its_name_gone", "delete namespace shop {uid: x}", list + "[pods in shop]\n" + flat + `10.32.1.2 of shop/web, 10.32.2.2 of shop/db
			pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare`},
		{"one_whose_pods_came_before", "namespace stray {labels: {team: a}}", list + "[pods in shop], [pods in stray]\n" + flat +
			`10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.5 of stray/x
			pods in stray: 10.32.2.5 of stray/x
			pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, shop()...)
			_, end := w.use("x/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}},
				{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchExpressions: [{key: app, operator: Exists}]}}]}]}`)
			w.do(c.event)
			w.holds(npc.IPv4, local+c.want)
			end()
			w.empty()
		})
	}
	t.Run("a_set_of_a_namespace_that_others_use", func(t *testing.T) {
		w := newHarness(t, shop()...)
		w.use("shop/p", `{podSelector: {}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: a}}}]}]}`)
		w.do("namespace shop {}")
		w.holds(npc.IPv4, local+list+"\n pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare")
	})
}

// TestRefit shows which policies have to be rendered again, because the namespaces that they name fit into a list no
// more, or again.
func TestRefit(t *testing.T) {
	const spec = `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`
	w := newHarness(t)
	refit := func(what string, c NamespaceChange, want ...*dataplane.Owner) {
		t.Helper()
		got := slices.Collect(maps.Keys(c.Refit))
		if len(got) != len(want) || len(want) > 0 && got[0] != want[0] {
			t.Errorf("%s: %d policies have to be rendered again, want %d", what, len(got), len(want))
		}
	}
	for i := range maxListed {
		refit("few", w.namespace(fmt.Sprintf("n%d {labels: {team: a}}", i), false))
	}
	o, end := w.use("shop/p", spec)
	w.holds(npc.IPv4, "local pods:\n pods in namespaces with team=a: [pods in n0], [pods in n1], [pods in n2], [pods in n3], [pods in n4], "+
		"[pods in n5], [pods in n6], [pods in n7]\n pods in n0:\n pods in n1:\n pods in n2:\n pods in n3:\n pods in n4:\n pods in n5:\n "+
		"pods in n6:\n pods in n7:")
	_, too := w.use("shop/too", spec)
	if len(w.Sets.Uses()) != len(npc.Families)*(1+maxListed) {
		t.Error("another policy does not share the list")
	}
	too()
	_, other := w.use("shop/other", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`)
	refit("one too many", w.namespace("n8 {labels: {team: a}}", false), o)
	refit("two too many", w.namespace("n9 {labels: {team: a}}", false))
	end()
	o, end = w.use("shop/p", spec)
	w.holds(npc.IPv4, "local pods:\n pods in namespaces with team=a:\n pods in namespaces with team=b:")
	refit("one too many again", w.namespace("n9", true))
	refit("as many as fit", w.namespace("n8", true), o)
	if c := w.namespace("n8", true); c.Refit != nil {
		t.Errorf("what is gone changes %v", c.Refit)
	}
	end()
	other()
	w.empty()
	few := New(Config{NodeName: "node1", MaxListSize: 1}, dataplane.NewTables())
	w.Index = few
	w.do("namespace a {labels: {team: a}}", "namespace b {labels: {team: a}}")
	w.use("shop/p", spec)
	w.holds(npc.IPv4, "local pods:\n pods in namespaces with team=a:")
}

// TestDefaultDeny shows that a change is reported when a namespace asks for isolation as Kubernetes 1.6 did, or no
// longer.
func TestDefaultDeny(t *testing.T) {
	w := newHarness(t)
	for _, c := range []struct {
		text string
		gone bool
		want bool
	}{
		{"shop {}", false, false}, {"shop {defaultDeny: true}", false, true}, {"shop {defaultDeny: true, labels: {a: b}}", false, false},
		{"shop {uid: another}", true, false}, {"shop {}", false, true}, {"shop {defaultDeny: true}", false, true}, {"shop", true, true},
		{"shop", true, false},
	} {
		if got := w.namespace(c.text, c.gone); got.DefaultDeny != c.want {
			t.Errorf("%s (gone: %t) changes it: %t", c.text, c.gone, got.DefaultDeny)
		}
	}
	if len(w.namespaces) != 0 {
		t.Errorf("%d namespaces are left", len(w.namespaces))
	}
}

// TestLists shows a list of peers of several kinds: each family has the sets that there are of it.
func TestLists(t *testing.T) {
	w := newHarness(t, shop()...)
	p, _ := ipblock.Compile(&networkingv1.IPBlock{CIDR: "10.0.0.0/8"})
	block := rules.NewSet(rules.BlockSpec{Union: ipblock.Of([]ipblock.Block{p})})
	pods := rules.NewSet(rules.SelectorSpec{Scope: rules.NamespaceScope, Namespace: "shop"})
	missing := rules.NewSet(rules.SelectorSpec{Scope: rules.NamespaceScope, Namespace: "missing"})
	list := rules.NewSet(rules.UnionSpec{Members: []rules.Set{pods, block, missing}, Of: "shop/p"})
	o := &dataplane.Owner{Namespace: "shop", Name: "p"}
	sets := w.Sets.Provision([]rules.Set{pods, block, list}, o)
	w.holds(npc.IPv4, local+`
		10.0.0.0/8: 10.0.0.0/8 of 10.0.0.0/8
		pods in shop: 10.32.1.2 of shop/web, 10.32.2.2 of shop/db, 10.32.2.3 of shop/bare
		3 peers of shop/p: [10.0.0.0/8], [pods in shop]`)
	w.holds(npc.IPv6, "local pods: fd32:1::2 of shop/web\n pods in shop: fd32:1::2 of shop/web\n 3 peers of shop/p: [pods in shop]")
	w.Sets.Deprovision(sets, o)
	w.empty()
}

// TestActivation shows that a family is programmed from the first address of a local pod on.
func TestActivation(t *testing.T) {
	w := newHarness(t)
	for _, c := range []struct{ event, want string }{
		{"shop/far {node: node2, addrs: [10.32.2.2]}", ""},
		{"shop/web {node: node1}", ""},
		{"shop/web {node: node1, addrs: ['fd32:1::2']}", "IPv6"},
		{"shop/web {node: node1, addrs: ['fd32:1::2', 10.32.1.2]}", "IPv4 IPv6"},
		{"delete shop/web", "IPv4 IPv6"},
	} {
		w.do(c.event)
		var active []string
		for _, table := range w.tables {
			if table.Active() {
				active = append(active, table.Family.String())
			}
		}
		if got := strings.Join(active, " "); got != c.want {
			t.Errorf("after %s these are programmed: %q, want %q", c.event, got, c.want)
		}
	}
}

// TestPodsOfSeveralSelectors shows a set of the pods that any of several selectors selects: a pod is in it as long as one
// of them does, whatever happens to its labels and those of its namespace.
func TestPodsOfSeveralSelectors(t *testing.T) {
	everywhere := func(namespaces, pods string) rules.Set {
		parse := func(s string) labels.Selector {
			parsed, err := labels.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			return parsed
		}
		return rules.NewSet(rules.SelectorSpec{Scope: rules.ClusterScope, Namespaces: parse(namespaces), Pods: parse(pods)})
	}
	all := rules.NewPeers([]rules.Set{everywhere("team=a", "app"), everywhere("team in (a,b)", "tier=x"), everywhere("", "app=db")})
	const about = "pods with app in namespaces with team=a / pods with app=db in all namespaces / pods with tier=x in namespaces with team in (a,b): "
	const db = "10.32.2.2 of shop/db"
	ops := func(team string) string { return "namespace ops {labels: {team: " + team + "}}" }
	probe := func(labels string) string {
		return "ops/probe {node: node1, addrs: [10.32.1.4], labels: {" + labels + "}}"
	}
	w := newHarness(t, shop()...)
	o := &dataplane.Owner{Name: "p"}
	sets := w.Sets.Provision([]rules.Set{all, all}, o)
	for _, step := range []struct{ event, want string }{
		{"", "10.32.1.2 of shop/web, " + db},
		{probe("tier: x"), "10.32.1.2 of shop/web, 10.32.1.4 of ops/probe, " + db},
		{ops("c"), "10.32.1.2 of shop/web, " + db},
		{ops("a"), "10.32.1.2 of shop/web, 10.32.1.4 of ops/probe, " + db},
		{probe("tier: x, app: probe"), "10.32.1.2 of shop/web, 10.32.1.4 of ops/probe, " + db},
		{ops("b"), "10.32.1.2 of shop/web, 10.32.1.4 of ops/probe, " + db},
		{probe("app: probe"), "10.32.1.2 of shop/web, " + db},
		{ops("a"), "10.32.1.2 of shop/web, 10.32.1.4 of ops/probe, " + db},
		{"delete ops/probe", "10.32.1.2 of shop/web, " + db},
		{"namespace shop {labels: {team: c}}", db},
	} {
		if step.event != "" {
			w.do(step.event)
		}
		got := w.text(npc.IPv4)
		if want := about + step.want + "\n"; !strings.HasSuffix(got, want) {
			t.Errorf("after %q\n%s\nwant\n%s", step.event, got, want)
		}
	}
	w.Sets.Deprovision(sets, o)
	w.empty()
}
