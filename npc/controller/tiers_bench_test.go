package controller_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// denying returns an Admin policy that denies the pods of a subject what pods with some label send. Port tells its rule from another one.
func denying(name string, subject map[string]string, port int32) *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{}
	p.Name, p.UID, p.Spec.Tier = name, types.UID(name), v1alpha2.AdminTier
	p.Spec.Subject.Pods = &v1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: subject}}
	p.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Pods: &v1alpha2.NamespacedPod{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"denied-by": name}}}}},
		Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{
			DestinationPort: &v1alpha2.Port{Number: port}}}}}}
	return p
}

// BenchmarkEventUnderTiers takes a change from the call to the plan, with cluster network policies that concern no local pod, and with 100 that choose
// all of them.
func BenchmarkEventUnderTiers(b *testing.B) {
	c := synthetic.Cluster{Namespaces: 100, Pods: 10_000, Policies: 100, Local: 110}
	for _, scene := range []struct {
		name    string
		count   int
		subject map[string]string
	}{{"none", 0, nil}, {"elsewhere=1000", 1000, map[string]string{"app": "nobody"}}, {"here=100", 100, nil}} {
		m := newModel()
		for i := range scene.count {
			m.SetClusterPolicy(denying(fmt.Sprint("p", i), scene.subject, 80))
		}
		load(m, c)
		carryOut(m)
		run := func(name string, event func(i int)) {
			b.Run(scene.name+"/"+name, func(b *testing.B) {
				i := 0
				for b.Loop() {
					i++
					event(i)
					carryOut(m)
				}
			})
		}
		run("unrelated-pod", func(i int) {
			p := c.Pod(i % c.Pods)
			p.Labels = map[string]string{"app": "other", "run": fmt.Sprint(i)}
			m.SetPod(p)
		})
		run("local-pod", func(i int) {
			p := c.Pod(c.Pods + i%c.Local)
			p.Labels["app"] = fmt.Sprintf("app-%d", i%synthetic.Apps)
			m.SetPod(p)
		})
		if scene.count > 0 {
			run("cluster-policy", func(i int) {
				m.SetClusterPolicy(denying(fmt.Sprint("p", i%scene.count), scene.subject, int32(80+i/scene.count%2)))
			})
		}
	}
}

// BenchmarkFirstPacketUnderTiers forwards packets that open connections to pods that nothing isolates: without cluster network policies, with one that
// chooses another local pod, and with 25 of one rule each that choose them. The rules ask for the port in vain, or first for the port and then for peers.
func BenchmarkFirstPacketUnderTiers(b *testing.B) {
	c := synthetic.Cluster{Namespaces: 1, Local: 110}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		r := newRoad(b)
		b.Run(string(backend), func(b *testing.B) {
			models := []struct {
				name string
				make func(m *controller.Controller)
			}{
				{"none", func(*controller.Controller) {}},
				{"another", func(m *controller.Controller) {
					p := c.Pod(0)
					p.Labels = map[string]string{"chosen": "yes"}
					m.SetPod(p)
					m.SetClusterPolicy(denying("p", map[string]string{"chosen": "yes"}, 80))
				}},
				{"25", func(m *controller.Controller) {
					for i := range 25 {
						m.SetClusterPolicy(denying(fmt.Sprintf("p%02d", i), nil, 80))
					}
				}},
			}
			costs := make([][]float64, len(models))
			for b.Loop() {
				for range 3 {
					for i, model := range models {
						cluster.Empty(b)
						m := newModel()
						load(m, c)
						model.make(m)
						r.enforce(b, m, backend)
						costs[i] = append(costs[i], r.cost(b, r.addrs(100, 5), 4))
					}
				}
			}
			for i, model := range models {
				b.ReportMetric(middle(costs[i]), model.name+"-ns")
			}
			b.ReportMetric(middle(costs[1])-middle(costs[0]), "another-more-ns")
			b.ReportMetric(0, "ns/op")
		})
		r.close()
	}
}
