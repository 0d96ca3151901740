package controller_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/npc/walk"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/paper"
)

// size is that of a synthetic cluster, as seen from one of its nodes.
type size struct{ pods, namespaces, policies, local int }

func (s size) String() string {
	return fmt.Sprintf("pods=%d/namespaces=%d/policies=%d/local=%d", s.pods, s.namespaces, s.policies, s.local)
}

var sizes = []size{{10, 10, 10, 10}, {100, 10, 10, 10}, {1_000, 100, 100, 110}, {10_000, 100, 1_000, 110}, {100_000, 2_000, 5_000, 110}}

func spaceOf(i int) string { return fmt.Sprintf("ns-%04d", i) }

// apps is how many applications a namespace has.
const apps = 20

func (s size) labels(i int) map[string]string {
	return map[string]string{"app": fmt.Sprintf("app-%d", i/s.namespaces%apps), "version": fmt.Sprintf("v%d", i%3),
		"pod-template-hash": fmt.Sprintf("%08x", i)}
}

func (s size) namespace(i int) npc.Namespace {
	return npc.Namespace{Name: spaceOf(i), UID: types.UID(spaceOf(i)), Labels: map[string]string{
		"kubernetes.io/metadata.name": spaceOf(i), "team": fmt.Sprintf("team-%d", i%10), "tier": []string{"dev", "prod"}[i%2]}}
}

// pod is one of other nodes; local pods have numbers from the end.
func (s size) pod(i int) npc.Pod {
	p := npc.Pod{Namespace: spaceOf(i % s.namespaces), Name: fmt.Sprintf("pod-%06d", i), UID: types.UID(fmt.Sprintf("%036d", i)),
		Labels: s.labels(i), Node: fmt.Sprintf("node-%d", i/100), Started: time.Unix(int64(i), 0), Created: time.Unix(int64(i), 0),
		Addrs:     []netip.Addr{netip.AddrFrom4([4]byte{10, byte(64 + i>>16), byte(i >> 8), byte(i)})},
		HostAddrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i / 100 >> 8), byte(i / 100)})},
		Ports:     []npc.NamedPort{{Name: "http", Protocol: 6, Port: 80}}}
	if i >= s.pods {
		p.Node, p.Labels = cluster.Node, s.labels(i-s.pods)
		p.Namespace = spaceOf((i - s.pods) % s.namespaces)
		p.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 1, byte(i - s.pods + 2)})}
	}
	return p
}

// policy has rules with peers of three kinds; every other one has an egress rule too.
func (s size) policy(i int) *networkingv1.NetworkPolicy {
	k := i / s.namespaces
	app := func(n int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("app-%d", n%apps)}}
	}
	ports := func(numbers ...int32) (out []networkingv1.NetworkPolicyPort) {
		for _, n := range numbers {
			p := intstr.FromInt32(n)
			out = append(out, networkingv1.NetworkPolicyPort{Port: &p})
		}
		return out
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name, p.UID = spaceOf(i%s.namespaces), fmt.Sprintf("np-%05d", i), types.UID(fmt.Sprintf("np-%05d", i))
	p.Spec.PodSelector = *app(k)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: app(k + 1)}}, Ports: ports(80, 443)},
		{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"team": fmt.Sprintf("team-%d", k%10)}}}}, Ports: ports(8080)},
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: app(k + 3), NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"tier": "prod"}}}}, Ports: ports(9090)},
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if i%2 == 1 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{
			IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.9.0.0/16"}}}}}}
	}
	return p
}

// model knows the cluster, and takes what it planned for done.
func (s size) model() *controller.Controller {
	m := s.untold()
	s.tell(m)
	carryOut(m)
	return m
}

// untold knows nothing yet.
func (s size) untold() *controller.Controller {
	return controller.New(npc.Config{NodeName: cluster.Node, PodInterface: "cni0", NFLogGroup: 86, AllowMcast: true, Hook: npc.HookForward, AllowAction: "ACCEPT", MaxListSize: 1 << 16})
}

// tell tells a model of all there is.
func (s size) tell(m *controller.Controller) {
	for i := range s.namespaces {
		m.SetNamespace(s.namespace(i))
	}
	for i := range s.pods + s.local {
		m.SetPod(s.pod(i))
	}
	for i := range s.policies {
		m.SetPolicy(s.policy(i))
	}
	m.SetSynced()
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

// remembered is the floor of an event: a pod is taken note of, and no more.
func remembered(s size, n int) time.Duration {
	pods := make(map[string]npc.Pod, s.pods)
	for i := range s.pods {
		p := s.pod(i)
		pods[p.Namespace+"/"+p.Name] = p
	}
	runtime.GC()
	p := s.pod(0)
	start := time.Now()
	for i := range n {
		p.Labels = s.labels(i)
		pods[p.Namespace+"/"+p.Name] = p
	}
	return time.Since(start)
}

// BenchmarkEvent takes one change from the call to the plan. Its floor is a map of pods that is told of a pod with other labels.
func BenchmarkEvent(b *testing.B) {
	for _, s := range sizes {
		var m *controller.Controller
		floor := remembered(s, 20_000) / 20_000
		run := func(name string, event func(i int)) {
			b.Run(name+"/"+s.String(), func(b *testing.B) {
				if m == nil {
					m = s.model()
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
			p := s.pod(i % s.pods)
			p.Labels = map[string]string{"app": "other", "run": fmt.Sprint(i)}
			m.SetPod(p)
		})
		run("related-pod", func(i int) {
			p := s.pod(i % s.pods)
			p.Labels["app"] = fmt.Sprintf("app-%d", i%apps)
			m.SetPod(p)
		})
		run("local-pod", func(i int) {
			p := s.pod(s.pods + i%s.local)
			p.Labels["app"] = fmt.Sprintf("app-%d", i%apps)
			m.SetPod(p)
		})
		run("policy", func(i int) {
			p := s.policy(i % 2)
			p.Spec.Ingress[0].Ports = p.Spec.Ingress[0].Ports[:1+i/2%2]
			m.SetPolicy(p)
		})
		run("peer-of-a-policy", func(i int) {
			p := s.policy(0)
			p.Spec.Ingress[2].From[0].PodSelector.MatchLabels["app"] = fmt.Sprintf("app-%d", i%apps)
			m.SetPolicy(p)
		})
		run("namespace", func(i int) {
			n := s.namespace(0)
			n.Labels["tier"] = []string{"dev", "prod"}[i%2]
			m.SetNamespace(n)
		})
	}
}

// BenchmarkRelabel relabels a namespace with 5,000 pods, so that they enter and leave the sets of a selector.
func BenchmarkRelabel(b *testing.B) {
	s := size{5_000, 1, 20, 110}
	m := s.model()
	for i := range 99 {
		n := s.namespace(i + 1)
		m.SetNamespace(n)
	}
	i := 0
	for b.Loop() {
		i++
		n := s.namespace(0)
		n.Labels["tier"] = []string{"dev", "prod"}[i%2]
		m.SetNamespace(n)
		carryOut(m)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/5_000, "ns/pod")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(remembered(s, 5_000)), "x/floor")
}

// BenchmarkMemory holds clusters in memory. The floor is a map of the pods' facts.
func BenchmarkMemory(b *testing.B) {
	for _, s := range sizes[2:] {
		b.Run(s.String(), func(b *testing.B) {
			var floor, ours float64
			for b.Loop() {
				pods := map[string]npc.Pod{}
				floor = held(func() {
					for i := range s.pods + s.local {
						p := s.pod(i)
						pods[p.Namespace+"/"+p.Name] = p
					}
				})
				runtime.KeepAlive(pods)
				clear(pods)
				var m *controller.Controller
				ours = held(func() { m = s.model() })
				runtime.KeepAlive(m)
			}
			b.ReportMetric(ours/float64(s.pods+s.local), "B/pod")
			b.ReportMetric(ours/floor, "x/floor")
		})
	}
}

// held is how much memory is held that a function has made.
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

// BenchmarkStart tells a model of all there is, and plans it. The floor is a map of the pods' facts.
func BenchmarkStart(b *testing.B) {
	for _, s := range sizes[2:] {
		b.Run(s.String(), func(b *testing.B) {
			for b.Loop() {
				s.model()
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(remembered(s, s.pods)), "x/floor")
		})
	}
}

// BenchmarkRulesMet says how many rules a packet that opens a connection is tried against, from FORWARD on, before the rules of the namespace of
// the local pod that it is for ("before-space"), and before the first rule that is for that pod ("before-own"): those of the pod that
// is worst off.
func BenchmarkRulesMet(b *testing.B) {
	for _, s := range []size{{0, 1, 1, 110}, {0, 1, 10, 110}, {0, 1, 1_000, 110}, {0, 10, 100, 110}, {0, 50, 1_000, 110}, {0, 110, 2_200, 110}} {
		for _, d := range []traffic.Direction{traffic.Ingress, traffic.Egress} {
			b.Run(fmt.Sprintf("%s/%s", s, d), func(b *testing.B) {
				kernels := paper.New()
				for b.Loop() {
					kernels = s.onPaper(b)
				}
				space, own := 0, 0
				for i := range s.local {
					toSpace, toOwn := rulesMet(b, kernels[traffic.IPv4], s.pod(s.pods+i), d)
					space, own = max(space, toSpace), max(own, toOwn)
				}
				b.ReportMetric(float64(space), "before-space")
				b.ReportMetric(float64(own), "before-own")
			})
		}
	}
}

// onPaper is the kernel that the cluster comes to.
func (s size) onPaper(tb testing.TB) [2]*paper.Kernel {
	tb.Helper()
	kernels := paper.New()
	m := s.untold()
	for f, k := range kernels {
		sets, seen := k.Read()
		m.Planner().LoadChains(traffic.Family(f), seen)
		m.Planner().LoadSets(traffic.Family(f), sets)
	}
	s.tell(m)
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

// rulesMet sends a packet of a protocol that no rule allows to a pod, or from it. A pod that no rule is for has none before them.
func rulesMet(tb testing.TB, k *paper.Kernel, pod npc.Pod, d traffic.Direction) (toSpace, toOwn int) {
	tb.Helper()
	p := walk.Packet{Src: netip.MustParseAddr("198.51.100.7"), Dst: pod.Addrs[0], Protocol: 47, In: "eth0", Out: "cni0"}
	own := "dst"
	if d == traffic.Egress {
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

// planned plans and tells the model that everything was carried out.
func planned(m *controller.Controller) [2]dataplane.Transaction {
	txs := m.Planner().Plan(false, [2]dataplane.Known{})
	for _, tx := range txs {
		m.Planner().Commit(tx, tx.Taken())
	}
	return txs
}
