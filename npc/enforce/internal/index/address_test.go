package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
)

const (
	older    = "shop/older {node: node1, addrs: [10.32.1.2, 10.32.1.3], started: '2024-01-01T00:00:00Z'}"
	newer    = "shop/newer {node: node1, addrs: [10.32.1.2], started: '2024-01-02T00:00:00Z'}"
	afar     = "shop/afar {node: node2, addrs: [10.32.1.2]}"
	agent    = "ops/agent {node: node3, hostNetwork: true, hostAddrs: [10.32.1.2, 172.31.0.3]}"
	deleting = "shop/older {node: node1, addrs: [10.32.1.2], deleting: true}"
)

// TestOwners shows who owns 10.32.1.2, who else claims it, whose claim its owner's sets depend on, and what reports
// name it.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		owner  string
		others []string
		// contesting are local pods, each with the owners of what it claims.
		contesting []string
		called     string
	}{
		{"none", nil, "", nil, nil, ""},
		{"one_pod", []string{older}, "shop/older", nil, nil, "shop/older"},
		{"two_local_pods", []string{newer, older}, "shop/newer", []string{"shop/older"}, []string{"shop/older: shop/newer"}, "shop/newer"},
		{"a_local_and_a_remote_pod", []string{afar, older}, "shop/older", []string{"shop/afar"}, nil, "shop/older"},
		{"a_pod_and_this_node", []string{older, "node 10.32.1.2"}, "", []string{"shop/older"}, nil, "node"},
		{"a_remote_pod_and_another_node", []string{afar, agent}, "", []string{"shop/afar"}, nil, "node"},
		{"a_local_pod_and_another_node", []string{older, agent}, "shop/older", nil, nil, "shop/older"},
		{"another_node", []string{agent}, "", nil, nil, "node"},
		{"a_remote_and_a_local_pod_of_an_address_of_this_node", []string{older, afar, "node 10.32.1.2"}, "", []string{"shop/afar", "shop/older"}, nil,
			"node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, c.events...)
			a := fixture.Addrs("10.32.1.2")[0]
			owner := ""
			if p := w.Addresses.Owner(a); p != nil {
				owner = p.String()
			}
			others := names(w.Addresses.Others(a))
			var contesting []string
			for p := range w.Pods() {
				if owners := w.Addresses.Conflicting(p); len(owners) > 0 {
					contesting = append(contesting, p.String()+": "+strings.Join(names(owners), " "))
				}
			}
			if owner != c.owner || !slices.Equal(others, c.others) || !slices.Equal(contesting, c.contesting) || w.NameOf(a) != c.called {
				t.Errorf("owned by %q, claimed by %q, conflicting: %q, called %q", owner, others, contesting, w.NameOf(a))
			}
			if local := strings.HasPrefix(owner, "shop/") && owner != "shop/afar"; w.Addresses.IsLocal(a) != local {
				t.Errorf("it is a local pod's: %t", !local)
			}
		})
	}
}

func names(pods []*Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}

// TestConflicts shows what is reported about contradicting claims of local pods.
func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   []string
	}{
		{"none", []string{older, "shop/x {node: node1, addrs: [10.32.1.9]}"}, nil},
		{"two_local_pods_of_which_the_owner_is_named", []string{newer, older}, []string{"10.32.1.2 local-pod shop/newer shop/older"}},
		{"one_of_them_is_being_deleted", []string{newer, deleting}, nil},
		{"a_remote_pod", []string{older, afar}, []string{"10.32.1.2 remote-pod shop/older shop/afar"}},
		{"the_node_has_two_addresses", []string{older, "node 10.32.1.2 10.32.1.3"}, []string{"10.32.1.2 node shop/older /", "10.32.1.3 node shop/older /"}},
		{"the_node_has_an_address_of_two_pods", []string{newer, older, "node 10.32.1.2"}, []string{"10.32.1.2 node shop/newer /",
			"10.32.1.2 node shop/older /"}},
		{"pods_name_it_as_their_nodes", []string{older, agent, "ops/a {node: node3, hostAddrs: [10.32.1.2]}",
			"ops/z {node: node3, hostAddrs: [10.32.1.2]}"},
			[]string{"10.32.1.2 host-ips shop/older ops/a"}},
		{"everything", []string{older, afar, agent}, []string{"10.32.1.2 host-ips shop/older ops/agent", "10.32.1.2 remote-pod shop/older shop/afar"}},
		{"in_order", []string{"shop/d {node: node1, addrs: [10.32.1.4]}", "shop/a {node: node1, addrs: [10.32.1.6]}",
			"shop/c {node: node1, addrs: [10.32.1.5]}",
			"shop/b {node: node1, addrs: [10.32.1.3]}", "node 10.32.1.3 10.32.1.4 10.32.1.5 10.32.1.6"},
			[]string{"10.32.1.3 node shop/b /", "10.32.1.4 node shop/d /", "10.32.1.5 node shop/c /", "10.32.1.6 node shop/a /"}},
		{"only_local_pods_are_named", []string{afar, agent, "shop/far {node: node4, addrs: [10.32.1.2]}"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, found := range newHarness(t, c.events...).Conflicts() {
				got = append(got, fmt.Sprintf("%s %s %s %s", found.Addr, found.Kind, found.Pod, found.Other))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("reported: %q, want %q", got, c.want)
			}
		})
	}
}

// TestPlace shows that a pod is in the sets that others want it in as long as they do, and that it is an exception in a
// set of networks even if the set took the entry for something else meanwhile.
func TestPlace(t *testing.T) {
	w := newHarness(t, "shop/far {node: node2, addrs: [10.32.2.2]}")
	p, a := w.pod("shop/far"), fixture.Addrs("10.32.2.2")[0]
	failClosed := w.tables[npc.IPv4].Sets.AddFixed("fail-closed-ingress", ipset.HashNet, "fail closed")
	allowed := w.tables[npc.IPv4].Sets.AddFixed("allowed", ipset.HashIP, "allowed")
	exception, member := Membership{failClosed, ipset.Addr(a)}, Membership{allowed, ipset.Addr(a)}
	check := func(when string, excepted, is bool) {
		t.Helper()
		g, m := failClosed.State(ipset.Addr(a)), allowed.State(ipset.Addr(a))
		if g.Wanted != excepted || g.Want.NoMatch != excepted || m.Wanted != is || m.Want.NoMatch || is && m.Want.Comment != "shop/far" {
			t.Errorf("%s: in the set of networks %+v, in the other %+v", when, g.Want, m.Want)
		}
	}
	both := []Membership{exception, member}
	w.Place(p, both)
	clear(both) // it is the caller's
	check("placed", true, true)
	failClosed.Add(ipset.Addr(a), ipset.Attr{Comment: "closed"})
	w.Place(p, []Membership{exception, member})
	check("placed again", true, true)
	w.Place(p, []Membership{exception})
	check("placed in one", true, false)
	if c := w.event("delete shop/far"); describe(c) != "shop/far; 10.32.2.2: shop/far > none" {
		t.Errorf("an exception is no peer: %s", describe(c))
	}
	check("deleted", false, false)
}

// TestFactsOfPods shows what is asked about one pod.
func TestFactsOfPods(t *testing.T) {
	w := newHarness(t, "namespace shop {defaultDeny: true}", "shop/web {node: node1, labels: {app: web, role: db}}", "ops/x {}")
	p := w.pod("shop/web")
	if !p.DefaultDeny() || w.pod("ops/x").DefaultDeny() || !p.Local() || w.pod("ops/x").Local() {
		t.Error("its namespace or its node is taken for another")
	}
	for text, want := range map[string]bool{"": true, "app: web": true, "app: db": false, "app: web, role: db": true, "tier: x": false,
		`app: "a b"`: false} {
		spec := `{podSelector: {matchLabels: {` + text + `}}}`
		c := policy.Compile(fixture.Policy(t, "shop/p", spec), quota.Default())
		if p.SelectedBy(c.Target) != want {
			t.Errorf("%s selects it: %t", spec, !want)
		}
	}
	if !p.labels.Has("app") || p.labels.Has("ap") || p.labels.Get("role") != "db" || p.labels.Get("ro") != "" {
		t.Errorf("labels: %v", p.labels)
	}
	if value, ok := p.labels.Lookup("app"); value != "web" || !ok {
		t.Errorf("app is %q", value)
	}
	for _, c := range []struct {
		text string
		want bool
	}{{"app=web role=db", true}, {"app=web", false}, {"app=web role=x", false}, {"app=web rule=db", false}} {
		if p.labels.Equal(fixture.Labels(c.text)) != c.want {
			t.Errorf("%s are its labels: %t", c.text, !c.want)
		}
	}
}
