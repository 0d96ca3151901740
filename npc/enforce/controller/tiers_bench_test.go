package controller_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// denying returns an Admin policy that denies the pods of a subject what pods with some label send. Port distinguishes
// its rule from another one.
func denying(b *testing.B, name, subject string, port int) *v1alpha2.ClusterNetworkPolicy {
	const spec = `{tier: Admin, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {%s}}}}, ingress: [
		{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {denied-by: %s}}}}],
			protocols: [{tcp: {destinationPort: {number: %d}}}]}]}`
	return fixture.ClusterPolicy(b, name, fmt.Sprintf(spec, subject, name, port))
}

// BenchmarkEventUnderTiers takes a change from the call to the plan, with cluster network policies that concern no
// local pod, and with 100 that choose all of them.
func BenchmarkEventUnderTiers(b *testing.B) {
	c := synthetic.Cluster{Namespaces: 100, Pods: 10_000, Policies: 100, Local: 110}
	for _, scene := range []struct {
		name    string
		count   int
		subject string
	}{{"none", 0, ""}, {"elsewhere=1000", 1000, "app: none"}, {"here=100", 100, ""}} {
		m := newModel()
		for i := range scene.count {
			m.SetClusterPolicy(denying(b, fmt.Sprint("p", i), scene.subject, 80))
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
				m.SetClusterPolicy(denying(b, fmt.Sprint("p", i%scene.count), scene.subject, 80+i/scene.count%2))
			})
		}
	}
}

// underTiers is the number of policies of one rule each that choose the pods of BenchmarkFirstPacketUnderTiers.
const underTiers = 25

// BenchmarkFirstPacketUnderTiers forwards packets that open connections to pods that nothing isolates: without cluster
// network policies, with one that selects another local pod, and with 25 of one rule each that select them. Of these
// the rules ask for a port of another protocol, or for peers that the sender is not among: each rule for itself,
// because neighbours do not do the same, or all by one list. "x/bare" is the ratio of the extra time of the 25 rules
// with peers of their own to that of 25 bare rules that ask for sets.
func BenchmarkFirstPacketUnderTiers(b *testing.B) {
	c := synthetic.Cluster{Namespaces: 1, Local: 110}
	policies := func(edit func(i int, r *v1alpha2.ClusterNetworkPolicyIngressRule)) func(m *controller.Controller) {
		return func(m *controller.Controller) {
			for i := range underTiers {
				p := denying(b, fmt.Sprintf("p%02d", i), "", 80)
				edit(i, &p.Spec.Ingress[0])
				m.SetClusterPolicy(p)
			}
		}
	}
	scenes := []struct {
		name string
		make func(m *controller.Controller)
	}{
		{"none", func(*controller.Controller) {}},
		{"another", func(m *controller.Controller) {
			p := c.Pod(0)
			p.Labels = fixture.Labels("selected=yes")
			m.SetPod(p)
			m.SetClusterPolicy(denying(b, "p", `selected: "yes"`, 80))
		}},
		{"protocol", policies(func(i int, r *v1alpha2.ClusterNetworkPolicyIngressRule) { r.Action = alternating[i%2] })},
		{"peers", policies(func(i int, r *v1alpha2.ClusterNetworkPolicyIngressRule) {
			r.Action, r.Protocols = alternating[i%2], nil
		})},
		{"merged", policies(func(_ int, r *v1alpha2.ClusterNetworkPolicyIngressRule) { r.Protocols = nil })},
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		r := newRoad(b)
		b.Run(string(backend), func(b *testing.B) {
			costs := map[string][]float64{}
			measure := func(name string) { costs[name] = append(costs[name], r.cost(b, r.addrs(100, 5), 4)) }
			for b.Loop() {
				for range 3 {
					cluster.Empty(b)
					measure("no-rules")
					bareSetRules(b, backend)
					measure("bare")
					for _, scene := range scenes {
						cluster.Empty(b)
						m := newModel()
						load(m, c)
						scene.make(m)
						r.enforce(b, m, backend)
						measure(scene.name)
					}
				}
			}
			more := func(of, than string) float64 { return middle(costs[of]) - middle(costs[than]) }
			for name, of := range costs {
				b.ReportMetric(middle(of), name+"-ns")
			}
			b.ReportMetric(more("another", "none"), "another-more-ns")
			b.ReportMetric(more("peers", "none")/more("bare", "no-rules"), "x/bare")
			b.ReportMetric(0, "ns/op")
		})
		r.close()
	}
}

var alternating = [...]v1alpha2.ClusterNetworkPolicyRuleAction{v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionAccept}

// bareSetRules puts rules into FORWARD that each ask for a set that the sender is not in.
func bareSetRules(b *testing.B, backend iptables.Backend) {
	b.Helper()
	for i := range underTiers {
		set := fmt.Sprint("bare", i)
		cluster.Command(b, "ipset", "create", set, "hash:ip", "comment")
		cluster.Command(b, "iptables-"+string(backend), "-A", "FORWARD", "-m", "set", "--match-set", set, "src", "-j", "DROP")
	}
}
