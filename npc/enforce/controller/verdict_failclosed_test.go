package controller_test

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

const denyWeb = `{podSelector: {matchLabels: {app: web}}}`

// deleted returns a harness where an isolated pod was deleted without a report of its end, and its address is closed.
func deleted(t *testing.T, start starter) *harness {
	w := start(t)
	w.Policy("a/web", denyWeb)
	w.Pod("a/old", "10.32.1.5,fd32:1::5", "app=web")
	w.Sync()
	w.DeletePod("a/old")
	w.Again(false)
	w.Expect("outside > a/old tcp:80 = no")
	return w
}

// TestFailClosedFilter checks what packets of unknown addresses in the node's range get.
func TestFailClosedFilter(t *testing.T) {
	each := func(name string, do func(t *testing.T, start starter)) {
		t.Run(name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, fresh starter) {
				do(t, func(t *testing.T, configure ...func(*enforce.Config)) *harness {
					w := fresh(t, configure...)
					w.Namespace("a")
					w.Addr("unknown", "10.32.1.77", "fd32:1::77")
					return w
				})
			})
		})
	}
	each("S60_open_without_policy", func(t *testing.T, start starter) {
		w := start(t)
		w.SetPod("a/new", "", []string{"app=web"}, nil)
		w.Sync()
		w.Expect("outside > unknown tcp:80 = yes")
	})
	each("S59_closed_while_a_selected_pod_has_no_address", func(t *testing.T, start starter) {
		w := start(t)
		w.Policy("a/web", denyWeb)
		w.SetPod("a/new", "", []string{"app=web"}, nil)
		w.Sync()
		w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = yes")
		w.Pod("a/new", "10.32.1.5,fd32:1::5", "app=web")
		w.Again(false)
		w.Expect("outside > unknown tcp:80 = yes\n outside > a/new tcp:80 = no")
	})
	each("closed_by_flag", func(t *testing.T, start starter) {
		w := start(t, func(c *enforce.Config) { c.FailClosed = enforce.FailClosedAlways })
		w.Sync()
		w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no")
	})
	each("open_by_flag", func(t *testing.T, start starter) {
		w := start(t, func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever })
		w.Policy("a/web", denyWeb)
		w.SetPod("a/new", "", []string{"app=web"}, nil)
		w.Sync()
		w.Expect("outside > unknown tcp:80 = yes")
	})
	each("remote_pods_within_the_range_pass", func(t *testing.T, start starter) {
		w := start(t, func(c *enforce.Config) {
			c.FailClosed, c.PodInterface = enforce.FailClosedAlways, ""
			c.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.32.0.0/16")}
		})
		w.Remote("a/far", "10.32.2.9")
		w.Sync()
		w.Expect("outside > a/far tcp:80 = yes\n outside > 10.32.2.10 tcp:80 = no")
	})
	each("closed_by_flag_without_a_range", func(t *testing.T, start starter) {
		w := start(t, func(c *enforce.Config) { c.FailClosed, c.PodRanges = enforce.FailClosedAlways, nil })
		w.Sync()
		w.Expect("outside > 98.51.100.7 tcp:80 = no\n outside > 198.51.100.8 tcp:80 = no\n" +
			"outside > 2001:db8::9 tcp:80 = no\n outside > fd00::9 tcp:80 = no")
	})
	each("S27_the_address_of_an_isolated_pod_that_was_deleted_is_one_of_another_node", func(t *testing.T, start starter) {
		w := deleted(t, start)
		w.Remote("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.Again(false)
		w.Expect("outside > a/next tcp:80 = yes")
	})
	each("an_isolated_pod_that_was_deleted_stays_closed", func(t *testing.T, start starter) {
		w := deleted(t, start)
		w.Pod("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.Again(false)
		w.Expect("outside > a/next tcp:80 = yes")
	})
	each("S68_link_local", func(t *testing.T, start starter) {
		w := start(t)
		w.Policy("a/web", denyWeb)
		w.Pod("a/web", "10.32.1.5,fd32:1::5", "app=web")
		w.Sync()
		w.Expect("fe80::1 > fe80::2 tcp:80 = no")
		if v := w.Evaluate(simulate.Packet{Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("fe80::2"), Protocol: 58,
			ICMPType: 135, HopLimit: 255, In: "cni0", Out: "cni0"}); !v.Accepted {
			t.Errorf("neighbour discovery is dropped by %q", v.By)
		}
	})
	each("S68_link_local_where_pods_are_identified_by_their_range", func(t *testing.T, start starter) {
		w := start(t, func(c *enforce.Config) { c.PodInterface = "" })
		w.Policy("a/web", denyWeb)
		w.Pod("a/web", "10.32.1.5,fd32:1::5", "app=web")
		w.Sync()
		w.Expect("fe80::1 > fe80::2 tcp:80 = no")
		w.DeletePolicy("a/web")
		w.Again(false)
		w.Expect("fe80::1 > fe80::2 tcp:80 = yes")
	})
	each("before_the_objects_are_known", func(t *testing.T, start starter) {
		w := start(t)
		w.Boot()
		w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no\n outside > outside tcp:80 = yes")
		w.Sync()
		w.Expect("outside > unknown tcp:80 = yes")
	})
}
