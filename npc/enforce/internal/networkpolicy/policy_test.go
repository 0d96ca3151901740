package networkpolicy

import (
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// reported returns the policies that were not reported before, with the reason.
func (w *harness) reported() (out []string) {
	for _, p := range w.Unreported() {
		out = append(out, p.Namespace+"/"+p.Name+": "+p.Reason)
	}
	slices.Sort(out)
	return out
}

// expectReports fails if other policies are reported than those that are wanted, by the beginnings of the lines, or
// others counted.
func (w *harness) expectReports(when string, invalid, denied int, want ...string) {
	w.Helper()
	got := w.reported()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		w.Errorf("%s reported:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := w.Counts(); n.Invalid != invalid || n.Denied != denied {
		w.Errorf("%s %d policies are counted as invalid, %d as denied; want %d and %d", when, n.Invalid, n.Denied, invalid, denied)
	}
}

// TestReports shows that an invalid policy is reported once for one reason, also when it is already deleted, and not
// when it is valid again.
func TestReports(t *testing.T) {
	const up, down = "policy shop/p {podSelector: {}, policyTypes: [Up]}", "policy shop/p {podSelector: {}, policyTypes: [Down]}"
	for _, c := range []struct {
		name    string
		events  []string
		invalid int
		want    []string
	}{
		{"valid", []string{"policy shop/p {podSelector: {}}"}, 0, nil},
		{"invalid", []string{up}, 1, []string{`shop/p: spec.policyTypes: "Up"`}},
		{"invalid_in_another_way", []string{up, down}, 1, []string{`shop/p: spec.policyTypes: "Down"`}},
		{"valid_again", []string{up, "policy shop/p {podSelector: {}}"}, 0, nil},
		{"gone", []string{up, "delete policy shop/p"}, 0, []string{`shop/p: spec.policyTypes: "Up"`}},
		{"two", []string{up, "policy ops/p {podSelector: {}, policyTypes: [Up]}"}, 2, []string{`ops/p: spec.policyTypes: "Up"`,
			`shop/p: spec.policyTypes: "Up"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, nil, c.events...)
			w.expectReports("at first", c.invalid, 0, c.want...)
			w.expectReports("again", c.invalid, 0)
			w.do(c.events...)
		})
	}
	w := newHarness(t, nil, up)
	w.expectReports("at first", 1, 0, "shop/p: ")
	w.do(up)
	w.expectReports("as it was", 1, 0)
	w.do("policy shop/p {podSelector: {matchLabels: {app: web}}, policyTypes: [Up]}")
	w.expectReports("for the same reason", 1, 0)
	w.do(down)
	w.expectReports("for another reason", 1, 0, "shop/p: ")
	w.do("policy shop/p {podSelector: {}}")
	w.expectReports("valid again", 0, 0)
	w.do(down)
	w.expectReports("broken again", 1, 0, "shop/p: ")
}

// TestBudget shows that a policy beyond the limits isolates and allows nothing, until there is room.
func TestBudget(t *testing.T) {
	const one, two = `{podSelector: {}, ingress: [{ports: [{port: 1}]}]}`, `{podSelector: {}, ingress: [{ports: [{port: 2}]}]}`
	const rulesOfP = `
		isolated pods of shop: shop/web
		-p tcp -m tcp --dport 1 -j ACCEPT # shop/p rule 1
		-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`
	const rulesOfQ = `
		isolated pods of shop: shop/web
		-p tcp -m tcp --dport 2 -j ACCEPT # shop/q rule 1
		-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`
	const noRoom = "shop/q: needs 1 rules, more than other policies leave, the limit per namespace is 1"
	start := func(t *testing.T, events ...string) *harness {
		return newHarness(t, func(c *Config) { c.Budget.Rules.Namespace = 1 }, events...)
	}
	t.Run("the_older_one_is_enforced", func(t *testing.T) {
		w := start(t, web, "policy shop/p "+one, "policy shop/q "+two)
		w.leads(npc.IPv4, npc.Ingress, rulesOfP)
		w.expectReports("at first", 1, 1, noRoom)
		w.do("policy shop/q " + two)
		w.expectReports("as it was", 1, 1)
		if got := w.isolated(); got != "shop/web: ingress(shop/p shop/q)" {
			t.Errorf("isolated: %s", got)
		}
		w.do("delete policy shop/p")
		w.leads(npc.IPv4, npc.Ingress, rulesOfQ)
		w.expectReports("with room", 0, 0)
	})
	t.Run("the_older_one_becomes_small", func(t *testing.T) {
		w := start(t, web, "policy shop/p "+one, "policy shop/q "+two, "policy shop/p {podSelector: {}}")
		w.leads(npc.IPv4, npc.Ingress, rulesOfQ)
		w.expectReports("with room", 0, 0)
	})
	t.Run("the_older_one_comes_later", func(t *testing.T) {
		w := start(t, web)
		w.created = 10
		w.do("policy shop/q " + two)
		w.leads(npc.IPv4, npc.Ingress, rulesOfQ)
		w.created = 0
		w.do("policy shop/p " + one)
		w.leads(npc.IPv4, npc.Ingress, rulesOfP)
		w.expectReports("with the older one", 1, 1, noRoom)
	})
	t.Run("other_namespaces_have_room_of_their_own", func(t *testing.T) {
		w := start(t, web, other, "policy shop/p "+one, "policy ops/q {podSelector: {}, ingress: [{}]}")
		w.expectReports("both", 0, 0)
		if w.kernel(npc.IPv4).tree(t, npc.Ingress, false) != "isolated pods of shop: shop/web\nisolated pods of ops: ops/web\n" {
			t.Error("one is not enforced")
		}
	})
	t.Run("without_pods_there_is_nothing_to_pay", func(t *testing.T) {
		w := start(t, web, "policy shop/p {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 1}]}]}", "policy shop/q "+two)
		w.leads(npc.IPv4, npc.Ingress, rulesOfQ)
		w.do(db) // which an older policy selects, but with pods, rules do not change that are others'
		w.expectReports("until the budget is reconciled", 0, 1)
		if !w.BudgetStale() {
			t.Error("nothing is to be reconciled")
		}
		w.ReconcileBudget()
		w.reconcile(w.event("shop/db " + strings.SplitN(db, " ", 2)[1]))
		w.expectReports("reconciled", 1, 1, noRoom)
		if w.BudgetStale() {
			t.Error("something is still to be reconciled")
		}
		w.do("delete shop/db")
		if !w.BudgetStale() {
			t.Error("room that a pod leaves is not found")
		}
		w.ReconcileBudget()
		w.reconcile(w.event(web))
		w.leads(npc.IPv4, npc.Ingress, rulesOfQ)
		w.expectReports("with room", 0, 0)
	})
	t.Run("its_pods_go", func(t *testing.T) {
		w := start(t, web, "policy shop/p "+one, "policy shop/q {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 2}]}]}", db)
		w.ReconcileBudget()
		w.expectReports("with pods", 1, 1, noRoom)
		w.do("delete shop/db")
		w.expectReports("without pods", 0, 0)
	})
	t.Run("who_is_the_oldest_is_not_known_at_first", func(t *testing.T) {
		w := newUnsynced(t, func(c *Config) { c.Budget.Rules.Namespace = 1 })
		w.do(web)
		w.created = 10
		w.do("policy shop/q " + two)
		w.created = 0
		w.do("policy shop/p " + one)
		w.expectReports("at first", 0, 1)
		if w.BudgetStale() {
			t.Error("something is to be reconciled")
		}
		w.SetSynced()
		w.reconcile(w.event(web))
		w.leads(npc.IPv4, npc.Ingress, rulesOfP)
		w.expectReports("once all is known", 1, 1, noRoom)
	})
}

// TestRefit shows that a policy is rendered again once the namespaces that it names are too many for a list, and when
// they are few again.
func TestRefit(t *testing.T) {
	w := newHarness(t, nil, web, "policy shop/p {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}",
		"policy nowhere/p {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}")
	set := func() (name string) {
		for _, use := range w.index.Sets.Uses() {
			if use.Set.Family() == npc.IPv4 && use.Set.About() == "pods in namespaces with team=a" {
				name += use.Set.Name
			}
		}
		return name
	}
	list := set()
	for _, n := range strings.Fields("a b c d e f g h") {
		w.do("namespace " + n + " {labels: {team: a}}")
	}
	if set() != list {
		t.Error("eight namespaces do not fit into a list")
	}
	w.do("namespace i {labels: {team: a}}")
	flat := set()
	w.leads(npc.IPv4, npc.Ingress, `
		isolated pods of shop: shop/web
		src in [pods in namespaces with team=a] -j ACCEPT # shop/p rule 1
		-g WEAVE-NPC-DROP-INGRESS # shop: nothing allows it`)
	if len(flat) != len(list) || flat == list || !strings.Contains(w.kernel(npc.IPv4).text, "-m set --match-set "+flat+" src") {
		t.Errorf("nine namespaces are asked by %q, eight by %q", flat, list)
	}
	w.do("namespace i {}")
	if set() != list {
		t.Error("eight namespaces do not fit into a list again")
	}
	before := w.namespaces["shop"].policies["p"]
	w.Refit(map[*dataplane.Owner]struct{}{before.owner: {}})
	if w.namespaces["shop"].policies["p"] != before {
		t.Error("rules that are as they would be now are written again")
	}
	w.index.SetNamespace(npc.Namespace{Name: "i", Labels: map[string]string{"team": "a"}})
	w.Refit(map[*dataplane.Owner]struct{}{{Namespace: "gone", Name: "p"}: {}, {Namespace: "shop", Name: "p"}: {}, {Namespace: "shop", Name: "gone"}: {}})
	if w.namespaces["shop"].policies["p"] != before {
		t.Error("rules are written again for a policy that is no more")
	}
}

// TestUses shows the policies of the sets of isolated pods.
func TestUses(t *testing.T) {
	w := newHarness(t, nil, web, other, "policy shop/p {podSelector: {}, ingress: [{}]}",
		"policy shop/q {podSelector: {}, policyTypes: [Egress], egress: [{}]}",
		"policy shop/r {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}", "policy shop/s {podSelector: {}}")
	var got []string
	for _, use := range w.Uses() {
		var users []string
		for o := range use.Users {
			users = append(users, o.String())
		}
		slices.Sort(users)
		got = append(got, use.Set.Family().String()+" "+use.Set.About()+": "+strings.Join(users, " "))
	}
	want := []string{
		"IPv4 local pods in shop that policies isolate, egress: shop/q shop/r",
		"IPv4 local pods in shop that policies isolate, ingress: shop/p shop/r",
		"IPv6 local pods in shop that policies isolate, egress: shop/q shop/r",
		"IPv6 local pods in shop that policies isolate, ingress: shop/p shop/r",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("used:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.do("quiet/far {node: node2}")
	for pod, want := range map[string][]string{"shop/web": {"shop/p", "shop/r", "shop/s"}, "ops/web": nil, "quiet/far": nil} {
		if got := w.Isolating(w.pod(pod), npc.Ingress); !slices.Equal(got, want) {
			t.Errorf("%s is isolated by %q, want %q", pod, got, want)
		}
	}
}

// TestUnreachable shows which policies are reported if the kernel rejects a set of the path to their rules.
func TestUnreachable(t *testing.T) {
	for _, which := range []string{"the pods of the rules", "the pods of a node"} {
		w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = 0 }, web, other, "policy shop/p {podSelector: {}, ingress: [{}]}",
			"policy shop/q {podSelector: {}, policyTypes: [Egress], egress: [{}]}", "policy ops/p {podSelector: {}, ingress: [{}]}")
		sh := w.namespaces["shop"].pods[w.pod("shop/web")].shards[npc.Ingress]
		name := sh.isolated[npc.IPv4].Name
		if which != "the pods of the rules" {
			name = sh.path[len(sh.path)-1].pods[npc.IPv4].Name
		}
		table := w.tables[npc.IPv4]
		table.Activate()
		tx := table.Plan(dataplane.Options{})
		result := tx.Taken()
		result.RejectedSets = map[string]string{name: "no room"}
		table.Commit(tx, result)
		for _, f := range npc.Families {
			var got []string
			w.Unreachable(f, func(o *dataplane.Owner, why string) { got = append(got, o.String()+": "+why) })
			if want := map[npc.Family][]string{npc.IPv4: {"shop/p: no room"}}[f]; !slices.Equal(got, want) {
				t.Errorf("%s, %s: %q, want %q", which, f, got, want)
			}
		}
	}
}

// TestSetBase shows that chains that are made from now on end as the rules that every node has now want it.
func TestSetBase(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.Sharding.MaxLeaves = 0 }, web, "policy shop/p {podSelector: {}, ingress: [{}]}")
	uplinks := func() int {
		return strings.Count(w.kernel(npc.IPv4).text, "routed to what is behind an uplink of the bridge")
	}
	before := uplinks()
	w.SetBase(&rules.Base{PodInterface: "cni0", Uplinks: []string{"up0"}, Hooked: true, AllowAction: "ACCEPT", NFLogGroup: 86})
	w.do(other, "policy ops/p {podSelector: {}, ingress: [{}]}")
	if before != 0 || uplinks() == 0 {
		t.Errorf("%d chains have rules for the uplink, %d before", uplinks(), before)
	}
}
