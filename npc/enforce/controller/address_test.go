package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestS72_NoObjectTakesALocalPodOutOfEnforcement shows what others' objects and the node do to the address of a local
// pod.
func TestS72_NoObjectTakesALocalPodOutOfEnforcement(t *testing.T) {
	const web = "10.32.1.2,fd32:1::2"
	hosts := func(p *npc.Pod) { p.HostAddrs = fixture.Addrs(web) }
	for _, c := range []struct {
		name string
		do   func(w *harness)
		kind ipowner.Kind // of the conflicts; empty for none
		want string
	}{
		{"nothing", func(*harness) {}, "", "outside > a/web tcp:80 = no\n outside > unknown tcp:80 = yes"},
		{"another_nodes_finished_pod_names_it_as_its_hosts", func(w *harness) {
			w.SetPod("b/liar", "", nil, func(p *npc.Pod) { hosts(p); p.Node, p.Finished = "node2", true })
		}, ipowner.HostIPs, "outside > a/web tcp:80 = no\n outside > unknown tcp:80 = yes"},
		{"a_pod_of_this_node_names_it_as_its_hosts", func(w *harness) { w.SetPod("b/liar", "10.32.1.9,fd32:1::9", nil, hosts) },
			ipowner.HostIPs, "outside > a/web tcp:80 = no\n outside > b/liar tcp:80 = yes"},
		{"a_host_network_pod_has_it", func(w *harness) {
			w.SetPod("b/liar", "10.32.1.2,fd32:1::2", nil, func(p *npc.Pod) { hosts(p); p.HostNetwork = true })
		}, ipowner.HostIPs, "outside > a/web tcp:80 = no"},
		{"a_later_pod_of_another_node_claims_it", func(w *harness) {
			w.SetPod("b/liar", "10.32.1.2,fd32:1::2", nil, func(p *npc.Pod) { p.Node, p.Started = "node2", time.Unix(9, 0) })
		}, ipowner.RemotePod, "outside > a/web tcp:80 = no"},
		{"a_later_free_pod_of_this_node_claims_it", func(w *harness) {
			w.SetPod("b/liar", "10.32.1.2,fd32:1::2", nil, func(p *npc.Pod) { p.Started = time.Unix(9, 0) })
		}, ipowner.LocalPod, "outside > a/web tcp:80 = no\n a/client > a/web tcp:80 = no\n a/web > outside tcp:80 = yes"},
		{"the_node_has_it", func(w *harness) { w.Model.SetNodeAddrs(fixture.Addrs(web)) },
			ipowner.OfNode, "outside > a/web tcp:80 = no\n a/client > a/web tcp:80 = no\n outside > unknown tcp:80 = no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, start starter) {
				w := start(t)
				w.Namespace("a")
				w.Addr("unknown", "10.32.1.77", "fd32:1::77")
				w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
				w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
				w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
				w.Sync()
				c.do(w)
				w.Again(false)
				w.Expect(c.want)
				conflicts := w.Model.Conflicts()
				for _, x := range conflicts {
					if x.Kind != c.kind {
						t.Errorf("conflict: %s", x.Message())
					}
				}
				if c.kind != "" && len(conflicts) != 2 {
					t.Errorf("%d conflicts, not one for each address: %v", len(conflicts), conflicts)
				}
				w.DeletePod("b/liar")
				w.Model.SetNodeAddrs(nil)
				w.Again(false)
				w.Expect("outside > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes\n outside > unknown tcp:80 = yes")
				if conflicts := w.Model.Conflicts(); len(conflicts) > 0 {
					t.Errorf("conflicts are left: %v", conflicts)
				}
			})
		})
	}
}

// TestS27_ARemotePeersAddressIsForgotten shows when connections of addresses of other nodes' pods are deleted.
func TestS27_ARemotePeersAddressIsForgotten(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a")
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Remote("a/peer", "10.32.2.3,fd32:2::3", "app=client")
	w.Remote("a/other", "10.32.2.4,fd32:2::4", "app=other")
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	w.Sync()
	w.Applied()
	w.DeletePod("a/peer")
	w.DeletePod("a/other")
	w.Remote("a/next", "10.32.2.3,fd32:2::3", "app=other")
	for f, tx := range w.Plan(false) {
		var got []string
		for _, r := range tx.FlushConntrack {
			got = append(got, fmt.Sprint(r.Addr, r.Scope == conntrack.All, r.Later))
		}
		want := [][]string{{"10.32.2.3 false false", "10.32.2.4 false true"}, {"fd32:2::3 false false", "fd32:2::4 false true"}}[f]
		if !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestS73_AnAddressCountsFromWhenItWasReported for this boot and sandbox.
func TestS73_AnAddressCountsFromWhenItWasReported(t *testing.T) {
	boot := time.Unix(10_000, 0)
	since := func(d time.Duration) func(*npc.Pod) { return func(p *npc.Pod) { p.LastStart = boot.Add(d) } }
	stale := func(p *npc.Pod) { p.StaleAddrs = true }
	const counts = "a/client > a/web tcp:80 = yes\n outside > a/web tcp:80 = no\n outside > unknown tcp:80 = yes"
	const waits = "a/client > a/web tcp:80 = no\n outside > a/web tcp:80 = no\n outside > unknown tcp:80 = no"
	for _, c := range []struct {
		name   string
		change func(*npc.Pod)
		want   string
	}{
		{"nothing_is_reported", func(*npc.Pod) {}, counts},
		{"started_after_the_boot", since(time.Minute), counts},
		{"started_a_moment_before_the_boot_by_the_clock", since(-5 * time.Second), counts},
		{"started_before_the_boot", since(-time.Minute), waits},
		{"the_sandbox_is_not_there", stale, waits},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, start starter) {
				w := start(t, func(c *enforce.Config) { c.Booted = func() time.Time { return boot } })
				w.Namespace("a")
				w.Addr("unknown", "10.32.1.77", "fd32:1::77")
				w.SetPod("a/web", "10.32.1.2,fd32:1::2", []string{"app=web"}, c.change)
				w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
				w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
				w.Sync()
				w.Expect(c.want)
				w.SetPod("a/web", "10.32.1.4,fd32:1::4", []string{"app=web"}, since(time.Hour))
				w.Again(false)
				w.Expect(counts)
			})
		})
	}
	t.Run("an_old_owner_does_not_keep_it", func(t *testing.T) {
		onEveryKernel(t, func(t *testing.T, start starter) {
			w := start(t, func(c *enforce.Config) { c.Booted = func() time.Time { return boot } })
			w.Namespace("a")
			w.SetPod("a/old", "10.32.1.2,fd32:1::2", []string{"app=old"}, since(-time.Hour))
			w.SetPod("a/web", "", []string{"app=web"}, nil)
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
			w.Sync()
			w.Expect("outside > 10.32.1.2 tcp:80 = no\n outside > fd32:1::2 tcp:80 = no")
			w.SetPod("a/web", "10.32.1.2,fd32:1::2", []string{"app=web"}, func(p *npc.Pod) { since(time.Minute)(p); p.Created = boot.Add(-2 * time.Hour) })
			w.Again(false)
			w.Expect("outside > 10.32.1.2 tcp:80 = no\n a/web > outside tcp:80 = yes")
			w.Policy("a/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`)
			w.Again(false)
			w.Expect("outside > 10.32.1.2 tcp:80 = yes\n outside > fd32:1::2 tcp:80 = yes")
		})
	})
	t.Run("a_remote_pod_is_no_peer_by_it", func(t *testing.T) {
		w := newHarness(t)
		w.Namespace("a")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Remote("a/client", "10.32.2.3,fd32:2::3", "app=client")
		w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
		w.Sync()
		w.Expect("a/client > a/web tcp:80 = yes")
		w.SetPod("a/client", "10.32.2.3,fd32:2::3", []string{"app=client"}, func(p *npc.Pod) { p.Node = "node2"; stale(p) })
		w.Again(false)
		w.Expect("a/client > a/web tcp:80 = no")
	})
}

// TestS73_AStaleAddressStaysClosedAfterARemotePodHadIt has a remote pod come and go between two plans.
func TestS73_AStaleAddressStaysClosedAfterARemotePodHadIt(t *testing.T) {
	w := newHarness(t, identifiedByRange)
	w.Namespace("a")
	w.SetPod("a/web", "10.32.1.2", []string{"app=web"}, func(p *npc.Pod) { p.StaleAddrs = true })
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	w.Sync()
	closed := func() bool {
		for e, attr := range w.Kernels[npc.IPv4].Sets["weave-fail-closed-ingress"].Members {
			if e == ipset.Addr(netip.MustParseAddr("10.32.1.2")) {
				return !attr.NoMatch
			}
		}
		return false
	}
	if !closed() {
		t.Fatal("the stale address is not closed")
	}
	w.Pod("a/other", "10.32.1.9")
	w.Remote("a/remote", "10.32.1.2")
	w.DeletePod("a/remote")
	w.Again(false)
	if !closed() {
		t.Error("the stale address is open after a remote pod had it")
	}
}

// TestS60_AnAddressThatARemotePodHasNowIsNotClosedAtTheStart for the local pod that had it before and was isolated.
func TestS60_AnAddressThatARemotePodHasNowIsNotClosedAtTheStart(t *testing.T) {
	objects := func(w *harness) {
		w.Namespace("a")
		w.Pod("a/client", "10.32.1.3,fd32:1::3")
		w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)
	}
	w := newHarness(t, identifiedByRange)
	objects(w)
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Sync()
	w = w.restarted()
	objects(w)
	w.Remote("a/remote", "10.32.1.2,fd32:1::2")
	w.Sync()
	w.Expect("a/client > a/remote tcp:80 = yes\na/remote > a/client tcp:80 = yes")
}

// TestPodsThatShareAStaleAddressMakeNoTransactions when nothing changes.
func TestPodsThatShareAStaleAddressMakeNoTransactions(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a")
	for i := range 5 {
		w.SetPod(fmt.Sprintf("a/web%d", i), "10.32.1.2", []string{"app=web"}, func(p *npc.Pod) { p.StaleAddrs = true })
	}
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	w.Sync()
	w.Applied()
	for range 20 {
		w.Again(false)
	}
	if text := w.Applied(); text != "" {
		t.Errorf("transactions:\n%s", text)
	}
}

// TestS59_ADeletedPodsAddressIsRememberedOverAStart: also if another pod reported the address too, as a stale one.
func TestS59_ADeletedPodsAddressIsRememberedOverAStart(t *testing.T) {
	const deny = `{podSelector: {matchLabels: {app: web}}}`
	w := newHarness(t, identifiedByRange)
	w.Namespace("a")
	w.Policy("a/web", deny)
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Sync()
	w.DeletePod("a/web")
	w.SetPod("a/other", "10.32.1.2,fd32:1::2", []string{"app=web"}, func(p *npc.Pod) { p.StaleAddrs = true })
	w.Again(false)
	w = w.restarted()
	w.Namespace("a")
	w.Policy("a/web", deny)
	w.Sync()
	w.Expect("outside > a/web tcp:80 = no")
}

// TestS72_TheNodeOfAConflictingPod: a pod that policies may deny the node does not reach it, while another pod that
// claims its address is isolated: the source of the packets is ambiguous, and the pod is in no list meanwhile.
func TestS72_TheNodeOfAConflictingPod(t *testing.T) {
	w := newHarness(t, identifiedByRange)
	w.Namespace("a")
	w.Pod("a/old", "10.32.1.2,fd32:1::2", "app=old")
	w.SetPod("a/later", "10.32.1.2,fd32:1::2", []string{"app=later"}, func(p *npc.Pod) { p.Started = time.Unix(9, 0) })
	w.ClusterPolicy("guard", `{tier: Baseline, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: later}}}},
egress: [{action: Deny, to: [{networks: [192.0.2.1/32, '2001:db8::1/128']}]}]}`)
	w.Sync()
	toNode := func(want bool) {
		t.Helper()
		for _, addrs := range [][2]string{{"10.32.1.2", "192.0.2.1"}, {"fd32:1::2", "2001:db8::1"}} {
			p := simulate.Packet{Src: netip.MustParseAddr(addrs[0]), Dst: netip.MustParseAddr(addrs[1]), Protocol: 6, DstPort: 22, In: "cni0", ToNode: true}
			if got := w.Evaluate(p); got.Accepted != want {
				t.Errorf("%v: accepted = %t, by %q", p, got.Accepted, got.By)
			}
		}
	}
	toNode(false) // its own rule
	w.Policy("a/old", `{podSelector: {matchLabels: {app: old}}, policyTypes: [Egress]}`)
	w.Again(false)
	toNode(false)
	w.Model.DeleteClusterPolicy("guard", "guard")
	w.Again(true)
	toNode(true) // NetworkPolicies keep no pod from its node
}
