package controller_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
	"github.com/weave-npc/weave-npc/test/paper"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// newModel returns a model that has received no objects.
func newModel() *controller.Controller {
	return controller.New(enforce.Config{NodeName: synthetic.Node, PodInterface: "cni0", NFLogGroup: 86, AllowMcast: true, ForwardJump: true,
		AllowAction: "ACCEPT", MaxListSize: 1 << 16})
}

// load passes all objects of a cluster to a model.
func load(m *controller.Controller, c synthetic.Cluster) {
	for i := range c.Namespaces {
		m.SetNamespace(synthetic.Namespace(i))
	}
	for i := range c.Pods + c.Local {
		m.SetPod(c.Pod(i))
	}
	for i := range c.Policies {
		m.SetPolicy(c.Policy(i))
	}
	m.SetSynced()
}

// modelOf returns a model of a cluster whose plans were carried out.
func modelOf(c synthetic.Cluster) *controller.Controller {
	m := newModel()
	load(m, c)
	carryOut(m)
	return m
}

// fullNode returns a cluster whose only pods are 110 on one node.
func fullNode(namespaces, policies int) synthetic.Cluster {
	return synthetic.Cluster{Namespaces: namespaces, Policies: policies, Local: 110}
}

// carryOut plans until there is nothing left to do.
func carryOut(m *controller.Controller) {
	for {
		planned(m)
		if !m.Planner().Resume() {
			return
		}
	}
}

// remembered returns the floor of n events: a map that stores a pod with other labels.
func remembered(c synthetic.Cluster, n int) time.Duration {
	pods := make(map[string]npc.Pod, c.Pods)
	for i := range c.Pods {
		p := c.Pod(i)
		pods[p.Namespace+"/"+p.Name] = p
	}
	runtime.GC()
	p := c.Pod(0)
	start := time.Now()
	for i := range n {
		p.Labels = c.Labels(i)
		pods[p.Namespace+"/"+p.Name] = p
	}
	return time.Since(start)
}

// BenchmarkEvent measures one change from the call to the plan. Its floor is a map of pods where a pod gets other
// labels.
func BenchmarkEvent(b *testing.B) {
	for _, c := range synthetic.Sizes() {
		var m *controller.Controller
		floor := remembered(c, 20_000) / 20_000
		run := func(name string, event func(i int)) {
			b.Run(name+"/"+c.String(), func(b *testing.B) {
				if m == nil {
					m = modelOf(c)
					runtime.GC()
				}
				i := 0
				for b.Loop() {
					i++
					event(i)
					carryOut(m)
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(floor), "x/floor")
			})
		}
		run("unrelated-pod", func(i int) { // its labels are those of no peer
			p := c.Pod(i % c.Pods)
			p.Labels = map[string]string{"app": "other", "run": fmt.Sprint(i)}
			m.SetPod(p)
		})
		run("related-pod", func(i int) {
			p := c.Pod(i % c.Pods)
			p.Labels["app"] = fmt.Sprintf("app-%d", i%synthetic.Apps)
			m.SetPod(p)
		})
		run("local-pod", func(i int) {
			p := c.Pod(c.Pods + i%c.Local)
			p.Labels["app"] = fmt.Sprintf("app-%d", i%synthetic.Apps)
			m.SetPod(p)
		})
		run("policy", func(i int) {
			p := c.Policy(i % 2)
			p.Spec.Ingress[0].Ports = p.Spec.Ingress[0].Ports[:1+i/2%2]
			m.SetPolicy(p)
		})
		run("peer-of-a-policy", func(i int) {
			p := c.Policy(0)
			p.Spec.Ingress[2].From[0].PodSelector.MatchLabels["app"] = fmt.Sprintf("app-%d", i%synthetic.Apps)
			m.SetPolicy(p)
		})
		run("namespace", func(i int) {
			n := synthetic.Namespace(0)
			n.Labels["tier"] = []string{"dev", "prod"}[i%2]
			m.SetNamespace(n)
		})
	}
}

// BenchmarkRelabel relabels a namespace with 5,000 pods, so that they enter and leave the sets of a selector.
func BenchmarkRelabel(b *testing.B) {
	c := synthetic.Cluster{Pods: 5_000, Namespaces: 1, Policies: 20, Local: 110}
	m := modelOf(c)
	for i := range 99 {
		n := synthetic.Namespace(i + 1)
		m.SetNamespace(n)
	}
	i := 0
	for b.Loop() {
		i++
		n := synthetic.Namespace(0)
		n.Labels["tier"] = []string{"dev", "prod"}[i%2]
		m.SetNamespace(n)
		carryOut(m)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/5_000, "ns/pod")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(remembered(c, 5_000)), "x/floor")
}

// BenchmarkMemory holds clusters in memory. The floor is a map of the pods' facts.
func BenchmarkMemory(b *testing.B) {
	for _, c := range synthetic.Sizes()[2:] {
		b.Run(c.String(), func(b *testing.B) {
			var floor, ours float64
			for b.Loop() {
				pods := map[string]npc.Pod{}
				floor = held(func() {
					for i := range c.Pods + c.Local {
						p := c.Pod(i)
						pods[p.Namespace+"/"+p.Name] = p
					}
				})
				runtime.KeepAlive(pods)
				clear(pods)
				var m *controller.Controller
				ours = held(func() { m = modelOf(c) })
				runtime.KeepAlive(m)
			}
			b.ReportMetric(ours/float64(c.Pods+c.Local), "B/pod")
			b.ReportMetric(ours/floor, "x/floor")
		})
	}
}

// held returns how much more memory is in use after a function than before it.
func held(f func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// BenchmarkStart passes all objects to a model, and plans. The floor is a map of the pods' facts.
func BenchmarkStart(b *testing.B) {
	for _, c := range synthetic.Sizes()[2:] {
		b.Run(c.String(), func(b *testing.B) {
			for b.Loop() {
				modelOf(c)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(remembered(c, c.Pods)), "x/floor")
		})
	}
}

// BenchmarkRulesMet measures how many rules a packet that opens a connection is tried against, from FORWARD on, before
// the rules of the namespace of the local pod that it is for ("before-space"), and before the first rule that is for
// that pod ("before-own"): those of the pod that is worst off.
func BenchmarkRulesMet(b *testing.B) {
	for _, c := range []synthetic.Cluster{
		fullNode(1, 1), fullNode(1, 10), fullNode(1, 1_000), fullNode(10, 100), fullNode(50, 1_000), fullNode(110, 2_200),
	} {
		for _, d := range []npc.Direction{npc.Ingress, npc.Egress} {
			b.Run(fmt.Sprintf("%s/%s", c, d), func(b *testing.B) {
				kernels := paper.New()
				for b.Loop() {
					kernels = inMemory(b, c)
				}
				space, own := 0, 0
				for i := range c.Local {
					toSpace, toOwn := rulesMet(b, kernels[npc.IPv4], c.Pod(c.Pods+i), d)
					space, own = max(space, toSpace), max(own, toOwn)
				}
				b.ReportMetric(float64(space), "before-space")
				b.ReportMetric(float64(own), "before-own")
			})
		}
	}
}

// BenchmarkRulesMetByPair measures how many rules a packet from a client to a server on the same bridge is tried
// against, from FORWARD on: one that opens a connection ("opens"), and a later one ("established").
func BenchmarkRulesMetByPair(b *testing.B) {
	client, server := netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.1.3")
	for _, pair := range synthetic.Pairs() {
		b.Run(pair.String(), func(b *testing.B) {
			kernels := paper.New()
			for b.Loop() {
				kernels = enforcing(b, func(m *controller.Controller) {
					m.SetNamespace(synthetic.Namespace(0))
					for _, p := range pair.Pods(client, server, server.Next()) {
						m.SetPod(p)
					}
					for i := range pair.Policies {
						m.SetPolicy(pair.Policy(i))
					}
					m.SetSynced()
				})
			}
			for unit, state := range map[string]string{"opens": "", "established": "ESTABLISHED"} {
				v, err := kernels[npc.IPv4].Simulate(simulate.Packet{Src: client, Dst: server, Protocol: 6,
					SrcPort: 40_000, DstPort: 80, State: state, In: "cni0", Out: "cni0", PhysIn: "veth1", PhysOut: "veth2"})
				if err != nil || !v.Accepted {
					b.Fatalf("a packet of the client is dropped by %s: %v", v.By, err)
				}
				b.ReportMetric(float64(v.Trace[len(v.Trace)-1].Tried), unit)
			}
		})
	}
}

// inMemory returns kernels, by family, that enforce the policies of a cluster.
func inMemory(tb testing.TB, c synthetic.Cluster) [2]*paper.Kernel {
	tb.Helper()
	return enforcing(tb, func(m *controller.Controller) { load(m, c) })
}

// enforcing returns kernels, by family, that enforce the policies that load passes to a model.
func enforcing(tb testing.TB, load func(*controller.Controller)) [2]*paper.Kernel {
	tb.Helper()
	kernels := paper.New()
	m := newModel()
	for f, k := range kernels {
		sets, seen := k.Read()
		m.Planner().LoadChains(npc.Family(f), seen)
		m.Planner().LoadSets(npc.Family(f), sets)
	}
	load(m)
	for {
		for f, tx := range planned(m) {
			if err := kernels[f].Apply(tx); err != nil {
				tb.Fatal(err)
			}
		}
		if !m.Planner().Resume() {
			return kernels
		}
	}
}

// rulesMet sends a packet of a protocol that no rule allows to a pod, or from it. A pod that no rule is for has none
// before them.
func rulesMet(tb testing.TB, k *paper.Kernel, pod npc.Pod, d npc.Direction) (toSpace, toOwn int) {
	tb.Helper()
	p := simulate.Packet{Src: netip.MustParseAddr("198.51.100.7"), Dst: pod.Addrs[0], Protocol: 47, In: "eth0", Out: "cni0"}
	own := "dst"
	if d == npc.Egress {
		p.Src, p.Dst, p.In, p.Out, own = p.Dst, p.Src, p.Out, p.In, "src"
	}
	v, err := k.Simulate(p)
	if err != nil {
		tb.Fatal(err)
	}
	for _, step := range v.Trace {
		if !strings.Contains(step.Rule, "isolated pods of "+pod.Namespace+`"`) && !strings.Contains(step.Rule, "isolated pods of "+pod.Namespace+" part") {
			continue
		}
		chain, _, err := k.Refers(step.Rule)
		if err != nil {
			tb.Fatal(err)
		}
		for i, rule := range k.Chains[chain] {
			words := strings.Fields(rule)
			for j := range words {
				if j > 0 && words[j] == own && k.Sets[words[j-1]] != nil {
					if _, ok := k.Sets[words[j-1]].Members[ipset.Addr(pod.Addrs[0])]; ok {
						return step.Tried, step.Tried + i
					}
				}
			}
		}
		return step.Tried, 0
	}
	return 0, 0
}

// planned plans and commits the plan as carried out.
func planned(m *controller.Controller) [2]dataplane.Transaction {
	txs := m.Planner().Plan(false, [2]dataplane.Known{})
	for _, tx := range txs {
		m.Planner().Commit(tx, tx.Taken())
	}
	return txs
}
