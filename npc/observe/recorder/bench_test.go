package recorder

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkRecord names and records connections to local pods, as many at a time as a reading has at 20,000 a second:
// all alike, from a few pods, and each from another address outside, so that each makes a record and drops another one;
// or in eight groups of staged policies that would all deny it.
func BenchmarkRecord(b *testing.B) {
	const batch = 200
	objects := synthetic.Cluster{Namespaces: 100, Pods: 10_000, Local: 110, Policies: 1}
	m := controller.New(enforce.Config{NodeName: synthetic.Node})
	for i := range objects.Pods + objects.Local {
		p := objects.Pod(i)
		m.SetPod(p)
		m.SetNamespace(fixture.Namespace(p.Namespace))
	}
	local := objects.Pod(objects.Pods).Addrs[0]
	var pods [20]netip.Addr
	for i := range pods {
		pods[i] = objects.Pod(i).Addrs[0]
	}
	for _, c := range []struct {
		name   string
		from   func(i int) netip.Addr
		groups int
	}{
		{"alike", func(int) netip.Addr { return pods[0] }, 0},
		{"20-pods", func(i int) netip.Addr { return pods[i%len(pods)] }, 0},
		{"20-pods-in-8-groups", func(i int) netip.Addr { return pods[i%len(pods)] }, 8},
		{"unknown", func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)}) }, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := range c.groups { // each denies all
				controller.StageOf(m).StageClusterPolicy(staged.Key{Name: fmt.Sprint("w", i)}, staged.Operation{Group: fmt.Sprint("w", i), Adds: true},
					fixture.ClusterPolicy(b, fmt.Sprint("w", i), `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`))
			}
			defer func() {
				for i := range c.groups {
					controller.StageOf(m).Unstage(staged.Key{Name: fmt.Sprint("w", i)})
				}
			}()
			s := flowlog.NewStore("node1", 20_000)
			opened := make([]flowlog.Connection, batch)
			for n := 0; b.Loop(); n++ {
				for i := range opened {
					opened[i] = flowlog.Connection{Src: c.from(n*batch + i), Dst: local, Service: flow.Service{Protocol: 6, Port: 80}}
				}
				s.Add(time.Now(), evaluator{Names: m.Lookup(), domains: controller.NamesOf(m)}, flowlog.Allowed, opened)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/batch, "ns/connection")
		})
	}
}
