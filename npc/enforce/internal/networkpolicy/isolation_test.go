package networkpolicy

import (
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

const (
	web    = "shop/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2'], labels: {app: web}}"
	db     = "shop/db {node: node1, addrs: [10.32.1.3], labels: {app: db}}"
	far    = "shop/far {node: node2, addrs: [10.32.2.2], labels: {app: web}}"
	other  = "ops/web {node: node1, addrs: [10.32.1.4], labels: {app: web}}"
	target = `{podSelector: {matchLabels: {app: web}}`
)

// TestIsolatedPods shows the pods that are isolated, the directions, and the policies. Only local pods are isolated.
func TestIsolatedPods(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"no_policy", []string{web, db}, ""},
		{"ingress", []string{web, db, far, other, "policy shop/p " + target + "}"}, "shop/web: ingress(shop/p)"},
		{"egress", []string{web, "policy shop/p " + target + ", policyTypes: [Egress]}"}, "shop/web: egress(shop/p)"},
		{"both", []string{web, "policy shop/p " + target + ", policyTypes: [Ingress, Egress], egress: [{}]}"}, "shop/web: ingress(shop/p) egress(shop/p)"},
		{"by_several", []string{web, db, "policy shop/b {podSelector: {}}", "policy shop/a " + target + "}",
			"policy shop/c {podSelector: {}, policyTypes: [Egress]}"},
			"shop/db: ingress(shop/b) egress(shop/c)\nshop/web: ingress(shop/a shop/b) egress(shop/c)"},
		{"the_pod_comes_later", []string{"policy shop/p " + target + "}", web}, "shop/web: ingress(shop/p)"},
		{"without_address", []string{"policy shop/p {podSelector: {}}", "shop/new {node: node1}"}, "shop/new: ingress(shop/p)"},
		{"it_gets_other_labels", []string{web, "policy shop/p " + target + "}", "shop/web {node: node1, labels: {app: db}}"}, ""},
		{"it_gets_these_labels", []string{"shop/web {node: node1}", "policy shop/p " + target + "}", web}, "shop/web: ingress(shop/p)"},
		{"it_has_finished", []string{web, "policy shop/p " + target + "}", "shop/web {node: node1, labels: {app: web}, finished: true}"}, ""},
		{"on_the_host_network", []string{"policy shop/p {podSelector: {}}", "shop/agent {node: node1, hostNetwork: true}"}, ""},
		{"it_goes", []string{web, "policy shop/p " + target + "}", "delete shop/web", db}, ""},
		{"the_policy_goes", []string{web, "policy shop/p " + target + "}", "delete policy shop/p"}, ""},
		{"another_policy_of_its_name_goes", []string{web, "policy shop/p " + target + "}", "delete policy shop/p another", "delete policy ops/p",
			"delete policy shop/q"},
			"shop/web: ingress(shop/p)"},
		{"one_of_two_goes", []string{web, "policy shop/p " + target + "}", "policy shop/q {podSelector: {}}", "delete policy shop/p"},
			"shop/web: ingress(shop/q)"},
		{"the_policy_selects_others", []string{web, db, "policy shop/p " + target + "}", "policy shop/p {podSelector: {matchLabels: {app: db}}}"},
			"shop/db: ingress(shop/p)"},
		{"the_policy_has_another_type", []string{web, "policy shop/p " + target + "}", "policy shop/p " + target + ", policyTypes: [Egress]}"},
			"shop/web: egress(shop/p)"},
		{"an_invalid_type_isolates", []string{web, "policy shop/p " + target + ", policyTypes: [Up]}"}, "shop/web: ingress(shop/p) egress(shop/p)"},
		{"an_invalid_target_is_the_namespace", []string{web, db, other, `policy shop/p {podSelector: {matchLabels: {"a b": x}}}`},
			"shop/db: ingress(shop/p)\nshop/web: ingress(shop/p)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, nil, c.events...)
			if got := w.isolated(); got != c.want {
				t.Errorf("isolated:\n%s\nwant\n%s", got, c.want)
			}
			n := w.Counts()
			for _, d := range npc.Directions {
				if want := strings.Count(c.want, d.String()+"("); n.Isolated[d] != want {
					t.Errorf("%d pods are counted as isolated, %s, not %d", n.Isolated[d], d, want)
				}
			}
		})
	}
}

// TestRulesOfIsolatedPods shows the rules that isolated pods are led to.
func TestRulesOfIsolatedPods(t *testing.T) {
	const tcp80 = ", ingress: [{ports: [{port: 80}]}]}"
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"a_policy_without_rules", []string{web, "policy shop/p " + target + "}"}, ""},
		{"a_policy_without_pods", []string{db, "policy shop/p " + target + tcp80}, ""},
		{"a_policy_with_remote_pods", []string{far, "policy shop/p " + target + tcp80}, ""},
		{"a_target", []string{web, db, "policy shop/p " + target + tcp80}, `
			isolated pods of shop: shop/web
			-p tcp -m tcp --dport 80 dst in [local pods with app=web in shop] -j ACCEPT # shop/p rule 1
			-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`},
		{"a_rule_of_two_policies", []string{web, db, "policy shop/p " + target + tcp80, "policy shop/q " + target + tcp80,
			"policy shop/r {podSelector: {}}"}, `
			isolated pods of shop: shop/web shop/db
			-p tcp -m tcp --dport 80 dst in [local pods with app=web in shop] -j ACCEPT # shop/p rule 1 / shop/q rule 1
			-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`},
		{"of_which_one_goes", []string{web, "policy shop/p " + target + tcp80, "policy shop/q " + target + tcp80, "delete policy shop/p"}, `
			isolated pods of shop: shop/web
			-p tcp -m tcp --dport 80 dst in [local pods with app=web in shop] -j ACCEPT # shop/q rule 1
			-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`},
		{"both_go", []string{web, "policy shop/p " + target + tcp80, "policy shop/q " + target + tcp80, "delete policy shop/p", "delete policy shop/q"},
			""},
		{"the_policy_allows_another_port", []string{web, "policy shop/p " + target + tcp80, "policy shop/p " + target +
			", ingress: [{ports: [{port: 81}]}]}"}, `
			isolated pods of shop: shop/web
			-p tcp -m tcp --dport 81 dst in [local pods with app=web in shop] -j ACCEPT # shop/p rule 1
			-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`},
		{"its_last_pod_goes", []string{web, "policy shop/p " + target + tcp80, "delete shop/web"}, ""},
		{"its_last_pod_gets_other_labels", []string{web, "policy shop/p " + target + tcp80, "shop/web {node: node1, addrs: [10.32.1.2]}"}, ""},
		{"two_namespaces", []string{web, other, "policy shop/p " + target + tcp80, "policy ops/p {podSelector: {}, ingress: [{}]}"}, `
			isolated pods of shop: shop/web
			-p tcp -m tcp --dport 80 dst in [local pods with app=web in shop] -j ACCEPT # shop/p rule 1
			-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it
			isolated pods of ops: ops/web
			-j ACCEPT # ops/p rule 1
			-g WEAVE-NPC-DROP-INGRESS # ops: nothing allows it`},
		{"conflicting_with_one_that_is_isolated", []string{
			"shop/new {node: node1, addrs: [10.32.1.2], started: '2024-01-02T00:00:00Z', labels: {app: new}}", web,
			"policy shop/p " + target + "}", "policy shop/q {podSelector: {matchLabels: {app: new}}, ingress: [{}]}"}, `
			isolated pods of shop:
			dst in [local pods with app=new in shop] -j ACCEPT # shop/q rule 1
			-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`},
		{"invalid", []string{web, "policy shop/p " + target + ", ingress: [{ports: [{port: 0}]}, {}]}"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			newHarness(t, nil, c.events...).leads(npc.IPv4, npc.Ingress, c.want)
		})
	}
	w := newHarness(t, nil, web, "policy shop/p "+target+", policyTypes: [Ingress, Egress], ingress: [{}], "+
		"egress: [{ports: [{port: 53, protocol: UDP}]}]}")
	w.leads(npc.IPv6, npc.Egress, `
		isolated pods of shop: shop/web
		-p udp -m udp --dport 53 src in [local pods with app=web in shop] -j RETURN # shop/p rule 1
		-g WEAVE-NPC-DROP-EGRESS # shop: nothing allows it`)
}

// TestMemberships shows the sets that isolation puts a pod in: those of what is allowed as long as nothing isolates it,
// that of its rules if it has any, and none if nothing allows it.
func TestMemberships(t *testing.T) {
	const allowed = "local pods that no policy isolates, "
	for _, c := range []struct {
		name   string
		events []string
		want   []string
	}{
		{"free", nil, []string{allowed + "ingress", allowed + "egress"}},
		{"isolated", []string{"policy shop/p {podSelector: {}}"}, []string{allowed + "egress"}},
		{"isolated_with_rules", []string{"policy shop/p {podSelector: {}, ingress: [{}]}"},
			[]string{"local pods in shop that policies isolate, ingress", allowed + "egress"}},
		{"isolated_in_both", []string{"policy shop/p {podSelector: {}, policyTypes: [Ingress, Egress]}"}, nil},
		{"conflicting_with_one_that_is_free", []string{"shop/old {node: node1, addrs: [10.32.1.3]}"}, []string{allowed + "ingress", allowed + "egress"}},
		{"conflicting_with_one_that_is_isolated", []string{"shop/old {node: node1, addrs: [10.32.1.3], labels: {app: old}}",
			"policy shop/p {podSelector: {matchLabels: {app: old}}}"}, []string{allowed + "egress"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, nil, "shop/db {node: node1, addrs: [10.32.1.3], started: '2024-01-02T00:00:00Z'}", far)
			w.do(c.events...)
			var got []string
			for _, m := range w.memberships(w.pod("shop/db")) {
				got = append(got, m.Set.About())
				if m.Entry.String() != "10.32.1.3" {
					t.Errorf("%s has %s", m.Set.About(), m.Entry)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("it is in %q, want %q", got, c.want)
			}
			if m := w.memberships(w.pod("shop/far")); len(m) > 0 {
				t.Errorf("a remote pod is in %v", m)
			}
		})
	}
	w := newHarness(t, nil, web)
	for _, f := range npc.Families {
		for d, s := range w.Allowed(f) {
			if s.Family() != f || s.About() != allowed+npc.Direction(d).String() {
				t.Errorf("%s %s: %s of %s", f, npc.Direction(d), s.About(), s.Family())
			}
		}
	}
}

// TestLegacyIsolation shows the semantics of Kubernetes 1.6: a namespace isolates its pods for ingress, and policies
// only allow.
func TestLegacyIsolation(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.LegacyNetpol = true }, web, other,
		"policy shop/p {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}]}")
	for _, c := range []struct{ event, want string }{
		{"namespace nowhere {defaultDeny: true}", ""},
		{"namespace shop {}", ""},
		{"namespace shop {defaultDeny: true}", "shop/web: ingress(shop/p)"},
		{"delete policy shop/p", "shop/web: ingress()"},
		{"namespace ops {defaultDeny: true}", "ops/web: ingress()\nshop/web: ingress()"},
		{"namespace shop {}", "ops/web: ingress()"},
		{"delete ops/web", ""},
	} {
		w.do(c.event)
		if n := w.Counts().Isolated[npc.Ingress]; n != strings.Count(c.want, "ingress") {
			t.Errorf("after %s %d pods are counted as isolated", c.event, n)
		}
		if got := w.isolated(); got != c.want {
			t.Errorf("after %s isolated:\n%s\nwant\n%s", c.event, got, c.want)
		}
	}
}

// TestNothingIsLeft shows that what pods and policies brought goes with them.
func TestNothingIsLeft(t *testing.T) {
	for _, maxLeaves := range []int{0, 2} {
		w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = maxLeaves })
		before := w.kernel(npc.IPv4).text
		w.do(web, db, other, "policy shop/p "+target+", ingress: [{}]}", "policy shop/q {podSelector: {}, policyTypes: [Egress], egress: [{}]}",
			"policy ops/p {podSelector: {}, ingress: [{}]}")
		if n := w.Counts(); n.Policies != 3 || n.Isolated != [2]int{2, 2} || len(w.namespaces) != 2 || w.kernel(npc.IPv4).text == before {
			t.Errorf("%+v in %d namespaces", n, len(w.namespaces))
		}
		w.do("delete shop/web", "delete policy ops/p", "delete shop/db", "delete policy shop/q", "delete ops/web", "delete policy shop/p")
		if n := w.Counts(); n != (Counts{}) || len(w.namespaces)+len(w.index.Sets.Uses())+len(w.Uses()) > 0 {
			t.Errorf("left: %+v in %d namespaces", n, len(w.namespaces))
		}
		if after := w.kernel(npc.IPv4).text; after != before {
			t.Errorf("left in the kernel:\n%s", after)
		}
	}
}
