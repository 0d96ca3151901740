package recording

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flows"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkRecord names and records connections to local pods, as many at a time as a reading has at 20,000 a second: all alike, from a few pods, and each
// from another address outside, so that each makes a record and drops another one.
func BenchmarkRecord(b *testing.B) {
	const batch = 200
	c := synthetic.Cluster{Namespaces: 100, Pods: 10_000, Local: 110, Policies: 1}
	m := controller.New(npc.Config{NodeName: synthetic.Node})
	for i := range c.Pods + c.Local {
		m.SetPod(c.Pod(i))
	}
	local := c.Pod(c.Pods).Addrs[0]
	var pods [20]netip.Addr
	for i := range pods {
		pods[i] = c.Pod(i).Addrs[0]
	}
	for name, from := range map[string]func(i int) netip.Addr{
		"alike":     func(int) netip.Addr { return pods[0] },
		"20-pods":   func(i int) netip.Addr { return pods[i%len(pods)] },
		"strangers": func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)}) },
	} {
		b.Run(name, func(b *testing.B) {
			s := flows.NewStore("node1", 20_000)
			opened := make([]flows.Connection, batch)
			for n := 0; b.Loop(); n++ {
				for i := range opened {
					opened[i] = flows.Connection{Src: from(n*batch + i), Dst: local, Service: flow.Service{Protocol: 6, Port: 80}}
				}
				s.Add(time.Now(), judge{m.Lookup()}, flows.Allowed, opened)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/batch, "ns/connection")
		})
	}
}
