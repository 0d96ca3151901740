package failclosed

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// behind returns what the kernel has behind ports, from words such as fd32:1::2=in/web. The UID of a pod is its name.
func behind(words string) map[netip.Addr]types.UID {
	addrs := map[netip.Addr]types.UID{}
	for _, word := range strings.Fields(words) {
		a, pod, _ := strings.Cut(word, "=")
		addrs[netip.MustParseAddr(a)] = types.UID(pod)
	}
	return addrs
}

// TestAddressesThatNoObjectLists are closed in the directions that their pod is isolated in.
func TestAddressesThatNoObjectLists(t *testing.T) {
	const (
		web    = "in/web {node: node1, addrs: [10.32.1.2]}"
		six    = "fd32:1::2=in/web"
		closed = "fd32:1::2: in/web has it and no object lists it"
	)
	for _, c := range []struct {
		name            string
		events          []string
		behind          string
		then            []string
		ingress, egress string
	}{
		{"an_isolated_pods", []string{web}, six, nil, closed, ""},
		{"in_both_directions", []string{"both/web {node: node1, addrs: [10.32.1.2]}"}, "fd32:1::2=both/web", nil,
			"fd32:1::2: both/web has it and no object lists it", "fd32:1::2: both/web has it and no object lists it"},
		{"a_free_pods", []string{"shop/web {node: node1, addrs: [10.32.1.2]}"}, "fd32:1::2=shop/web", nil, "", ""},
		{"a_pods_of_another_node", []string{"in/web {node: node2, addrs: [10.32.1.2]}"}, six, nil, "not 10.32.1.2: in/web", "not 10.32.1.2: in/web"},
		{"of_no_pod_that_is_known", nil, six, nil, "", ""},
		{"the_pod_comes_later", nil, six, []string{web}, closed, ""},
		{"the_object_lists_it", []string{web}, six, []string{"in/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}"}, "", ""},
		{"the_object_does_not_list_it_any_more", []string{"in/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}"}, six, []string{web}, closed, ""},
		{"another_pod_of_the_node_has_it", []string{web, "shop/x {node: node1, addrs: ['fd32:1::2']}"}, six, nil, "", ""},
		{"another_nodes_pod_has_it", []string{web}, six, []string{"shop/x {node: node2, addrs: ['fd32:1::2']}"},
			"not fd32:1::2: shop/x", "not fd32:1::2: shop/x"},
		{"and_has_it_no_more", []string{web}, six, []string{"shop/x {node: node2, addrs: ['fd32:1::2']}", "delete shop/x"}, closed, ""},
		{"the_node_has_it", []string{web, "node fd32:1::2"}, six, nil, "", ""},
		{"link_local", []string{web}, "fe80::7=in/web", nil, "", ""},
		{"the_pod_has_finished", []string{web}, six, []string{"in/web {node: node1, addrs: [10.32.1.2], finished: true}"}, "", ""},
		{"the_pod_vanishes", []string{web}, six, []string{"vanish in/web"}, "10.32.1.2: in/web deleted\nfd32:1::2: in/web deleted", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, nil, c.events...)
			w.SetUnlisted(behind(c.behind))
			w.update()
			w.do(c.then...)
			for d, want := range []string{c.ingress, c.egress} {
				if w.facts.Isolated[d] > 0 {
					want += "\nfe80::/10: link-local is no way around policies"
				}
				w.drops(npc.Direction(d), want)
			}
			w.SetUnlisted(nil)
			w.update()
			for _, d := range npc.Directions {
				for _, line := range entryTexts(w.Sets(npc.IPv6)[d]) {
					if strings.Contains(line, "no object lists") {
						t.Errorf("%s: still closed: %s", d, line)
					}
				}
			}
		})
	}
}

// TestUnlistedAddressesAreBounded: 16 of a pod are closed, and all are counted that are.
func TestUnlistedAddressesAreBounded(t *testing.T) {
	var words strings.Builder
	for i := range 40 {
		fmt.Fprintf(&words, "fd32:1::%x=in/web ", i+16)
	}
	w := newHarness(t, nil, "in/web {node: node1, addrs: [10.32.1.2]}")
	w.SetUnlisted(behind(words.String()))
	w.update()
	if n := len(entryTexts(w.Sets(npc.IPv6)[npc.Ingress])); n != maxUnlisted+1 || len(w.Unlisted()) != maxUnlisted {
		t.Errorf("%d entries; %v", n, w.Unlisted())
	}
	w = newHarness(t, func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever }, "in/web {node: node1, addrs: [10.32.1.2]}")
	w.SetUnlisted(behind("fd32:1::2=in/web"))
	w.update()
	if got := entryTexts(w.Sets(npc.IPv6)[npc.Ingress]); len(got)+len(w.Unlisted()) > 0 {
		t.Errorf("with --fail-closed=never: %q, %v", got, w.Unlisted())
	}
}

// TestS115_AddressesThatAreClosedWhileUnattended shows what is closed while weave-npc does not run.
func TestS115_AddressesThatAreClosedWhileUnattended(t *testing.T) {
	const (
		far    = "shop/far {node: node2, addrs: [10.32.1.200, 192.0.2.9]}"
		why    = "unknown while weave-npc is not running"
		ranges = "10.32.1.0/24: " + why + "\nfd32:1::/64: " + why
		all    = "0.0.0.0/1: " + why + "\n128.0.0.0/1: " + why + "\n::/1: " + why + "\n8000::/1: " + why
	)
	policies := func(w *harness) { w.facts.Policies = 1 }
	for _, c := range []struct {
		name      string
		configure func(*enforce.Config)
		before    func(w *harness)
		events    []string
		want      string
	}{
		{"no_policy", nil, nil, []string{"shop/web {node: node1, addrs: [10.32.1.2]}"}, ""},
		{"a_policy", nil, policies, []string{"shop/web {node: node1, addrs: [10.32.1.2]}"}, ranges},
		{"isolation_without_a_policy", nil, nil, []string{"in/web {node: node1, addrs: [10.32.1.2]}"}, ranges},
		{"before_all_objects_are_known", nil, func(w *harness) { w.facts.Synced = false }, nil, ""},
		{"policies_that_could_not_be_read", nil, func(w *harness) { w.facts.Missing = npc.ObjectsMissing }, nil, ranges},
		{"a_remote_pod_in_the_range", nil, policies, []string{far}, ranges + "\nnot 10.32.1.200: shop/far"},
		{"a_remote_pod_goes", nil, policies, []string{far, "delete shop/far"}, ranges},
		{"behind_the_interface", func(c *enforce.Config) { c.PodInterface = "cni0" }, policies, []string{far}, all},
		{"behind_an_uplink", func(c *enforce.Config) { c.PodInterface = "cni0" },
			func(w *harness) { policies(w); w.Ranges.SetUplinks(true, nil, nil) }, []string{far},
			all + "\nnot 10.32.1.200: shop/far\nnot 192.0.2.9: shop/far"},
		{"what_the_cni_sends", func(c *enforce.Config) { c.PodRanges, c.ForwardJump = nil, false }, policies, []string{far},
			all + "\nnot 10.32.1.200: shop/far\nnot 192.0.2.9: shop/far"},
		{"never", func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever }, policies, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, c.configure)
			if c.before != nil {
				c.before(w)
			}
			w.do(c.events...)
			expect(t, "unattended", c.want, w.unattended[npc.IPv4].Set, w.unattended[npc.IPv6].Set)
			w.facts.Policies, w.facts.Missing = 0, npc.NothingMissing
			if w.facts.Isolated == ([2]int{}) {
				w.update()
				for _, line := range entryTexts(w.unattended[npc.IPv4].Set, w.unattended[npc.IPv6].Set) {
					if !strings.HasPrefix(line, "not ") {
						t.Errorf("without a policy: %s", line)
					}
				}
			}
		})
	}
	w := newHarness(t, nil)
	if op := w.Alive(npc.IPv6); op.Set.Timeout != 5 || len(op.Elements) != 2 {
		t.Errorf("renewed: %s", op)
	}
}
