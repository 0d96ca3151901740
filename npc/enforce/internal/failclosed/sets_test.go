package failclosed

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// TestDroppedAddresses shows the entries of the fail-closed filter's set on ingress. What is excepted is marked with
// "not".
func TestDroppedAddresses(t *testing.T) {
	const far = "shop/far {node: node2, addrs: [10.32.1.200, 192.0.2.9]}"
	notSynced := func(w *harness) { w.facts.Synced = false }
	byInterface := func(c *enforce.Config) { c.PodInterface = "cni0" }
	byCNI := func(c *enforce.Config) { c.PodRanges, c.ForwardJump = nil, false }
	for _, c := range []struct {
		name      string
		configure func(*enforce.Config)
		before    func(w *harness)
		events    []string
		want      string
	}{
		{"open", nil, nil, []string{"shop/web {node: node1, addrs: [10.32.1.2]}"}, ""},
		{"the_ranges", nil, notSynced, nil, "10.32.1.0/24: not all objects are known yet\n fd32:1::/64: not all objects are known yet"},
		{"everything_behind_the_interface", byInterface, notSynced, nil, `
			0.0.0.0/1: not all objects are known yet
			128.0.0.0/1: not all objects are known yet
			::/1: not all objects are known yet
			8000::/1: not all objects are known yet`},
		{"everything_that_the_cni_sends", byCNI, notSynced, nil, `
			0.0.0.0/1: not all objects are known yet
			128.0.0.0/1: not all objects are known yet
			::/1: not all objects are known yet
			8000::/1: not all objects are known yet`},
		{"a_remote_pod_in_the_range", nil, nil, []string{far}, "not 10.32.1.200: shop/far"},
		{"a_remote_pod_that_the_cni_may_send_to", byCNI, nil, []string{far}, "not 10.32.1.200: shop/far\n not 192.0.2.9: shop/far"},
		{"a_remote_pod_behind_the_interface", byInterface, nil, []string{far}, ""},
		{"a_remote_pod_behind_an_uplink", byInterface, func(w *harness) { w.Ranges.SetUplinks(true, nil, nil) }, []string{far},
			"not 10.32.1.200: shop/far\n not 192.0.2.9: shop/far"},
		{"a_remote_pod_is_excepted_from_the_range", nil, notSynced, []string{far}, `
			10.32.1.0/24: not all objects are known yet
			fd32:1::/64: not all objects are known yet
			not 10.32.1.200: shop/far`},
		{"a_remote_pod_goes", nil, nil, []string{far, "delete shop/far"}, ""},
		{"a_remote_pod_comes_here", nil, nil, []string{far, "shop/far {node: node1, addrs: [10.32.1.200]}"}, ""},
		{"isolated", nil, nil, []string{"in/web {node: node1, addrs: [10.32.1.2]}"}, "fe80::/10: link-local is no way around policies"},
		{"isolated_in_the_other_direction", nil, nil, []string{"out/web {node: node1, addrs: [10.32.1.2]}"}, ""},
		{"a_pod_without_address", nil, nil, []string{"in/new {node: node1}"}, `
			10.32.1.0/24: in/new has no address yet
			fd32:1::/64: in/new has no address yet
			fe80::/10: link-local is no way around policies`},
		{"an_address_outside_the_range_from_before_a_restart", nil, nil, []string{"in/new {node: node1, addrs: [192.0.2.2], staleAddrs: true}"}, `
			10.32.1.0/24: in/new reports an address that it had before it or the node was restarted
			fd32:1::/64: in/new reports an address that it had before it or the node was restarted
			192.0.2.2: in/new reports an address that it had before it or the node was restarted
			fe80::/10: link-local is no way around policies`},
		{"which_two_pods_claim", nil, nil, []string{"in/z {node: node1, addrs: [192.0.2.2], staleAddrs: true}",
			"in/new {node: node1, addrs: [192.0.2.2], staleAddrs: true}"}, `
			10.32.1.0/24: in/new reports an address that it had before it or the node was restarted
			fd32:1::/64: in/new reports an address that it had before it or the node was restarted
			192.0.2.2: in/new reports an address that it had before it or the node was restarted
			fe80::/10: link-local is no way around policies`},
		{"which_another_pod_owns", nil, nil, []string{"in/z {node: node1, addrs: [192.0.2.2], staleAddrs: true}",
			"shop/x {node: node2, addrs: [192.0.2.2]}"}, `
			10.32.1.0/24: in/z reports an address that it had before it or the node was restarted
			fd32:1::/64: in/z reports an address that it had before it or the node was restarted
			fe80::/10: link-local is no way around policies`},
		{"which_a_remote_pod_in_the_range_owns_now", nil, nil, []string{"in/z {node: node1, addrs: [10.32.1.2], staleAddrs: true}",
			"shop/x {node: node2, addrs: [10.32.1.2]}"}, `
			10.32.1.0/24: in/z reports an address that it had before it or the node was restarted
			fd32:1::/64: in/z reports an address that it had before it or the node was restarted
			not 10.32.1.2: shop/x
			fe80::/10: link-local is no way around policies`},
		{"and_does_not_any_more", nil, nil, []string{"in/z {node: node1, addrs: [10.32.1.2], staleAddrs: true}",
			"shop/x {node: node2, addrs: [10.32.1.2]}", "delete shop/x"}, `
			10.32.1.0/24: in/z reports an address that it had before it or the node was restarted
			fd32:1::/64: in/z reports an address that it had before it or the node was restarted
			10.32.1.2: in/z reports an address that it had before it or the node was restarted
			fe80::/10: link-local is no way around policies`},
		{"a_remote_pod_that_is_the_range", func(c *enforce.Config) { c.PodRanges = ranges("10.32.1.200/32") }, notSynced, []string{"shop/x {}", far},
			"10.32.1.200: not all objects are known yet"},
		{"an_isolated_pod_vanishes", nil, nil, []string{"in/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}", "vanish in/web"},
			"10.32.1.2: in/web deleted\n fd32:1::2: in/web deleted"},
		{"another_pod_has_its_address", nil, nil, []string{"in/web {node: node1, addrs: [10.32.1.2]}", "vanish in/web",
			"shop/x {node: node1, addrs: [10.32.1.2]}"}, ""},
		{"a_pod_that_is_free_vanishes", nil, nil, []string{"shop/web {node: node1, addrs: [10.32.1.2]}", "vanish shop/web"}, ""},
		{"a_pod_that_is_isolated_in_the_other_direction_vanishes", nil, nil, []string{"out/web {node: node1, addrs: [10.32.1.2]}", "vanish out/web"}, ""},
		{"opened_by_the_operator", func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever }, notSynced, []string{"in/new {node: node1}",
			"in/web {node: node1, addrs: [10.32.1.2]}", "vanish in/web"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, c.configure)
			if c.before != nil {
				c.before(w)
			}
			w.do(c.events...)
			w.drops(npc.Ingress, c.want)
		})
	}
}

// TestEachDirectionHasItsOwnGate shows that a pod closes the filter only in the directions that it is isolated in.
func TestEachDirectionHasItsOwnGate(t *testing.T) {
	w := newHarness(t, nil, "out/new {node: node1}", "out/web {node: node1, addrs: [10.32.1.2]}", "vanish out/web")
	w.drops(npc.Ingress, "")
	w.drops(npc.Egress, `
		10.32.1.0/24: out/new has no address yet
		fd32:1::/64: out/new has no address yet
		10.32.1.2: out/web deleted
		fe80::/10: link-local is no way around policies`)
	w.do("delete out/new")
	w.drops(npc.Egress, "10.32.1.2: out/web deleted")
	w = newHarness(t, func(c *enforce.Config) { c.PodInterface = "cni0" })
	w.Ranges.SetUplinks(true, nil, nil) // by which packets from behind it are identified
	w.do("shop/far {node: node2, addrs: [10.32.1.200]}")
	w.drops(npc.Ingress, "not 10.32.1.200: shop/far")
	w.drops(npc.Egress, "")
}

// TestEntriesThatWereTaken shows that an address stays closed that a remote pod had for a moment, which took the entry
// with it.
func TestEntriesThatWereTaken(t *testing.T) {
	w := newHarness(t, nil, "in/z {node: node1, addrs: [10.32.1.2], staleAddrs: true}")
	want := entryTexts(w.Sets(npc.IPv4)[npc.Ingress])
	w.follow(w.event("shop/x {node: node2, addrs: [10.32.1.2]}"))
	w.follow(w.event("delete shop/x"))
	w.update()
	expect(t, "entries", strings.Join(want, "\n"), w.Sets(npc.IPv4)[npc.Ingress])
}

// TestBroadcast shows when every address is a reason to drop broadcast.
func TestBroadcast(t *testing.T) {
	w := newHarness(t, nil)
	for _, c := range []struct{ event, why string }{
		{"shop/web {node: node1, addrs: [10.32.1.2]}", ""},
		{"out/web {node: node1, addrs: [10.32.1.3]}", ""},
		{"in/new {node: node1}", "a local pod is isolated"},
		{"delete in/new", ""},
	} {
		w.do(c.event)
		want := ""
		if c.why != "" {
			want = "0.0.0.0/1: " + c.why + "\n128.0.0.0/1: " + c.why + "\n::/1: " + c.why + "\n8000::/1: " + c.why
		}
		expect(t, c.event, want, w.broadcast.sets[:]...)
	}
	w.facts.Synced = false
	w.do()
	const why = "not all objects are known yet"
	expect(t, "not synced", "0.0.0.0/1: "+why+"\n128.0.0.0/1: "+why+"\n::/1: "+why+"\n8000::/1: "+why, w.broadcast.sets[:]...)
}

// TestRangeSets shows what the kernel holds of the ranges of the node's pods.
func TestRangeSets(t *testing.T) {
	const bridge = "\n 0.0.0.0: all pods on a bridge\n 255.255.255.255: all pods on a bridge"
	for _, c := range []struct {
		name      string
		configure func(*enforce.Config)
		set       []string // the node's own ranges
		changed   bool
		want      string
	}{
		{"given", nil, nil, false, "10.32.1.0/24: the node's pods\n fd32:1::/64: the node's pods\n fe80::/10: pods on a bridge" + bridge},
		{"given_before_the_nodes_own", nil, []string{"10.99.0.0/24"}, false,
			"10.32.1.0/24: the node's pods\n fd32:1::/64: the node's pods\n fe80::/10: pods on a bridge" + bridge},
		{"the_nodes_own", func(c *enforce.Config) { c.PodRanges = nil }, []string{"10.99.0.7/24"}, true,
			"10.99.0.0/24: the node's pods\n fe80::/10: pods on a bridge" + bridge},
		{"none", func(c *enforce.Config) { c.PodRanges = nil }, nil, false, bridge},
		{"everything", func(c *enforce.Config) { c.PodRanges = ranges("0.0.0.0/0") }, nil, false,
			"0.0.0.0/1: the node's pods\n 128.0.0.0/1: the node's pods\n fe80::/10: pods on a bridge" + bridge},
		{"by_the_interface", func(c *enforce.Config) { c.PodInterface, c.PodRanges = "cni0", nil }, []string{"10.99.0.0/24"}, true,
			"10.99.0.0/24: the node's pods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, c.configure)
			if changed := w.Ranges.Set(ranges(c.set...)); changed != c.changed {
				t.Errorf("they change something: %t", changed)
			}
			if w.Ranges.Set(ranges(c.set...)) && c.name != "the_nodes_own" {
				t.Error("they change something again")
			}
			expect(t, "ranges", c.want, w.Ranges.sets[:]...)
		})
	}
}

// TestUplinks shows the addresses behind uplinks of the pods' bridge in the kernel: none until there is an uplink.
func TestUplinks(t *testing.T) {
	w := newHarness(t, nil)
	w.Ranges.SetUplinks(false, ranges("10.0.0.0/8"), nil)
	if w.Ranges.behind[npc.IPv4] != nil || w.Ranges.uplink {
		t.Error("there is a set without an uplink")
	}
	w.Ranges.SetUplinks(true, ranges("0.0.0.0/0", "10.32.0.0/16", "fd32::/32"), ranges("10.32.1.0/24", "10.32.0.0/16"))
	expect(t, "behind", `
		0.0.0.0/1: behind an uplink
		128.0.0.0/1: behind an uplink
		10.32.0.0/16: behind an uplink
		not 10.32.1.0/24: on the bridge
		fd32::/32: behind an uplink`, w.Ranges.behind[:]...)
	w.Ranges.SetUplinks(false, nil, nil)
	expect(t, "behind", "", w.Ranges.behind[:]...)
}

// TestOutOfRange shows which pods' packets are not seen before their addresses are known.
func TestOutOfRange(t *testing.T) {
	w := newHarness(t, func(c *enforce.Config) { c.PodRanges = ranges("10.32.1.0/24") }, "shop/in {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}",
		"shop/out {node: node1, addrs: [10.32.1.3, 10.99.1.3]}", "shop/new {node: node1}")
	for pod, want := range map[string]bool{"shop/in": false, "shop/out": true, "shop/new": false} {
		if w.OutOfRange(w.pod(pod)) != want {
			t.Errorf("%s is out of the range: %t", pod, !want)
		}
	}
	for addr, want := range map[string]bool{"10.32.1.9": true, "10.32.2.9": false, "fd32:1::2": false} {
		if w.Ranges.Contains(ranges(addr + "/0")[0].Addr()) != want {
			t.Errorf("%s is in the range: %t", addr, !want)
		}
	}
}
