package syncer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// manyBlocks is a policy of another namespace with so many address blocks; the first differs with the edit.
func manyBlocks(name string, blocks, edit int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name, p.UID = "busy", name, types.UID("busy/"+name)
	rule := networkingv1.NetworkPolicyIngressRule{}
	for i := range blocks {
		b := &networkingv1.IPBlock{CIDR: fmt.Sprintf("100.%d.%d.0/24", i>>8, i&255), Except: []string{fmt.Sprintf("100.%d.%d.%d/32", i>>8, i&255, i%250)}}
		if i == 0 {
			b.CIDR, b.Except = fmt.Sprintf("192.%d.%d.0/24", edit>>8&255, edit&255), nil
		}
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: b})
	}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{rule}
	return p
}

// BenchmarkPodAlongsideABusyTenant is the time from the event of a new pod that a policy isolates until the kernel has
// it among the isolated ones, alone, and while another namespace's policies keep weave-npc busy.
func BenchmarkPodAlongsideABusyTenant(b *testing.B) {
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		for _, c := range []struct {
			name           string
			edited, atOnce int
		}{{"alone", 0, 0}, {"edited=3000", 3000, 0}, {"edited=5000", 5000, 0}, {"at-once=9x7500", 0, 7500}} {
			b.Run(string(backend)+"/"+c.name, func(b *testing.B) { alongsideABusyTenant(b, backend, c.edited, c.atOnce) })
		}
	}
}

func alongsideABusyTenant(b *testing.B, backend iptables.Backend, edited, atOnce int) {
	cluster.Empty(b)
	m := controller.New(enforce.Config{NodeName: cluster.Node, PodInterface: "cni0", ForwardJump: true, AllowAction: "ACCEPT", FailClosed: enforce.FailClosedAuto, NFLogGroup: 86,
		AllowMcast: true, MaxListSize: 1024})
	s, err := syncer.New(m, npc.Families[:], backend, syncer.NewMetrics(prometheus.NewRegistry(), m, npc.Families[:]), slog.New(slog.DiscardHandler), func(enforce.InvalidPolicy) {})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sets, err := ipset.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer sets.Close()
	pod := func(key string, last int) {
		m.SetPod(fixture.Pod(fmt.Sprintf("%s %s 10.32.%d.%d app=web", key, cluster.Node, last>>8, last&255)))
	}
	m.SetNamespace(fixture.Namespace("busy"))
	m.SetNamespace(fixture.Namespace("other"))
	pod("busy/pod", 1)
	pod("other/pod", 2)
	m.SetPolicy(fixture.Policy(b, "other/web",
		`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`))
	m.SetSynced()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = s.Run(ctx, false); ended <- struct{}{} }()
	go func() {
		for i := 0; edited > 0 && ctx.Err() == nil; i++ {
			m.SetPolicy(manyBlocks("edited", edited, i))
			time.Sleep(100 * time.Millisecond)
		}
		ended <- struct{}{}
	}()
	defer func() {
		cancel()
		<-ended
		<-ended
	}()
	<-s.Enforced().Done()
	isolated := naming.ShardSet(npc.IPv4, npc.Ingress, "other", "")
	has := func(last int) bool {
		all, err := sets.List(isolated)
		if err != nil {
			b.Fatal(err)
		}
		e := ipset.Addr(netip.AddrFrom4([4]byte{10, 32, byte(last >> 8), byte(last)}))
		return len(all) > 0 && slices.ContainsFunc(all[0].Members, func(m ipset.Element) bool { return m.Entry == e })
	}
	var took []time.Duration
	last := 10
	for b.Loop() {
		b.StopTimer()
		if atOnce > 0 {
			for i := range 9 {
				m.DeletePolicy("busy", fmt.Sprint("p", i), "")
			}
		}
		time.Sleep(time.Duration(137+last%7*31) * time.Millisecond)
		var appear []*networkingv1.NetworkPolicy
		for i := 0; atOnce > 0 && i < 9; i++ {
			appear = append(appear, manyBlocks(fmt.Sprint("p", i), atOnce, last))
		}
		last++
		b.StartTimer()
		start := time.Now()
		for _, p := range appear {
			m.SetPolicy(p)
		}
		for pod(fmt.Sprint("other/new", last), last); !has(last); time.Sleep(time.Millisecond) {
			if time.Since(start) > time.Minute {
				b.Fatal("not enforced within a minute")
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/max")
}
