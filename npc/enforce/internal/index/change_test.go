package index

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// changeCase is an event after others, and what changes by it.
type changeCase struct {
	name  string
	given []string
	event string
	want  string
}

func changes(t *testing.T, cases []changeCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.use("shop/p", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {role: client}}}]}]}`)
			w.do(c.given...)
			if got := describe(w.event(c.event)); got != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", c.event, got, c.want)
			}
		})
	}
}

// TestChangesOfPods shows what is reported of a pod that comes, changes and goes. Only a local pod can be selected by
// policies. Pods of shop with role=client are asked for as peers.
func TestChangesOfPods(t *testing.T) {
	const local, remote = "shop/web {node: node1, addrs: [10.32.1.2]}", "shop/web {node: node2, addrs: [10.32.2.2]}"
	changes(t, []changeCase{
		{"a_local_pod_comes", nil, local, "shop/web reselected; 10.32.1.2: none > shop/web"},
		{"a_local_pod_without_address", nil, "shop/web {node: node1}", "shop/web reselected"},
		{"a_remote_pod_comes", nil, remote, "shop/web; 10.32.2.2: none > shop/web"},
		{"a_pod_of_the_host_network", nil, "shop/web {node: node1, hostNetwork: true, addrs: [10.32.1.1]}", "shop/web"},
		{"as_it_was", []string{local}, local, ""},
		{"as_it_was_with_everything", []string{"shop/web {node: node1, labels: {a: b}, hostAddrs: [10.1.1.1], " +
			"ports: [{name: http, protocol: 6, port: 80}]}"},
			"shop/web {node: node1, labels: {a: b}, hostAddrs: [10.1.1.1], ports: [{name: http, protocol: 6, port: 80}]}", ""},
		{"a_local_pod_gets_labels", []string{local}, "shop/web {node: node1, addrs: [10.32.1.2], labels: {a: b}}", "shop/web was local reselected"},
		{"a_local_pod_gets_other_labels", []string{"shop/web {node: node1, labels: {a: b}}"}, "shop/web {node: node1, labels: {a: c}}",
			"shop/web was local reselected"},
		{"a_remote_pod_gets_labels", []string{remote}, "shop/web {node: node2, addrs: [10.32.2.2], labels: {a: b}}", "shop/web"},
		{"a_local_pod_gets_a_port", []string{local}, "shop/web {node: node1, addrs: [10.32.1.2], ports: [{name: http, protocol: 6, port: 80}]}",
			"shop/web was local"},
		{"a_local_pod_gets_its_addresses", []string{"shop/web {node: node1}"}, "shop/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}",
			"shop/web was local; 10.32.1.2: none > shop/web; fd32:1::2: none > shop/web"},
		{"a_local_pod_has_another_address", []string{local}, "shop/web {node: node1, addrs: [10.32.1.3]}",
			"shop/web was local; 10.32.1.2: shop/web > none was local was peer; 10.32.1.3: none > shop/web"},
		{"a_pod_is_scheduled_here", []string{"shop/web {}"}, local, "shop/web reselected; 10.32.1.2: none > shop/web"},
		{"a_local_pod_finishes", []string{local}, "shop/web {node: node1, addrs: [10.32.1.2], finished: true}",
			"shop/web was local reselected; 10.32.1.2: shop/web > none was local was peer"},
		{"a_local_pod_is_deleted", []string{local}, "delete shop/web", "shop/web was local reselected; 10.32.1.2: shop/web > none was local was peer"},
		{"a_remote_pod_is_deleted", []string{remote}, "delete shop/web", "shop/web; 10.32.2.2: shop/web > none"},
		{"a_remote_peer_is_deleted", []string{"shop/web {node: node2, addrs: [10.32.2.2], labels: {role: client}}"}, "delete shop/web",
			"shop/web; 10.32.2.2: shop/web > none was peer"},
		{"a_status_becomes_stale", []string{local}, "shop/web {node: node1, addrs: [10.32.1.2], staleAddrs: true}",
			"shop/web was local; 10.32.1.2: shop/web > none was local was peer"},
	})
}

// TestChangesOfConflictingAddresses shows the pods that are reported when several claim one address.
func TestChangesOfConflictingAddresses(t *testing.T) {
	const early, late = "shop/a {node: node1, addrs: [10.32.1.2], started: '2024-01-01T00:00:00Z'}",
		"shop/b {node: node1, addrs: [10.32.1.2], started: '2024-01-02T00:00:00Z'}"
	const remote = "shop/r {node: node2, addrs: [10.32.1.2], started: '2024-01-03T00:00:00Z'}"
	changes(t, []changeCase{
		{"one_that_started_later_takes_it", []string{early}, late, "shop/b reselected; 10.32.1.2: shop/a > shop/b was local was peer; alongside shop/a"},
		{"one_that_started_before_claims_it", []string{late}, early, "shop/a reselected; alongside shop/b"},
		{"one_that_claimed_it_goes", []string{late, early}, "delete shop/a", "shop/a was local reselected; alongside shop/b"},
		{"one_that_claimed_it_claims_another", []string{late, early}, "shop/a {node: node1, addrs: [10.32.1.3]}",
			"shop/a was local; 10.32.1.3: none > shop/a; alongside shop/b"},
		{"its_owner_goes", []string{late, early}, "delete shop/b",
			"shop/b was local reselected; 10.32.1.2: shop/b > shop/a was local was peer; alongside shop/a"},
		{"its_owner_is_deleting", []string{late, early}, "shop/b {node: node1, addrs: [10.32.1.2], started: '2024-01-02T00:00:00Z', deleting: true}",
			"shop/b was local; 10.32.1.2: shop/b > shop/a was local was peer; alongside shop/a"},
		{"a_remote_pod_takes_nothing_from_a_local_one", []string{early}, remote, "shop/r"},
		{"a_local_pod_takes_it_from_a_remote_one", []string{remote}, early, "shop/a reselected; 10.32.1.2: shop/r > shop/a; alongside shop/r"},
		{"a_remote_pod_gets_it_back", []string{remote, early}, "delete shop/a",
			"shop/a was local reselected; 10.32.1.2: shop/a > shop/r was local was peer; alongside shop/r"},
	})
}

// TestChangesOfNodes shows what addresses of nodes do: no pod owns one of this node, and no pod of another node one
// that some pod's status.hostIPs contains.
func TestChangesOfNodes(t *testing.T) {
	const local, remote = "shop/web {node: node1, addrs: [10.32.1.2]}", "shop/web {node: node2, addrs: [10.32.1.2]}"
	const agent = "ops/agent {node: node3, hostNetwork: true, hostAddrs: [10.32.1.2]}"
	changes(t, []changeCase{
		{"the_node_has_it", []string{local}, "node 10.32.1.2", "10.32.1.2: shop/web > none was local was peer; alongside shop/web"},
		{"the_node_has_it_and_two_claim_it", []string{local, "shop/db {node: node1, addrs: [10.32.1.2]}"}, "node 10.32.1.2",
			"10.32.1.2: shop/web > none was local was peer; alongside shop/db; alongside shop/web"},
		{"the_node_has_it_before", []string{"node 10.32.1.2"}, local, "shop/web reselected"},
		{"the_node_has_it_still", []string{local, "node 10.32.1.2"}, "node 10.32.1.1 10.32.1.2", ""},
		{"the_node_has_it_no_more", []string{local, "node 10.32.1.2"}, "node 10.32.1.1", "10.32.1.2: none > shop/web; alongside shop/web"},
		{"another_pod_names_it_as_its_nodes", []string{remote}, agent, "ops/agent; 10.32.1.2: shop/web > none; alongside shop/web"},
		{"that_takes_nothing_from_a_local_pod", []string{local}, agent, "ops/agent; alongside shop/web"},
		{"two_name_it", []string{remote, agent}, "ops/other {node: node3, hostAddrs: [10.32.1.2]}", "ops/other"},
		{"one_of_two_names_it_no_more", []string{remote, agent, "ops/other {node: node3, hostAddrs: [10.32.1.2]}"}, "delete ops/agent", "ops/agent"},
		{"none_names_it_any_more", []string{remote, agent}, "ops/agent {node: node3, hostNetwork: true, hostAddrs: [10.32.1.9]}",
			"ops/agent; 10.32.1.2: none > shop/web; alongside shop/web"},
		{"the_pod_that_named_it_goes", []string{remote, agent}, "delete ops/agent", "ops/agent; 10.32.1.2: none > shop/web; alongside shop/web"},
	})
}

// TestAddressesLeaveAtOnce shows that an address leaves every set of its former owner when it changes hands, before
// anybody places pods.
func TestAddressesLeaveAtOnce(t *testing.T) {
	w := newHarness(t, "shop/web {node: node1, addrs: [10.32.1.2, 10.32.1.3], labels: {role: client}, ports: [{name: http, protocol: 6, port: 80}]}")
	w.use("shop/p", `{podSelector: {matchLabels: {role: client}}, ingress: [{from: [{podSelector: {}}], ports: [{port: http}]}]}`)
	w.holds(npc.IPv4, `
		local pods: 10.32.1.2 of shop/web, 10.32.1.3 of shop/web
		pods in shop: 10.32.1.2 of shop/web, 10.32.1.3 of shop/web
		port http/tcp of local pods with role=client in shop: 10.32.1.2,tcp:80 of shop/web, 10.32.1.3,tcp:80 of shop/web`)
	c := w.event("shop/next {node: node1, addrs: [10.32.1.2], started: '2024-01-01T00:00:00Z'}")
	w.holds(npc.IPv4, `
		local pods: 10.32.1.3 of shop/web
		pods in shop: 10.32.1.3 of shop/web
		port http/tcp of local pods with role=client in shop: 10.32.1.3,tcp:80 of shop/web`)
	if w.Addresses.IsLocal(fixture.Addrs("10.32.1.2")[0]) || !w.Addresses.AnyLocal() {
		t.Error("it is a local pod's before it is placed")
	}
	w.place(c)
	w.holds(npc.IPv4, `
		local pods: 10.32.1.2 of shop/next, 10.32.1.3 of shop/web
		pods in shop: 10.32.1.2 of shop/next, 10.32.1.3 of shop/web
		port http/tcp of local pods with role=client in shop: 10.32.1.3,tcp:80 of shop/web`)
}

// TestAddressesFromBeforeTheBoot shows that a status of a pod of this node counts only if a container was started since
// the node was.
func TestAddressesFromBeforeTheBoot(t *testing.T) {
	boot := time.Date(2024, 1, 2, 0, 0, 0, 0, time.UTC)
	x := New(Config{NodeName: "node1", MaxListSize: 1024, Booted: func() time.Time { return boot }}, dataplane.NewTables())
	for _, c := range []struct {
		node    string
		started time.Duration
		owned   int
	}{{"node1", -time.Minute, 0}, {"node1", -time.Second, 1}, {"node1", time.Minute, 1}, {"node2", -time.Minute, 1}} {
		x.SetPod(npc.Pod{Namespace: "shop", Name: "web", Node: c.node, Addrs: fixture.Addrs("10.32.1.2"), LastStart: boot.Add(c.started)})
		if p := x.Pod("shop", "web"); len(p.Owned()) != c.owned || p.StaleAddrs != (c.owned == 0) {
			t.Errorf("a pod of %s started %s after the boot owns %v", c.node, c.started, p.Owned())
		}
	}
}

// TestPods shows which pods there are, and which are local.
func TestPods(t *testing.T) {
	w := newHarness(t, "shop/web {node: node1}", "shop/db {node: node2}", "ops/agent {node: node1, hostNetwork: true}", "ops/job {node: node1}",
		"ops/done {node: node1}", "ops/done {node: node1, finished: true}")
	names := func(pods func(func(*Pod) bool)) (out []string) {
		for p := range pods {
			out = append(out, p.String())
		}
		slices.Sort(out)
		return out
	}
	check := func(all, local []string) {
		t.Helper()
		if got := names(w.Pods()); !slices.Equal(got, all) {
			t.Errorf("pods: %q", got)
		}
		if got := names(w.LocalPods()); !slices.Equal(got, local) || w.CountLocal() != len(local) {
			t.Errorf("local pods: %q, %d", got, w.CountLocal())
		}
	}
	check([]string{"ops/agent", "ops/done", "ops/job", "shop/db", "shop/web"}, []string{"ops/job", "shop/web"})
	for range w.Pods() {
		break
	}
	for range w.LocalPods() {
		break
	}
	w.do("delete shop/web", "delete shop/db", "delete ops/agent")
	check([]string{"ops/done", "ops/job"}, []string{"ops/job"})
	if w.Pod("shop", "web") != nil || w.Pod("ops", "web") != nil || len(w.namespaces) != 1 {
		t.Errorf("%d namespaces are left", len(w.namespaces))
	}
	w.do("delete ops/done", "delete ops/job")
	if len(w.namespaces)+len(w.Addresses.hosts)+len(w.Addresses.local) != 0 {
		t.Error("something is left")
	}
}

// TestLocalComments shows that successive pods of one name are distinguished in the set of the local pods.
func TestLocalComments(t *testing.T) {
	w := newHarness(t)
	var comments []string
	for _, uid := range []string{"1", "2"} {
		w.do("shop/web {uid: '" + uid + "', node: node1, addrs: [10.32.1.2]}")
		p := w.pod("shop/web")
		for e, st := range w.tables[npc.IPv4].Local.States() {
			if e.Prefix != netip.MustParsePrefix("10.32.1.2/32") || st.Want.Comment != p.LocalComment() || p.Comment() != "shop/web" || len(p.ID()) != 10 {
				t.Errorf("%s with comment %q", e, st.Want.Comment)
			}
			comments = append(comments, st.Want.Comment)
		}
		w.do("delete shop/web")
	}
	if len(comments) != 2 || comments[0] == comments[1] {
		t.Errorf("comments: %q", comments)
	}
}
